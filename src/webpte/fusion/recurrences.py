"""Recognize layers with a recurrent state, as the builder writes them: see builder/recurrent.py.

What a layer keeps of a sequence is one tensor, which a call reads and replaces. In a model of many sequences every slot
has such a state, and one op reads and writes those of its rows.
"""

from __future__ import annotations

from typing import NamedTuple

from ..graph import Call, Graph, Int, Null, TensorSpec
from ..graph.names import UPDATE
from .pieces import MismatchError, Pattern, Pieces, piece, require
from .rewriter import Rewriter, roles

SLOT_CONVOLUTION = "webpte.slot_convolution"  # see ops/recurrent/slot_convolution.py
PATTERN = {
    "clamp": ("aten.clamp.default",),
    "cast": ("aten._to_copy.default",),
    "size": ("sym_size.int",),
    "plus": ("add",),
    "product": ("aten.mul.Tensor",),
    "sum": ("aten.add.Tensor",),
    "cat": ("aten.cat.default",),
    "slice": ("aten.slice_copy.Tensor",),
    "select": ("aten.select_copy.int",),
}
ROLES = roles(PATTERN)
CONVOLUTION_ROWS = 64  # inputs of a convolution that a slot keeps: how far a sequence can go back, and its drafts


class Recurrence(NamedTuple):
    """A recurrent layer: the value that it computes, what it reads, and the step that replaces its state."""

    op: str
    out: int
    state: int
    dims: tuple[int, ...]  # of the state of a slot
    operands: dict[str, int]
    update: int


class StateReach(NamedTuple):
    """How far back the state of a slot reaches: as engine.kv_slots.CacheWindow."""

    needed: int
    held: int


def recurrences(rewriter: Rewriter) -> list[Recurrence]:
    """Return the recurrent layers of a graph, in their order."""
    pieces, layers = Pieces(rewriter, ROLES), []
    for index in range(len(rewriter.steps)):
        call = rewriter.call(index)
        if call is not None and call.name == UPDATE:
            try:
                layers.append(_convolution(pieces, index, call))
            except MismatchError:
                continue
    return layers


def state_reach(graph: Graph) -> StateReach | None:
    """Return how far back the states of a graph of slots reach; None if they keep every position."""
    convolutions = [call for call in graph.calls if call.name == SLOT_CONVOLUTION]
    if not convolutions:
        return None
    sizes = [[graph.tensor(value_id).dims for value_id in call.args[1:3]] for call in convolutions]
    return StateReach(max(weight[0] for weight, _ in sizes) - 1, min(state[1] for _, state in sizes))


# 0 for the first tokens of a text and otherwise 1: a state is multiplied by it.
BEGUN = piece("cast", self=piece("clamp", self="position", min=Null(), max=Int(1)))
COUNT = piece("size", self="tokens", dim=Int(1))


def _convolution(pieces: Pieces, update: int, call: Call) -> Recurrence:
    """Return the causal convolution whose state a step replaces by its latest inputs."""
    state, latest = call.args[:2]
    kept = _state(pieces, state, rank=3).dims[1]
    inputs = piece("cat", tensors=(piece("product", self="state", other=BEGUN), "x"), dim=Int(1))
    names = {"state": state}
    pieces.match(latest, _rows(inputs, COUNT, piece("plus", a=COUNT, b=Int(kept))), names)
    joined = pieces.of(latest, "slice")["self"]
    terms = [
        piece(
            "product",
            self=_rows(inputs, Int(tap), _end(tap, kept)),
            other=piece("select", self="weight", dim=Int(0), index=Int(tap)),
        )
        for tap in range(kept + 1)
    ]
    total: Pattern = terms[0]
    for term in terms[1:]:
        total = piece("sum", self=total, other=term, alpha=Int(1))
    for out in _sums_after(pieces.rewriter, joined):
        try:
            pieces.match(out, total, names)
        except MismatchError:
            continue
        width = pieces.tensor(names["x"]).dims[2]
        require(pieces.tensor(names["weight"]).dims == (kept + 1, 1, width))
        _check_inputs(pieces, names)
        operands = {"x": names["x"], "weight": names["weight"]}
        return Recurrence(SLOT_CONVOLUTION, out, state, (CONVOLUTION_ROWS, width), operands, update)
    raise MismatchError


def _rows(x: Pattern, start: Pattern, end: Pattern) -> Pattern:
    return piece("slice", self=x, dim=Int(1), start=start, end=end, step=Int(1))


def _end(tap: int, kept: int) -> Pattern:
    """Return the end of the inputs that a tap is multiplied with."""
    if tap == 0:
        return COUNT
    return piece("plus", a=COUNT, b=Int(kept)) if tap == kept else piece("plus", a=Int(tap), b=COUNT)


def _sums_after(rewriter: Rewriter, joined: int) -> list[int]:
    """Return the values that may be the whole sum over slices of a value: those after a product and some additions."""
    outs = []
    for index in rewriter.users[joined]:
        call = rewriter.call(index)
        for _ in range(2):
            user = rewriter.only_user(call.outs[0]) if call is not None else None
            call = None if user is None else user[1]
        if call is not None and call.outs:
            outs.append(call.outs[0])
    return outs


def _state(pieces: Pieces, value_id: int, rank: int) -> TensorSpec:
    """Return the spec of a state that is initially zero."""
    spec = pieces.tensor(value_id)
    require(spec.stored and len(spec.dims) == rank)
    return spec


def _check_inputs(pieces: Pieces, names: dict[str, int]) -> None:
    """Require that the numbers of a pattern are those of the inputs: the tokens, and the position of the first."""
    inputs = pieces.rewriter.graph.inputs
    require((names["tokens"], names["position"]) == tuple(inputs[:2]))

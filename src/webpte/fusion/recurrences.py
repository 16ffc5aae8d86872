"""Recognize layers with a recurrent state, as the builder writes them: see builder/recurrent.py.

What a layer keeps of a sequence is one tensor, which a call reads and replaces. In a model of many sequences every slot
has such a state, and one op reads and writes those of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..graph import Bool, Call, Double, Graph, Int, IntList, Null, TensorSpec, Value, numel
from ..graph.names import UPDATE
from .pieces import CallPattern, MismatchError, Pattern, Pieces, piece, require
from .rewriter import Rewriter, roles

SLOT_CONVOLUTION = "webpte.slot_convolution"  # see ops/recurrent/slot_convolution.py
SLOT_DELTA_RULE = "webpte.slot_delta_rule"  # see ops/recurrent/slot_delta_rule.py
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
    "minus": ("sub",),
    "difference": ("aten.sub.Tensor",),
    "exp": ("aten.exp.default",),
    "rsqrt": ("aten.rsqrt.default",),
    "sigmoid": ("aten.sigmoid.default",),
    "relu": ("aten.relu.default",),
    "log10": ("aten.log10.default",),
    "negative": ("aten.neg.default",),
    "abs": ("aten.abs.default",),
    "total": ("aten.sum.dim_IntList",),
    "mm": ("aten.mm.default",),
    "bmm": ("aten.bmm.default",),
    "permute": ("aten.permute_copy.default",),
    "unsqueeze": ("aten.unsqueeze_copy.default",),
    "view": ("aten.view_copy.default",),
}
ROLES = roles(PATTERN)
# Inputs of a convolution that a slot keeps: how far a sequence can go back, and its drafts. In a model with linear
# attention, which cannot go back, a slot keeps one for each tap.
CONVOLUTION_ROWS = 64
CHECKPOINT_BYTES = 128 << 20  # of the states that a model of slots has room to copy: the fewest and most copies follow
MIN_CHECKPOINTS, MAX_CHECKPOINTS = 2, 16


class Recurrence(NamedTuple):
    """A recurrent layer: the value that it computes, what it reads, and the step that replaces its state."""

    op: str
    out: int
    state: int
    dims: tuple[int, ...]  # of the state of a slot
    operands: Mapping[str, int | Value]
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
        if call is None or call.name != UPDATE:
            continue
        for recognize in (_convolution, _delta_rule):
            try:
                layers.append(recognize(pieces, index, call))
            except MismatchError:
                continue
    if any(layer.op == SLOT_DELTA_RULE for layer in layers):
        return [_without_past(pieces, layer) if layer.op == SLOT_CONVOLUTION else layer for layer in layers]
    return layers


def num_checkpoints(layers: Sequence[Recurrence]) -> int:
    """Return how many copies of the states of a slot there is room for."""
    nbytes = sum(4 * numel(layer.dims) for layer in layers)
    return min(max(MIN_CHECKPOINTS, CHECKPOINT_BYTES // nbytes), MAX_CHECKPOINTS) if nbytes else 0


def _without_past(pieces: Pieces, layer: Recurrence) -> Recurrence:
    """Return a convolution that keeps an input for each tap."""
    weight = layer.operands["weight"]
    assert isinstance(weight, int)
    return layer._replace(dims=(pieces.tensor(weight).dims[0], layer.dims[1]))


def state_reach(graph: Graph) -> StateReach | None:
    """Return how far back the states of a graph of slots reach; None if they keep every position."""
    if any(call.name == SLOT_DELTA_RULE for call in graph.calls):
        return StateReach(0, 0)  # the state is that of the last token
    convolutions = [call for call in graph.calls if call.name == SLOT_CONVOLUTION]
    if not convolutions:
        return None
    sizes = [[graph.tensor(value_id).dims for value_id in call.args[1:3]] for call in convolutions]
    return StateReach(max(weight[0] for weight, _ in sizes) - 1, min(state[1] for _, state in sizes))


# 0 for the first tokens of a text and otherwise 1: a state is multiplied by it.
BEGUN = piece("cast", self=piece("clamp", self="position", min=Null(), max=Int(1)))
COUNT = piece("size", self="tokens", dim=Int(1))
SILU = piece("product", self="x", other=piece("sigmoid", "gate", self="x"))


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
        result = _silu_of(pieces, out)
        operands: dict[str, int | Value] = {name: names[name] for name in ("x", "weight")}
        operands["silu"] = Bool(result is not None)
        dims = (CONVOLUTION_ROWS, width)
        return Recurrence(SLOT_CONVOLUTION, out if result is None else result, state, dims, operands, update)
    raise MismatchError


def _silu_of(pieces: Pieces, value_id: int) -> int | None:
    """Return the value times its sigmoid, if the two calls that compute that are its only readers."""
    rewriter = pieces.rewriter
    calls = [rewriter.call(index) for index in rewriter.users[value_id]]
    outs = [call.outs[0] for call in calls if call is not None and call.outs]
    if len(calls) != 2 or len(outs) != 2 or value_id in rewriter.outputs:
        return None
    for gated, gate in (outs, reversed(outs)):
        try:
            pieces.match(gated, SILU, {"x": value_id, "gate": gate})
        except MismatchError:
            continue
        return gated if rewriter.only_user(gate) is not None else None
    return None


def _rows(x: Pattern, start: Pattern, end: Pattern) -> CallPattern:
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


# -- linear attention by the gated delta rule --------------------------------------------------------------------------

BY_HEADS = IntList((1, 0, 2))  # between (S, H, N) and (H, S, N)
SWAPPED, TRANSPOSED = IntList((1, 0)), IntList((0, 2, 1))


def _delta_rule(pieces: Pieces, update: int, call: Call) -> Recurrence:
    """Return the linear attention whose state a step replaces: the matrix of values by keys, (H, K, V)."""
    state, latest = call.args[:2]
    heads, key_dim, value_dim = _state(pieces, state, rank=3).dims
    tokens = pieces.tensor(pieces.rewriter.graph.inputs[0]).dims[1] + 1  # the size of the tables
    for shared in (each for each in range(1, heads + 1) if heads % each == 0):
        keys = heads // shared * key_dim
        rule = _DeltaPattern(shared, keys, 2 * keys + heads * value_dim, tokens)
        names = {"state": state}
        try:
            pieces.match(latest, rule.state, names)
            out = _after_change(pieces, pieces.of(pieces.sum_of(latest, "sum")[1], "bmm")["mat2"], rule, names)
        except MismatchError:
            continue
        _check_inputs(pieces, names)
        rule.check_tables(pieces, names)
        heads_of = {"query": (heads // shared, key_dim), "key": (heads // shared, key_dim), "value": (heads, value_dim)}
        require(all(pieces.tensor(names[name]).dims[1:] == dims for name, dims in heads_of.items()))
        require(np.isclose(pieces.number(names["scale"]), key_dim**-0.5))
        require(pieces.number(names["unit"]) == 1)
        require(bool(np.isclose(pieces.number(names["ln10"]), np.log(10))))
        require(all(pieces.tensor(names[name]).dims == (heads,) for name in ("rate", "bias")))
        kept = ("mixed", "decay", "strength", "rate", "bias")
        operands: dict[str, int | Value] = {name: names[name] for name in kept}
        operands["eps"] = Double(pieces.number(names["eps"]))
        return Recurrence(SLOT_DELTA_RULE, out, state, (heads * key_dim, value_dim), operands, update)
    raise MismatchError


def _after_change(pieces: Pieces, change: int, rule: _DeltaPattern, names: dict[str, int]) -> int:
    """Return the values (S, H, V) that are computed from the change of the state."""
    rewriter = pieces.rewriter
    for index in rewriter.users[change]:
        call = rewriter.call(index)
        for _ in range(2):  # an addition and a permutation
            user = rewriter.only_user(call.outs[0]) if call is not None else None
            call = None if user is None else user[1]
        if call is None:
            continue
        try:
            pieces.match(call.outs[0], piece("permute", self=rule.out, dims=BY_HEADS), names)
        except MismatchError:
            continue
        return call.outs[0]
    raise MismatchError


class _DeltaPattern:
    """The calls of the rule in chunks, as the builder writes them: `out` (H, S, V) and the new `state`."""

    def __init__(self, shared: int, keys: int, mixed: int, tokens: int) -> None:
        self._tokens, self._levels = tokens, (tokens - 1).bit_length()
        lower = _square("lower")
        decay = _product("rate", _softplus(_sum("decay", "bias")))
        after = piece("permute", self=piece("mm", self=lower, mat2=decay), dims=SWAPPED)
        between = _difference(_unsqueezed(after, 2), _unsqueezed(after, 1))
        decays = _product(piece("exp", self=_product(between, lower)), lower)
        since = _unsqueezed(piece("exp", self=after), 2)
        strength = _unsqueezed(piece("permute", self=piece("sigmoid", self="strength"), dims=SWAPPED), 2)
        state = _product("state", BEGUN)
        key = _keys("key", shared, keys, 2 * keys)
        query = _product(_keys("query", shared, 0, keys), "scale")
        value = piece("permute", self=_part("value", 2 * keys, mixed), dims=BY_HEADS)
        columns = piece("permute", self=key, dims=TRANSPOSED)
        inverse = self._inverse(_product(_product(_bmm(key, columns), decays), strength))
        lacking = _product(_difference(value, _product(_bmm(key, state), since)), strength)
        change = _bmm(inverse, lacking)
        attended = _bmm(_product(_bmm(query, columns), decays), change)
        self.out = _sum(_product(_bmm(query, state), since), attended)
        last = piece("minus", a=COUNT, b=Int(1))
        gained = _bmm(_product(columns, _rows(decays, last, COUNT)), change)
        self.state = _sum(_product(state, _rows(since, last, COUNT)), gained)

    def _inverse(self, a: Pattern) -> Pattern:
        inverse = _square("one")
        for level in range(self._levels):
            quarters = _product(a, _square(f"quarters{level}"))
            inverse = _difference(inverse, _bmm(inverse, _bmm(quarters, inverse)) if level else quarters)
        return inverse

    def check_tables(self, pieces: Pieces, names: dict[str, int]) -> None:
        """Require the numbers of the tables: the lower triangle, ones, and lower left quarters of squares."""
        place = np.arange(self._tokens)
        row, column = place[:, None], place[None, :]
        tables = {"lower": row >= column, "one": row == column}
        for level in range(self._levels):
            same = row >> level + 1 == column >> level + 1
            tables[f"quarters{level}"] = same & (row >> level > column >> level)
        require(all(np.array_equal(pieces.constant(names[name]), table) for name, table in tables.items()))


def _product(a: Pattern, b: Pattern) -> CallPattern:
    return piece("product", self=a, other=b)


def _sum(a: Pattern, b: Pattern) -> CallPattern:
    return piece("sum", self=a, other=b, alpha=Int(1))


def _softplus(x: Pattern) -> CallPattern:
    """Return log(1 + exp(x)), as builder/recurrent.py records it."""
    small = piece("exp", self=piece("negative", self=piece("abs", self=x)))
    return _sum(piece("relu", self=x), _product(piece("log10", self=_sum(small, "unit")), "ln10"))


def _difference(a: Pattern, b: Pattern) -> CallPattern:
    return piece("difference", self=a, other=b, alpha=Int(1))


def _bmm(a: Pattern, b: Pattern) -> CallPattern:
    return piece("bmm", self=a, mat2=b)


def _unsqueezed(x: Pattern, dim: int) -> CallPattern:
    return piece("unsqueeze", self=x, dim=Int(dim))


def _square(name: str) -> CallPattern:
    """Return the rows and columns of a table that there are tokens for."""
    rows = piece("slice", self=name, dim=Int(0), start=Int(0), end=COUNT, step=Int(1))
    return _rows(rows, Int(0), COUNT)


def _part(name: str, start: int, end: int) -> CallPattern:
    """Return a range of the columns by heads, (S, H, N)."""
    part = piece("slice", self="mixed", dim=Int(2), start=Int(start), end=Int(end), step=Int(1))
    return piece("view", name, self=part)


def _keys(name: str, shared: int, start: int, end: int) -> CallPattern:
    """Return keys of unit length, each repeated for the values that share it, (H, S, K)."""
    x = _part(name, start, end)
    squares = piece("total", self=_product(x, x), dim=IntList((-1,)), keepdim=Bool(True))
    normed = _product(x, piece("rsqrt", self=_sum(squares, "eps")))
    if shared > 1:
        normed = piece("view", self=piece("cat", tensors=(_unsqueezed(normed, 2),) * shared, dim=Int(2)))
    return piece("permute", self=normed, dims=BY_HEADS)

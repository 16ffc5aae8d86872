"""Recognize attention over a ring of the latest positions, and let it keep every position instead.

The builder writes a sliding window, or scores with a cap, as plain ops over a ring: see builder/decoder.py. A cache of
all positions, of which attention reads a window, gives the same results. A slot of such a cache can be copied,
shortened and extended by several tokens, as every other slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..graph import Bool, Double, Graph, Int, IntList, Null, SymInt, TensorSpec, ValueList
from ..graph.names import UPDATE
from .decompositions import ATTENTION, SYMINT
from .pieces import MismatchError, Pieces, require
from .rewriter import Rewriter, role_of, roles

PATTERN = {
    "permute": ("aten.permute_copy.default",),
    "select": ("aten.select_copy.int",),
    "bmm": ("aten.bmm.default",),
    "softmax": ("aten._softmax.default",),
    "sum": ("aten.add.Tensor",),
    "difference": ("aten.sub.Tensor",),
    "product": ("aten.mul.Tensor",),
    "quotient": ("aten.div.Tensor",),
    "tanh": ("aten.tanh.default",),
    "negative": ("aten.neg.default",),
    "clamp": ("aten.clamp.default",),
    "gather": ("aten.index_select.default",),
    "range": ("aten.arange.start_step",),
    "put": ("aten.index_put.default",),
    "slice": ("aten.slice_copy.Tensor",),
    "joined": ("aten.cat.default",),
    "expanded": ("aten.expand_copy.default",),
}
ROLES = roles(PATTERN)
BY_HEADS = IntList((0, 2, 1, 3))  # between (1, S, H, D) and (1, H, S, D)
TRANSPOSED = IntList((0, 2, 1))
MIN_BIAS = 1e20  # of a key outside the window: its weight is 0


class ScoreLimits(NamedTuple):
    """What limits the scores of an attention besides causality."""

    window: int | None = None  # the latest positions that a token attends to, itself included; None: all
    cap: float | None = None  # scores x become cap * tanh(x / cap)
    sinks: int | None = None  # a constant: a score of each query head that joins its softmax and has no value


class UnrolledRings(NamedTuple):
    """A graph in which attention over rings reads a cache of all positions.

    Its calls are those of attention without limits: `limits` has what they leave out, by their results.
    """

    graph: Graph
    limits: Mapping[int, ScoreLimits]


def unroll_rings(graph: Graph) -> UnrolledRings:
    """Replace attention over rings by attention over caches of all positions."""
    rewriter = Rewriter(graph)
    limits: dict[int, ScoreLimits] = {}
    if rewriter.is_straight_line:
        matched = [attention for index in range(len(graph.steps)) if (attention := _match(rewriter, index)) is not None]
        starts: dict[int, int] = {}  # by the ring of keys
        for attention in _only_readers(rewriter, matched):
            _unroll(rewriter, attention, starts)
            limits[attention.out] = attention.limits
        rewriter.drop_unread(ROLES)
    return UnrolledRings(rewriter.result(), limits)


class _Write(NamedTuple):
    """How the new rows of keys or values enter a ring."""

    ring: int
    written: int  # the ring with the new rows
    new: int  # (1, S, H, D)
    places: int  # the positions of the tokens, (S,)
    steps: tuple[int, int]


def _match(rewriter: Rewriter, index: int) -> _RingAttention | None:
    """Return the attention over a ring whose result step `index` computes."""
    call = rewriter.call(index)
    if call is None or role_of(call, ROLES) != "permute":
        return None
    try:
        return _RingAttention(Pieces(rewriter, ROLES), call.outs[0], index)
    except MismatchError:
        return None


def _only_readers(rewriter: Rewriter, matched: Sequence[_RingAttention]) -> list[_RingAttention]:
    """Return the attentions over rings that no other call reads."""
    readers = Counter(tuple(write.written for write in each.writes) for each in matched)

    def is_whole(each: _RingAttention) -> bool:
        count = readers[tuple(write.written for write in each.writes)]
        return all(len(rewriter.users[write.written]) == count + 1 for write in each.writes)  # and the assignment

    return [each for each in matched if is_whole(each)]


def _unroll(rewriter: Rewriter, attention: _RingAttention, starts: dict[int, int]) -> None:
    """Replace an attention over rings. The first that reads a ring removes the write into it."""
    key, value = attention.writes
    origin = rewriter.graph.steps[attention.step].origin
    if key.ring not in starts:
        for write in attention.writes:
            spec = rewriter.values[write.ring]
            assert isinstance(spec, TensorSpec)
            _, heads, _, width = spec.dims
            dims = (1, attention.context, heads, width)
            rewriter.values[write.ring] = replace(spec, dims=dims, constant=None, mutable=True, shared=None)
            for step in write.steps:
                rewriter.drop(step)
        starts[key.ring] = rewriter.add(SymInt())
        start = rewriter.make(SYMINT, (starts[key.ring],), origin, x=attention.first, dim=Int(0), index=Int(0))
        rewriter.replace([], start, key.steps[0])
    joined = rewriter.make(
        ATTENTION,
        (attention.out,),
        origin,
        query=attention.query,
        key=key.new,
        value=value.new,
        key_cache=key.ring,
        value_cache=value.ring,
        start_pos=starts[key.ring],
        drpout_p=Double(0.0),
        is_causal=Bool(True),
        scale=Double(attention.scale),
    )
    rewriter.replace([attention.step], joined, attention.step)


class _RingAttention:
    """The parts of an attention over a ring, from its result backwards."""

    def __init__(self, pieces: Pieces, out: int, step: int) -> None:
        self._pieces = pieces
        self.out, self.step = out, step
        weighted = pieces.of(pieces.unviewed(pieces.permuted(out, BY_HEADS)), "bmm")
        scored, sinks = self._without_sinks(pieces.unviewed(weighted["self"]))
        scores, mask = pieces.sum_of(scored, "sum")
        scores, cap = self._uncapped(pieces.unviewed(scores))
        scores, self.scale = pieces.scaled(scores)
        product = pieces.of(scores, "bmm")
        self.query = pieces.permuted(product["self"], BY_HEADS)
        self.key = self._write(pieces.permuted(product["mat2"], TRANSPOSED))
        self.value = self._write(weighted["mat2"])
        self.context, window = self._window(mask)
        self.limits = ScoreLimits(None if window >= self.context else window, cap, sinks)
        self.first = self._first()

    @property
    def writes(self) -> tuple[_Write, _Write]:
        return self.key, self.value

    def _without_sinks(self, weights: int) -> tuple[int, int | None]:
        """Return the scores of keys whose softmax gives their weights, and the sinks beside them."""
        pieces, values = self._pieces, self._pieces.rewriter.values
        producer = pieces.rewriter.producer(weights)
        if role_of(producer[1] if producer is not None else None, ROLES) != "slice":
            softmax = pieces.of(weights, "softmax")
            require(values[softmax["dim"]] == Int(-1))
            return softmax["self"], None
        part = pieces.of(weights, "slice")
        rows = pieces.tensor(weights).dims[2]
        require([values[part[name]] for name in ("dim", "start", "end", "step")] == [Int(2), Int(0), Int(rows), Int(1)])
        softmax = pieces.of(part["self"], "softmax")
        joined = pieces.of(softmax["self"], "joined")
        require(values[softmax["dim"]] == values[joined["dim"]] == Int(-1))
        scores, expanded = pieces.rewriter.flatten([joined["tensors"]])
        sinks = pieces.constant_of(pieces.of(expanded, "expanded")["self"])
        require(pieces.tensor(sinks).dims == (pieces.tensor(scores).dims[0], 1, 1))
        return scores, sinks

    def _uncapped(self, scores: int) -> tuple[int, float | None]:
        """Return scores before their cap, and the cap."""
        pieces = self._pieces
        factor = pieces.of(scores, "product")["self"]
        producer = pieces.rewriter.producer(factor)
        if role_of(producer[1] if producer is not None else None, ROLES) != "tanh":
            return scores, None
        tanh, cap = pieces.scaled(scores)
        quotient = pieces.of(pieces.of(tanh, "tanh")["self"], "quotient")
        require(pieces.number(quotient["other"]) == cap > 0)
        return quotient["self"], cap

    def _write(self, rows: int) -> _Write:
        """Return how a ring gets its new rows, of the rows (H, R, D) that attention reads."""
        pieces, rewriter = self._pieces, self._pieces.rewriter
        selected = pieces.of(rows, "select")
        require(all(rewriter.values[selected[name]] == Int(0) for name in ("dim", "index")))
        written = selected["self"]
        put = pieces.of(written, "put")
        ring, indices = put["self"], rewriter.values[put["indices"]]
        if not isinstance(indices, ValueList) or len(indices.ids) != 3:
            raise MismatchError
        require(all(rewriter.values[axis] == Null() for axis in indices.ids[:2]))
        require(rewriter.values[put["accumulate"]] == Bool(False) and len(pieces.tensor(ring).dims) == 4)
        at, users = rewriter.producers[written][0], rewriter.users[ring]
        assigns = [
            step
            for step in rewriter.users[written]
            if (user := rewriter.call(step)) is not None and user.name == UPDATE
        ]
        require(len(assigns) == 1 and rewriter.producers[ring] == assigns and set(users) == {at, *assigns})
        places, positions = pieces.rows(indices.ids[2], "gather")
        require(np.array_equal(places, np.arange(len(places)) % pieces.tensor(ring).dims[2]))
        return _Write(ring, written, pieces.permuted(put["values"], BY_HEADS), positions, (at, assigns[0]))

    def _window(self, mask: int) -> tuple[int, int]:
        """Return the positions that there are, and how many of them a token attends to."""
        pieces, (rows, tokens) = self._pieces, (self._ring_rows, self._tokens)
        excess, hidden = pieces.scaled(mask)
        back, distance = pieces.sum_of(pieces.clamped(excess, "clamp", None, 0), "difference")
        ahead, whole = pieces.sum_of(distance, "sum")
        wrapped, around = pieces.scaled(whole)
        require(pieces.of(pieces.clamped(wrapped, "clamp", 0, 1), "negative")["self"] == ahead)
        place, row = pieces.sum_of(ahead, "difference")
        place_of, places = pieces.rows(place, "gather")
        reach, also = pieces.rows(back, "gather")
        require({places, also, self.key.places, self.value.places} == {places})
        every = np.arange(len(place_of))
        window = int(reach.max(initial=0)) + 1
        require(np.array_equal(place_of.reshape(-1), every % rows))
        require(np.array_equal(reach.reshape(-1), np.minimum(every, window - 1)))
        require(np.array_equal(pieces.constant(row).reshape(-1), np.arange(rows)))
        # A ring that is too short for a window and the tokens of a call would hide positions.
        require(around == rows >= min(len(every), window + tokens - 1) and hidden >= MIN_BIAS)
        return len(every), window

    @property
    def _ring_rows(self) -> int:
        return self._pieces.tensor(self.key.ring).dims[2]

    @property
    def _tokens(self) -> int:
        """Return the most tokens of a call."""
        return self._pieces.tensor(self.query).dims[1]

    def _first(self) -> int:
        """Return the tensor with the position of the first token, which the others follow."""
        pieces = self._pieces
        first, steps = pieces.sum_of(self.key.places, "sum")
        numbers = pieces.of(steps, "range")
        values = pieces.rewriter.values
        require(values[numbers["start"]] == Int(0) and values[numbers["step"]] == Int(1))
        require(pieces.tensor(first).dims == (1,) and first in pieces.rewriter.graph.inputs)
        return first

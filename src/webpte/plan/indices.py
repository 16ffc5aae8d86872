"""Positions that index tensors: refused if they are outside, as PyTorch refuses them.

An op declares what its positions index (`OpTraits.indexing`). There are three cases:

- Positions that the host has, and sums and multiples of them, become guards of a schedule: no call starts with wrong
  ones. `Positions` follows them from inputs, constants and results of the CPU through the graph.
- Positions whose range proves that they are inside need nothing.
- All others are computed on the device. A `webpte.index_check` before the call makes the method raise afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import RangeError
from ..graph import (
    CHECK_FLAGS,
    Bool,
    Call,
    DType,
    Graph,
    Int,
    Jump,
    Null,
    Step,
    String,
    TensorSpec,
    Value,
    normalize_dim,
)
from ..graph.expressions import Extreme, Term, added, scaled
from ..graph.names import INDEX_CHECK
from ..lowering import Context, Frame, Op, find, gpu_op, mutated_values, overload
from ..lowering.integers import BITS32, BITS64, Range
from .integers import INTEGERS, IntegerRanges, arguments_of, changing, constant_range, facts_of

MAX_SOURCES = 4  # of a position; exporters add a start and a range
MAX_CONSTANT_BYTES = 1 << 20  # that are read; the codes of weights are integers too


@dataclass(frozen=True, slots=True)
class Lookup:
    """A dim of a tensor that a call indexes."""

    index: int  # the positions
    tensor: int
    dim: int
    from_end: bool


def lookups_of(op: Op, call: Call, graph: Graph) -> Iterator[Lookup]:
    """Yield what a call indexes. Masks are not positions."""
    indexing = op.traits.indexing
    if indexing is None:
        return
    arguments = op.shared_arguments(call)
    tensor = arguments[indexing.tensor]
    members = graph.flatten([arguments[indexing.index]])
    dims: Sequence[int] = range(len(members))
    if not isinstance(graph.values[arguments[indexing.index]], TensorSpec):
        pass
    elif isinstance(indexing.dim, int):
        dims = [indexing.dim]
    else:
        number = graph.values[arguments[indexing.dim]]
        dims = [number.value] if isinstance(number, Int) else []
    rank = len(graph.tensor(tensor).dims)
    for index, dim in zip(members, dims, strict=False):
        spec = graph.values[index]
        if isinstance(spec, Null) or (isinstance(spec, TensorSpec) and spec.host_dtype in (DType.BOOL, DType.UINT8)):
            continue
        if -max(rank, 1) <= dim < max(rank, 1):  # else the lowering refuses the call
            yield Lookup(index, tensor, normalize_dim(dim, rank), indexing.from_end)


def limits(dims: Sequence[int], lookup: Lookup) -> Range:
    """Return the positions that a tensor with these dims has. One without dims has a single element."""
    size = dims[lookup.dim] if dims else 1
    return Range(-size if lookup.from_end else 0, size - 1)


# -- what is known of positions before a method runs -------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """Integers whose least and greatest are sums: of multiples of those of tensors on the host, and of numbers."""

    sources: tuple[tuple[int, int], ...]  # tensor, factor
    low: int
    high: int

    @property
    def uniform(self) -> int | None:
        """Return the number that all of them are."""
        return self.low if not self.sources and self.low == self.high else None

    def plus(self, other: Interval, factor: int) -> Interval:
        scaled = other.times(factor)
        return Interval((*self.sources, *scaled.sources), self.low + scaled.low, self.high + scaled.high)

    def times(self, factor: int) -> Interval:
        low, high = sorted((self.low * factor, self.high * factor))
        return Interval(tuple((tensor, by * factor) for tensor, by in self.sources), low, high)

    def extreme(self, greatest: bool) -> Term:
        """Return the term of their least or greatest."""
        term: Term = self.high if greatest else self.low
        for tensor, factor in self.sources:
            term = added(term, scaled(Extreme(tensor, greatest == (factor > 0)), factor))
        return term


class Positions:
    """What is known of the integers of a graph before passes rewrite it. Passes keep the ids of values."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ranges = IntegerRanges(graph, {})
        self._intervals: dict[int, Interval] = {}
        self._own_negatives: set[int] = set()  # positions of which some op has numbers below 0 to itself
        self._changing = _rewritten(graph)
        has_lookups = any(op.traits.indexing for op in map(find, graph.calls) if op is not None)
        if has_lookups:
            self._follow()

    def interval(self, value_id: int) -> Interval | None:
        return self._intervals.get(value_id)

    def range(self, value_id: int) -> Range | None:
        return self._ranges.of(value_id)

    def lowest(self, lookup: Lookup, low: int) -> int | None:
        """Return the lowest position that is allowed; None if numbers below 0 are not positions."""
        return None if lookup.index in self._own_negatives else low

    def check_key(self, lookup: Lookup, graph: Graph) -> object:
        """Return what checks of equal positions in tensors of equal dims share; None if they have to be repeated."""
        spec = graph.tensor(lookup.tensor)
        if lookup.index in self._changing or any(isinstance(step, Jump) for step in graph.steps):
            return None
        return (lookup.index, spec.dims if _is_fixed(spec, graph) else lookup.tensor, lookup.dim, lookup.from_end)

    def _follow(self) -> None:
        for value_id, value in enumerate(self._graph.values):
            if isinstance(value, TensorSpec) and value.host_dtype in INTEGERS and value_id not in self._changing:
                self._begin(value_id, value)
        for call in self._graph.calls:
            op = overload(call)
            if op is not None and op.traits.own_negatives is not None:
                self._own_negatives.add(op.shared_arguments(call)[op.traits.own_negatives])
            self._call(call)

    def _begin(self, value_id: int, spec: TensorSpec) -> None:
        if value_id in self._graph.inputs:
            self._intervals[value_id] = Interval(((value_id, 1),), 0, 0)
        elif (constant := spec.constant) is not None and not spec.mutable and constant.nbytes <= MAX_CONSTANT_BYTES:
            values = constant_range(constant)
            self._intervals[value_id] = Interval((), values.low, values.high)
            self._ranges.record(value_id, values)

    def _call(self, call: Call) -> None:
        outs = [out for out in call.outs if self._is_integer(out) and out not in self._changing]
        if not outs:
            return
        on_device = gpu_op(call, self._graph) is not None
        limit = BITS32 if on_device else BITS64
        exact = self._ranges.exact(call, limit)
        known = self._ranges.moved(call, limit) if exact is None else exact.cut(limit)
        for out in outs:
            self._ranges.record(out, known)
        interval = self._computed(call) if len(outs) == 1 else None
        if interval is None and not on_device:
            interval = Interval(((outs[0], 1),), 0, 0) if len(outs) == 1 else None
        if interval is not None and len(interval.sources) <= MAX_SOURCES:
            self._intervals[outs[0]] = interval

    def _computed(self, call: Call) -> Interval | None:
        """Return the results of a call that copies, adds or multiplies; None if they are not known exactly."""
        facts, arguments = facts_of(call), arguments_of(call)
        if facts.whole:
            return self._operand(arguments.get(facts.moves[0]))
        check = facts.check
        if check is None:
            return None
        first, second = (self._operand(arguments.get(name or "")) for name in (check.first, check.second))
        if check.is_conversion:
            return first if self._is_integer(arguments[check.first or ""]) else None
        if first is None or second is None:
            return None
        if check.is_sum and self._independent(call, arguments, check.first, check.second):
            return first.plus(second, check.sign * self._factor(arguments, check.alpha))
        if check.is_product:
            factor, other = (second.uniform, first) if second.uniform is not None else (first.uniform, second)
            return None if factor is None else other.times(factor)
        return None

    def _factor(self, arguments: Mapping[str, int], alpha: str | None) -> int:
        known = self._operand(arguments.get(alpha)) if alpha is not None else None
        return 1 if known is None or known.uniform is None else known.uniform

    def _operand(self, value_id: int | None) -> Interval | None:
        if value_id is None:
            return None
        value = self._graph.values[value_id]
        if isinstance(value, (Int, Bool)):
            return Interval((), int(value.value), int(value.value))
        return self._intervals.get(value_id)

    def _independent(self, call: Call, arguments: Mapping[str, int], first: str | None, second: str | None) -> bool:
        """Return whether the least of a sum is the sum of the least: every element meets every other."""
        operands = [arguments[name] for name in (first, second) if name is not None]
        if any((known := self._operand(operand)) is not None and known.uniform is not None for operand in operands):
            return True
        sizes = [self._graph.tensor(operand).dims for operand in operands]
        aligned = zip(*(reversed(dims) for dims in sizes), strict=False)
        return all(1 in pair for pair in aligned)

    def _is_integer(self, value_id: int) -> bool:
        value = self._graph.values[value_id]
        return isinstance(value, TensorSpec) and value.host_dtype in INTEGERS


def _rewritten(graph: Graph) -> frozenset[int]:
    """Return the values that are not the same throughout a call of the method."""
    written = Counter(out for call in graph.calls for out in (*call.outs, *mutated_values(call, graph)))
    if not any(isinstance(step, Jump) for step in graph.steps):
        return changing(graph) | {v for call in graph.calls for v in mutated_values(call, graph)}
    return changing(graph) - {v for v in graph.inputs if not written[v]}


def refuse_positions(call: Call, graph: Graph, tensors: Mapping[int, np.ndarray[Any, Any]]) -> None:
    """Raise RangeError if a call that the CPU runs has positions outside of a tensor."""
    op = find(call)
    for lookup in () if op is None else lookups_of(op, call, graph):
        dims, positions = tensors[lookup.tensor].shape, tensors[lookup.index]
        allowed = limits(dims, lookup)
        wrong = positions[(positions < allowed.low) | (positions > allowed.high)]
        if wrong.size:
            expected = _expected(allowed, lookup.dim, dims)
            raise RangeError(f"{call.name} ({call.origin}): {expected}, got {wrong[0]}", code="position")


# -- guards and checks -------------------------------------------------------------------------------------------------


def add_guards(context: Context, lookups: Sequence[Lookup], positions: Positions, frame: Frame) -> None:
    """Add the guards of a call's positions to its lowering."""
    for lookup in lookups:
        interval = positions.interval(lookup.index)
        index, tensor = frame.tensors[lookup.index], frame.tensors[lookup.tensor]
        if interval is None or not index.numel:
            continue
        allowed = limits(tensor.dims, lookup)
        message = f"{_expected(allowed, lookup.dim, list(tensor.dims))}, got {{0}}"
        low = positions.lowest(lookup, allowed.low)
        if low is not None and (interval.sources or interval.low < low):
            context.guard(interval.extreme(False), low, None, message)
        if interval.sources or interval.high > allowed.high:
            context.guard(interval.extreme(True), None, allowed.high + 1, message)


def _expected(allowed: Range, dim: int, dims: Sequence[int]) -> str:
    return f"expected positions from {allowed.low} to {allowed.high} for dim {dim} of {list(dims)}"


def check_positions(graph: Graph, positions: Positions) -> Graph:
    """Return the graph with a check before each call whose positions the device computes."""
    if any(call.name == INDEX_CHECK for call in graph.calls):  # a plan's own graph, planned again
        return graph
    values, steps, starts = list(graph.values), list[Step](), list[int]()
    done: set[object] = set()
    for step in graph.steps:
        starts.append(len(steps))
        if isinstance(step, Call) and (op := gpu_op(step, graph)) is not None:
            for lookup in lookups_of(op, step, graph):
                key = positions.check_key(lookup, graph)
                if key not in done and not _is_known(lookup, graph, positions):
                    steps.append(_check(step, lookup, values))
                    done.update(() if key is None else (key,))
        steps.append(step)
    starts.append(len(steps))
    if len(steps) == len(graph.steps):
        return graph
    moved = tuple(replace(s, target=starts[s.target]) if isinstance(s, Jump) else s for s in steps)
    return replace(graph, values=tuple(values), steps=moved)


def _is_known(lookup: Lookup, graph: Graph, positions: Positions) -> bool:
    """Return whether a guard checks the positions, or their range is inside the dim at every size."""
    if positions.interval(lookup.index) is not None:
        return True
    known, spec = positions.range(lookup.index), graph.tensor(lookup.tensor)
    return known is not None and _is_fixed(spec, graph) and known.within(limits(spec.dims, lookup))


def _is_fixed(spec: TensorSpec, graph: Graph) -> bool:
    """Return whether a tensor has the same dims in every call."""
    return spec.stored or not any(
        isinstance(value := graph.values[i], TensorSpec) and value.dynamic for i in graph.inputs
    )


def _check(call: Call, lookup: Lookup, values: list[Value]) -> Call:
    def add(value: Value) -> int:
        values.append(value)
        return len(values) - 1

    numbers = (add(Int(lookup.dim)), add(Bool(lookup.from_end)), add(String(call.name)))
    out = add(TensorSpec(DType.INT32, (CHECK_FLAGS,), DType.INT32))
    return Call(INDEX_CHECK, (lookup.index, lookup.tensor, *numbers), (out,), call.origin)


def check_message(graph: Graph, check: Call) -> str:
    """Return the message of a check that failed; {0} is the position."""
    dim, name = (graph.values[value_id] for value_id in (check.args[2], check.args[4]))
    from_end = graph.values[check.args[3]]
    assert isinstance(dim, Int) and isinstance(name, String) and isinstance(from_end, Bool)
    dims = graph.tensor(check.args[1]).dims
    lookup = Lookup(check.args[0], check.args[1], dim.value, from_end.value)
    expected = _expected(limits(dims, lookup), dim.value, dims)
    return f"{name.value} ({check.origin}): {expected}, got {{0}}, which the device computed"

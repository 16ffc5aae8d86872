"""How large integers can get: an interval for every integer of a graph, from its constants, bounds and literals.

What an op would give in integers without end is followed for the few ops that say so (lowering.integers). Everything
else moves, selects or indexes: its results fit where its operands do.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..graph import Bool, Call, Constant, Double, DType, Graph, Int, Jump, SymBool, TensorSpec
from ..lowering import NO_INTEGERS, Integers, overload
from ..lowering.integers import BITS32, BITS64, Range

_TRUTH = Range(0, 1)
_OF_DTYPE = {DType.BOOL: _TRUTH, DType.UINT8: Range(0, 255), DType.INT8: Range(-128, 127), DType.INT64: BITS64}
INTEGERS = frozenset({DType.INT32, *_OF_DTYPE})


def range_of(dtype: DType) -> Range:
    """What an integer dtype holds."""
    return _OF_DTYPE.get(dtype, BITS32)


def facts_of(call: Call) -> Integers:
    """What a call does to integers."""
    found = overload(call)
    return NO_INTEGERS if found is None else found.facts.of_integers


def arguments_of(call: Call) -> dict[str, int]:
    """The values that a call passes, by the names that facts have for them."""
    found = overload(call)
    return {} if found is None else found.shared_arguments(call)


def constant_range(constant: Constant) -> Range:
    array = constant.array((-1,))
    return Range(int(array.min()), int(array.max())) if array.size else Range(0, 0)


class Ranges:
    """The ranges of one graph's values, told call by call in order."""

    def __init__(self, graph: Graph, constants: Mapping[int, Range]) -> None:
        self.graph = graph
        self._known: dict[int, Range] = dict(constants)
        self._changing = changing(graph)

    def of(self, value_id: int) -> Range | None:
        """None for what is no integer."""
        value = self.graph.values[value_id]
        if isinstance(value, (Int, Bool)):
            return Range(int(value.value), int(value.value))
        if isinstance(value, Double):  # the exporter writes 1 as 1.0 where it has that already
            return Range(int(value.value), int(value.value)) if value.value.is_integer() else None
        if isinstance(value, TensorSpec):
            if value.host_dtype not in INTEGERS:
                return None
            return self._known.get(value_id, range_of(value.host_dtype))
        return _TRUTH if isinstance(value, SymBool) else self._known.get(value_id, BITS32)

    def tell(self, value_id: int, found: Range) -> None:
        if value_id not in self._changing:
            self._known[value_id] = found

    def exact(self, call: Call, limit: Range) -> Range | None:
        """What a call would give in integers without end, its operands being within `limit`.

        None for a call that is no arithmetic.
        """
        facts = facts_of(call)
        if facts.exact is None:
            return None
        found = facts.exact(_Operands(self, call, arguments_of(call), limit))
        return BITS64 if found is None else found

    def moved(self, call: Call, limit: Range) -> Range:
        """The range of integers that a call takes from its operands as they are."""
        moves = facts_of(call).moves
        if not moves:
            return limit
        arguments = arguments_of(call)
        chosen = self.graph.flatten([arguments[name] for name in moves if name in arguments])
        ranges = [r.cut(limit) for r in map(self.of, chosen) if r is not None]
        return Range(min(r.low for r in ranges), max(r.high for r in ranges)) if ranges else limit


def changing(graph: Graph) -> frozenset[int]:
    """Values that are not the same all through a method: state, and what several calls write."""
    counts: dict[int, int] = dict.fromkeys(graph.inputs, 1)
    for call in graph.calls:
        for out in call.outs:
            counts[out] = counts.get(out, 0) + 1
    jumps = any(isinstance(step, Jump) for step in graph.steps)
    kept = {i for i, value in enumerate(graph.values) if isinstance(value, TensorSpec) and value.mutable}
    return frozenset({i for i, count in counts.items() if count > 1 or jumps} | kept)


class _Operands:
    """What a rule looks at: lowering.integers.Operands."""

    def __init__(self, ranges: Ranges, call: Call, arguments: Mapping[str, int], limit: Range) -> None:
        self._ranges = ranges
        self._call = call
        self._arguments = arguments
        self._limit = limit

    def range(self, name: str) -> Range | None:
        found = self._ranges.of(self._arguments[name]) if name in self._arguments else None
        return None if found is None else found.cut(self._limit)

    def literal(self, name: str) -> int | None:
        value = self._ranges.graph.values[self._arguments[name]] if name in self._arguments else None
        return value.value if isinstance(value, Int) else None

    def dims(self, name: str) -> tuple[int, ...]:
        return self._ranges.graph.tensor(self._arguments[name]).dims

    def made(self) -> tuple[int, ...]:
        return self._ranges.graph.tensor(self._call.outs[0]).dims

"""How large integers can get: an interval for every integer of a graph, from its constants, bounds and literals.

What an op would give in integers without end is followed for the few ops that make larger numbers of smaller ones.
Everything else moves, selects or indexes: its results fit where its operands do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..graph import Bool, Call, Constant, Double, DType, Graph, Int, Jump, SymBool, TensorSpec, ValueList, numel


class Range(NamedTuple):
    low: int
    high: int

    def within(self, other: Range) -> bool:
        return other.low <= self.low and self.high <= other.high

    def cut(self, other: Range) -> Range:
        """Of this range what lies in the other; all of that where nothing does."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Range(low, high) if low <= high else other


BITS32 = Range(-(2**31), 2**31 - 1)
BITS64 = Range(-(2**63), 2**63 - 1)
_TRUTH = Range(0, 1)
_OF_DTYPE = {DType.BOOL: _TRUTH, DType.UINT8: Range(0, 255), DType.INT8: Range(-128, 127), DType.INT64: BITS64}
INTEGERS = frozenset({DType.INT32, *_OF_DTYPE})


def range_of(dtype: DType) -> Range:
    """What an integer dtype holds."""
    return _OF_DTYPE.get(dtype, BITS32)


def base_name(name: str) -> str:
    """`add` of `aten.add.Tensor`, of `aten::add.out` and of a delegate's `add`, which is Python's."""
    if "::" in name:
        return name.partition("::")[2].partition(".")[0]
    parts = name.split(".")
    return parts[1] if len(parts) > 2 or parts[0] == "webpte" else parts[0]


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
        rule = _RULES.get(base_name(call.name))
        if rule is None:
            return None
        flat = self.graph.flatten(call.args)
        found = rule(_Operands(self.graph, call, [r and r.cut(limit) for r in map(self.of, flat)]))
        return BITS64 if found is None else found

    def moved(self, call: Call, limit: Range) -> Range:
        """The range of integers that a call takes from its operands as they are."""
        base = base_name(call.name)
        if base not in _MOVES:
            return limit
        ids = [a for a in self.graph.flatten(call.args) if isinstance(self.graph.values[a], TensorSpec)]
        chosen = ids[_MOVES[base]]
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
    """What a rule looks at."""

    def __init__(self, graph: Graph, call: Call, ranges: Sequence[Range | None]) -> None:
        self.graph = graph
        self.call = call
        self.ranges = ranges

    def __getitem__(self, position: int) -> Range | None:
        return self.ranges[position] if position < len(self.ranges) else None

    def dims(self, value_id: int) -> tuple[int, ...]:
        return self.graph.tensor(value_id).dims

    def count(self) -> int:
        """How many elements go into one, at most."""
        given, made = numel(self.dims(self.call.args[0])), numel(self.dims(self.call.outs[0]))
        return max(given if base_name(self.call.name) == "cumsum" else -(-given // max(made, 1)), 1)


Rule = Callable[[_Operands], Range | None]


def _corners(a: Range, b: Range, function: Callable[[int, int], int]) -> Range:
    found = [function(x, y) for x in a for y in b]
    return Range(min(found), max(found))


def _sum_of(operands: _Operands, sign: int, swapped: bool = False) -> Range | None:
    a, b, alpha = operands[0], operands[1], operands[2] or Range(1, 1)
    if a is None or b is None:
        return None
    if swapped:
        a, b = b, a
    scaled = _corners(b, alpha, lambda x, y: sign * x * y)
    return Range(a.low + scaled.low, a.high + scaled.high)


def _product(operands: _Operands) -> Range | None:
    a, b = operands[0], operands[1]
    return None if a is None or b is None else _corners(a, b, lambda x, y: x * y)


def _power(operands: _Operands) -> Range | None:
    a, b = operands[0], operands[1]
    if a is None or b is None or b.high > 64:
        return None
    size = max(abs(a.low), abs(a.high), 1) ** max(b.high, 0)
    return Range(-size, size)


def _quotient(operands: _Operands) -> Range | None:
    """Of whole numbers: larger than the dividend only where it is the smallest and the divisor -1."""
    a, b = operands[0], operands[1]
    if a is None or b is None or b.low <= 0 <= b.high:
        return None
    size = max(abs(a.low), abs(a.high))
    return a if b.low > 0 else Range(-size, size)


def _total(operands: _Operands) -> Range | None:
    a, count = operands[0], operands.count()
    return None if a is None else Range(min(a.low, a.low * count, 0), max(a.high, a.high * count, 0))


def _negated(operands: _Operands) -> Range | None:
    a = operands[0]
    return None if a is None else Range(-a.high, -a.low)


def _absolute(operands: _Operands) -> Range | None:
    a = operands[0]
    return None if a is None else Range(0, max(abs(a.low), abs(a.high)))


def _converted(operands: _Operands) -> Range | None:
    return operands[0]


def _number(position: int) -> Rule:
    """A tensor filled with one of the arguments, which stands behind a list of sizes or a tensor."""

    def rule(operands: _Operands) -> Range | None:
        return operands.ranges[_flat_position(operands, position)]

    return rule


def _spaced(operands: _Operands) -> Range | None:
    """Evenly spaced numbers. Where data says what they start with, each call looks whether they fit."""
    start, step = (operands.graph.values[operands.call.args[i]] for i in (0, 2))
    if not isinstance(start, Int) or not isinstance(step, Int):
        return BITS32
    last = start.value + (max(numel(operands.dims(operands.call.outs[0])), 1) - 1) * step.value
    return Range(min(start.value, last), max(start.value, last))


def _size(operands: _Operands) -> Range | None:
    dims, dim = operands.dims(operands.call.args[0]), operands[1]
    if dim is None or not -len(dims) <= dim.low < len(dims):  # which the op's lowering will refuse
        return Range(0, max(dims, default=1))
    return Range(0, dims[dim.low])


def _smaller(operands: _Operands) -> Range | None:
    a, b = operands[0], operands[1]
    return None if a is None or b is None else Range(min(a.low, b.low), min(a.high, b.high))


def _larger(operands: _Operands) -> Range | None:
    a, b = operands[0], operands[1]
    return None if a is None or b is None else Range(max(a.low, b.low), max(a.high, b.high))


def _clamped(operands: _Operands) -> Range | None:
    a, low, high = operands[0], operands[1], operands[2]
    if a is None:
        return None
    if low is not None:
        a = Range(max(a.low, low.low), max(a.high, low.high))
    return a if high is None else Range(min(a.low, high.low), min(a.high, high.high))


def _remainder(operands: _Operands) -> Range | None:
    a, b = operands[0], operands[1]
    if a is None or b is None or not b.within(BITS32):
        return None
    size = max(abs(b.low), abs(b.high), 1) - 1
    return Range(-size, size)


def _flat_position(operands: _Operands, position: int) -> int:
    values = operands.graph.values
    before = [values[a] for a in operands.call.args[:position]]
    return sum(len(value.ids) if isinstance(value, ValueList) else 1 for value in before)


_RULES: dict[str, Rule] = {
    "add": lambda operands: _sum_of(operands, 1),
    "sub": lambda operands: _sum_of(operands, -1),
    "rsub": lambda operands: _sum_of(operands, -1, swapped=True),
    "mul": _product,
    "pow": _power,
    "div": _quotient,
    "floor_divide": _quotient,
    "sum": _total,
    "cumsum": _total,
    "prod": lambda operands: None,
    "minimum": _smaller,
    "maximum": _larger,
    "clamp": _clamped,
    "remainder": _remainder,
    "fmod": _remainder,
    "arange": _spaced,
    "sym_size": _size,
    **dict.fromkeys(("zeros", "zeros_like"), lambda operands: Range(0, 0)),
    **dict.fromkeys(("ones", "ones_like"), lambda operands: Range(1, 1)),
    "neg": _negated,
    "abs": _absolute,
    "_to_copy": _converted,
    "_to_dim_order_copy": _converted,
    "scalar_tensor": _number(0),
    "full": _number(1),
    "full_like": _number(1),
}
# Ops whose results are elements of some of their tensors, and which of these.
_FIRST, _ALL, _LAST = slice(0, 1), slice(None), slice(-1, None)
_OF_ONE = """
    view_copy et_view permute permute_copy clone _clone_dim_order alias_copy detach_copy lift_fresh_copy squeeze_copy
    unsqueeze_copy expand_copy select_copy slice_copy narrow_copy split_copy split_with_sizes_copy index gather
    index_select t_copy transpose_copy flip roll repeat unbind_copy prepack amax amin
"""
_MOVES = {
    "where": slice(1, 3),
    "copy": _LAST,
    **dict.fromkeys(("cat", "stack"), _ALL),
    **dict.fromkeys(_OF_ONE.split(), _FIRST),
}

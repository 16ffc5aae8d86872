"""Rules for integers, as traits of an op: the range of its results, and how a 32-bit device detects an overflow.

    @op("aten.add.Tensor", traits=OpTraits(integers=added("self", "other", "alpha")))
    @op("aten.flip.default", traits=OpTraits(integers=elements_of("self")))

Arguments are named as the op's parameters. Without a rule, results are assumed to fit their dtype: indices, codes,
booleans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..graph import numel


class Range(NamedTuple):
    low: int
    high: int

    def within(self, other: Range) -> bool:
        return other.low <= self.low and self.high <= other.high

    def cut(self, other: Range) -> Range:
        """Return the intersection with another range, or the other range if the intersection is empty."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Range(low, high) if low <= high else other

    @property
    def size(self) -> int:
        """Return the largest magnitude."""
        return max(abs(self.low), abs(self.high))


BITS32 = Range(-(2**31), 2**31 - 1)
BITS64 = Range(-(2**63), 2**63 - 1)


class IntegerOperands(Protocol):
    """The arguments of a call, as a rule reads them."""

    def range(self, name: str) -> Range | None:
        """Return the range of an argument; None if it is not an integer, or not passed."""

    def literal(self, name: str) -> int | None:
        """Return the integer that the file has for an argument; None if it has none."""

    def dims(self, name: str) -> tuple[int, ...]:
        """Return the largest dims of a tensor."""

    def out_dims(self) -> tuple[int, ...]:
        """Return the largest dims of the result."""


Rule = Callable[[IntegerOperands], Range | None]  # None: unknown


class OverflowCheck(NamedTuple):
    """How the device detects an overflow: it computes `first` <kind> `sign` * `alpha` * `second` once more."""

    kind: str  # of `webpte.overflow`: add, mul, pow, div, cast
    first: str | None  # an argument; None is 0
    second: str | None = None
    sign: int = 1
    alpha: str | None = None

    @property
    def is_sum(self) -> bool:
        return self.kind == "add"

    @property
    def is_product(self) -> bool:
        return self.kind == "mul"

    @property
    def is_conversion(self) -> bool:
        return self.kind == "cast"


@dataclass(frozen=True)
class Integers:
    """The rule for an op that reads or writes integers."""

    exact: Rule | None = None  # the range of its results with unbounded integers; None if it is not arithmetic
    check: OverflowCheck | None = None
    moves: tuple[str, ...] = ()  # the results are elements of these arguments
    whole: bool = False  # of one argument, and of all its elements
    one_beyond: bool = False  # only the smallest integer overflows: the host is not needed
    positions: bool = False  # its numbers are positions, and the end may be any integer
    converts: bool = False  # the results have another dtype than the operands

    @property
    def named(self) -> tuple[str, ...]:
        """Return the arguments that the rule names."""
        check = (self.check.first, self.check.second, self.check.alpha) if self.check is not None else ()
        return (*self.moves, *(name for name in check if name is not None))


NO_INTEGERS = Integers()


def elements_of(*names: str, positions: bool = False) -> Integers:
    """Return the rule for results that are elements of these arguments."""
    return Integers(moves=names, positions=positions)


def all_of(name: str) -> Integers:
    """Return the rule for results with every element of this argument, each once or several times, in any order."""
    return Integers(moves=(name,), whole=True)


def position_along(name: str, dim: str) -> Integers:
    """Return the rule for positions along a dim of a tensor, or in all of it if there is no dim."""

    def rule(operands: IntegerOperands) -> Range | None:
        dims, at = operands.dims(name), operands.literal(dim)
        size = numel(dims) if at is None or not -len(dims) <= at < len(dims) else dims[at]
        return Range(0, max(size - 1, 0))

    return Integers(rule, converts=True)


def added(first: str, second: str, alpha: str | None = None, sign: int = 1, checked: bool = True) -> Integers:
    """Return the rule for first + sign * alpha * second."""

    def rule(operands: IntegerOperands) -> Range | None:
        a, b = operands.range(first), operands.range(second)
        factor = (operands.range(alpha) if alpha is not None else None) or Range(1, 1)
        if a is None or b is None:
            return None
        scaled = _corners(b, factor, lambda x, y: sign * x * y)
        return Range(a.low + scaled.low, a.high + scaled.high)

    return Integers(rule, OverflowCheck("add", first, second, sign, alpha) if checked else None)


def multiplied(first: str, second: str) -> Integers:
    return Integers(
        _pairwise(first, second, lambda a, b: _corners(a, b, lambda x, y: x * y)), OverflowCheck("mul", first, second)
    )


def powered(base: str, exponent: str) -> Integers:
    def power(a: Range, b: Range) -> Range | None:
        if b.high > 64:
            return None
        size = max(a.size, 1) ** max(b.high, 0)
        return Range(-size, size)

    return Integers(_pairwise(base, exponent, power), OverflowCheck("pow", base, exponent))


def divided(dividend: str, divisor: str) -> Integers:
    """Return the rule for integer division. Only the smallest integer divided by -1 overflows."""

    def quotient(a: Range, b: Range) -> Range | None:
        if b.low <= 0 <= b.high:
            return None
        return a if b.low > 0 else Range(-a.size, a.size)

    return Integers(_pairwise(dividend, divisor, quotient), OverflowCheck("div", dividend, divisor))


def remainder(dividend: str, divisor: str) -> Integers:
    def rest(a: Range, b: Range) -> Range | None:
        if not b.within(BITS32):
            return None
        return Range(1 - max(b.size, 1), max(b.size, 1) - 1)

    return Integers(_pairwise(dividend, divisor, rest))


def smaller(first: str, second: str) -> Integers:
    return Integers(_pairwise(first, second, lambda a, b: Range(min(a.low, b.low), min(a.high, b.high))))


def larger(first: str, second: str) -> Integers:
    return Integers(_pairwise(first, second, lambda a, b: Range(max(a.low, b.low), max(a.high, b.high))))


def clamped(name: str, low: str, high: str) -> Integers:
    def rule(operands: IntegerOperands) -> Range | None:
        a, least, most = operands.range(name), operands.range(low), operands.range(high)
        if a is None:
            return None
        if least is not None:
            a = Range(max(a.low, least.low), max(a.high, least.high))
        return a if most is None else Range(min(a.low, most.low), min(a.high, most.high))

    return Integers(rule)


def negated(name: str) -> Integers:
    return Integers(
        _of_one(name, lambda a: Range(-a.high, -a.low)), OverflowCheck("add", None, name, -1), one_beyond=True
    )


def absolute(name: str) -> Integers:
    return Integers(_of_one(name, lambda a: Range(0, a.size)), OverflowCheck("add", None, name, -1), one_beyond=True)


def converted(name: str) -> Integers:
    """Return the rule for a conversion of dtype. Integers wrap, as in PyTorch; floats are checked."""
    return Integers(_of_one(name, lambda a: a), OverflowCheck("cast", name), converts=True)


def summed(name: str, running: bool = False) -> Integers:
    """Return the rule for sums of a tensor's elements; `running` for cumulative sums."""

    def rule(operands: IntegerOperands) -> Range | None:
        a, elements, results = operands.range(name), numel(operands.dims(name)), numel(operands.out_dims())
        count = max(elements if running else -(-elements // max(results, 1)), 1)
        return None if a is None else Range(min(a.low, a.low * count, 0), max(a.high, a.high * count, 0))

    return Integers(rule)


def filled_with(number: int | str) -> Integers:
    """Return the rule for results that all equal a number or an argument."""
    if isinstance(number, int):
        return Integers(lambda operands: Range(number, number))
    return Integers(_of_one(number, lambda a: a))


def spaced(start: str, step: str) -> Integers:
    """Return the rule for evenly spaced numbers. If the start depends on data, every call checks the range."""

    def rule(operands: IntegerOperands) -> Range | None:
        first, between = operands.literal(start), operands.literal(step)
        if first is None or between is None:
            return BITS32
        last = first + (max(numel(operands.out_dims()), 1) - 1) * between
        return Range(min(first, last), max(first, last))

    return Integers(rule)


def size_of(name: str, dim: str) -> Integers:
    """Return the rule for the size of a tensor along a dim."""

    def rule(operands: IntegerOperands) -> Range | None:
        dims, at = operands.dims(name), operands.range(dim)
        if at is None or not -len(dims) <= at.low < len(dims):  # which the op's lowering will refuse
            return Range(0, max(dims, default=1))
        return Range(0, dims[at.low])

    return Integers(rule)


UNKNOWN = Integers(lambda operands: None)  # arithmetic with results of unknown range
CONVERTED = Integers(converts=True)  # not arithmetic; it sets the dtype


def _corners(a: Range, b: Range, function: Callable[[int, int], int]) -> Range:
    values = [function(x, y) for x in a for y in b]
    return Range(min(values), max(values))


def _of_one(name: str, function: Callable[[Range], Range | None]) -> Rule:
    def rule(operands: IntegerOperands) -> Range | None:
        a = operands.range(name)
        return None if a is None else function(a)

    return rule


def _pairwise(first: str, second: str, function: Callable[[Range, Range], Range | None]) -> Rule:
    def rule(operands: IntegerOperands) -> Range | None:
        a, b = operands.range(first), operands.range(second)
        return None if a is None or b is None else function(a, b)

    return rule

"""Numbers that are known only when a method is called, as terms that a plan contains and a call evaluates.

A term is a plain number or an expression over elements of tensors that are on the host, and over scalar inputs of the
method. Sums of integers have one normal form, so that `(position + tokens) - position` *is* `tokens`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import FormatError, ShapeError

Number = int | float  # or bool, which is an int


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a tensor that is on the host when the method runs, such as an input."""

    tensor: int
    index: tuple[int, ...]
    is_integer: bool

    def __str__(self) -> str:
        return f"%{self.tensor}{list(self.index)}"


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least or the greatest element of a tensor of integers that is on the host, such as an input of indices."""

    tensor: int
    greatest: bool
    is_integer = True

    def __str__(self) -> str:
        return f"{_EXTREMES[self.greatest]}(%{self.tensor})"


_EXTREMES = ("least", "greatest")


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """A scalar from the caller, a CPU kernel or an earlier stage."""

    value: int
    is_integer: bool

    def __str__(self) -> str:
        return f"%{self.value}"


@dataclass(frozen=True, slots=True)
class Sum:
    """A linear combination of integer terms, and a constant."""

    terms: tuple[tuple[Expression, int], ...]  # sorted, no factor is zero
    constant: int
    is_integer = True

    def __str__(self) -> str:
        products = [str(term) if factor == 1 else f"{factor} * {term}" for term, factor in self.terms]
        return "(" + " + ".join(products + ([str(self.constant)] if self.constant else [])) + ")"


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of FUNCTIONS."""

    function: str
    args: tuple[Term, ...]

    @property
    def is_integer(self) -> bool:
        return self.function in _ALWAYS_INTEGER or (
            self.function in _INTEGER_OF_INTEGERS and all(is_integer(argument) for argument in self.args)
        )

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.args))})"


Leaf = Element | Extreme | ScalarInput
Expression = Leaf | Sum | Apply
Term = Expression | Number


def float_bits(value: Number) -> int:
    """Return the bits of a number as f32, signed. Uniforms carry bits because WGSL may not have infinities."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.int32))


def round_to_f16(value: Number) -> float:
    """Return a number rounded to f16; beyond 65504 it is infinite."""
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def saturate(value: Number) -> int:
    """Return an integer clamped to 32 bits, for values such as INT64_MAX."""
    return 0 if math.isnan(value) else int(min(max(value, -(2**31)), 2**31 - 1))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "truediv": operator.truediv,
    "mod": operator.mod,
    "min": min,
    "max": max,
    "eq": operator.eq,
    "ne": operator.ne,
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "neg": operator.neg,
    "not": operator.not_,
    "ceil": math.ceil,
    "round": round,
    "trunc": math.trunc,
    "int": int,
    "float": float,
    "select": lambda condition, a, b: a if condition else b,
    "float_bits": float_bits,  # of an f32, as a signed integer: kernels read floats as bits
    "round_to_f16": round_to_f16,
    "saturate": saturate,
}
_DIVISIONS = ("floordiv", "truediv", "mod")
_ALWAYS_INTEGER = {"eq", "ne", "ge", "gt", "le", "lt", "not", "ceil", "round", "trunc", "int", "float_bits", "saturate"}
_INTEGER_OF_INTEGERS = {"add", "sub", "mul", "floordiv", "mod", "min", "max", "neg", "select"}
EXPRESSIONS = (Element, Extreme, ScalarInput, Sum, Apply)


def is_integer(term: Term) -> bool:
    """Return whether a term is an integer in every call."""
    return isinstance(term, int) if not isinstance(term, EXPRESSIONS) else term.is_integer


def apply(function: str, *args: Term) -> Term:
    """Return a function of terms, simplified without their values."""
    if not any(isinstance(argument, EXPRESSIONS) for argument in args):
        return _computed(function, *args)
    if all(map(is_integer, args)):
        simpler = _simplified(function, *args)
        if simpler is not None:
            return simpler
    if function == "select" and not isinstance(args[0], EXPRESSIONS):
        return args[1] if args[0] else args[2]
    return Apply(function, args)


def _computed(function: str, *args: Any) -> Number:
    if function in _DIVISIONS and args[1] == 0:
        raise ShapeError(f"{function} of {args[0]} by zero", code="division_by_zero")
    try:
        return _in_64_bits(FUNCTIONS[function](*args))
    except (ValueError, OverflowError) as error:  # an integer of a number that is not finite
        raise ShapeError(f"{function} of {', '.join(map(str, args))}: {error}", code="not_finite") from None


def _in_64_bits(number: Number) -> Number:
    """Check that an integer fits 64 bits: a chain of products must not grow without limit."""
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise ShapeError(
            f"the result is an integer of {number.bit_length()} bits, more than 64", code="integer_overflow"
        )
    return number


def _simplified(function: str, *args: Term) -> Term | None:
    """Return a simpler term for a function of integers, or None."""
    match function, args:
        case "neg", (a,):
            return scaled(a, -1)
        case (("int" | "trunc" | "ceil" | "round"), (a,)):
            return a
        case "add", (a, b):
            return added(a, b)
        case "sub", (a, b):
            return added(a, scaled(b, -1))
        case "mul", (a, b) if isinstance(b, int):
            return scaled(a, b)
        case "mul", (a, b) if isinstance(a, int):
            return scaled(b, a)
        case (("floordiv" | "mod"), (a, int(b))) if b != 0:
            return _divided(function, a, b)
        case (("eq" | "ne" | "ge" | "gt" | "le" | "lt" | "min" | "max"), (a, b)):
            return _compared(function, a, b)
    return None


def _parts(term: Term) -> tuple[dict[Expression, int], int]:
    if isinstance(term, Sum):
        return dict(term.terms), term.constant
    if isinstance(term, EXPRESSIONS):
        return {term: 1}, 0
    return {}, int(term)


def _sum(factors: Mapping[Expression, int], constant: int) -> Term:
    terms = tuple(sorted(((t, f) for t, f in factors.items() if f), key=lambda pair: str(pair[0])))
    if not terms:
        return constant
    return terms[0][0] if len(terms) == 1 and terms[0][1] == 1 and not constant else Sum(terms, constant)


def added(a: Term, b: Term) -> Term:
    """Return the sum of two integer terms."""
    factors, constant = _parts(a)
    others, further = _parts(b)
    for term, factor in others.items():
        factors[term] = factors.get(term, 0) + factor
    return _sum(factors, constant + further)


def scaled(a: Term, by: int) -> Term:
    """Return the product of an integer term and a number."""
    factors, constant = _parts(a)
    return _sum({term: factor * by for term, factor in factors.items()}, constant * by)


def _divided(function: str, a: Term, by: int) -> Term | None:
    """Return a quotient or remainder if every part except the constant is a multiple of the divisor."""
    factors, constant = _parts(a)
    if any(factor % by for factor in factors.values()):
        return None
    if function == "mod":
        return constant % by
    return _sum({term: factor // by for term, factor in factors.items()}, constant // by)


def _compared(function: str, a: Term, b: Term) -> Term | None:
    """Return the order of two terms that differ by a constant."""
    difference = added(a, scaled(b, -1))
    if isinstance(difference, EXPRESSIONS):
        return None
    if function in ("min", "max"):
        return a if (difference <= 0) == (function == "min") else b
    return _computed(function, difference, 0)


def leaves(term: Term) -> Iterator[Leaf]:
    """Yield the elements and scalars of a term, with repetitions."""
    if isinstance(term, (Element, Extreme, ScalarInput)):
        yield term
    elif isinstance(term, Sum):
        for part, _ in term.terms:
            yield from leaves(part)
    elif isinstance(term, Apply):
        for argument in term.args:
            yield from leaves(argument)


def stands_on(term: Term, inputs: Iterable[int]) -> bool:
    """Return whether a term depends only on these values."""
    sources = set(inputs)
    return all(source_of(leaf) in sources for leaf in leaves(term))


def source_of(leaf: Leaf) -> int:
    """Return the value that a leaf reads."""
    return leaf.value if isinstance(leaf, ScalarInput) else leaf.tensor


class TermEvaluator:
    """Evaluates terms with the values of one call."""

    def __init__(self, arrays: Mapping[int, np.ndarray[Any, Any]], scalars: Mapping[int, Number]) -> None:
        self._arrays = arrays
        self._scalars = scalars
        self._known: dict[Expression, Number] = {}

    def __call__(self, term: Term) -> Number:
        if not isinstance(term, EXPRESSIONS):
            return term
        number = self._known.get(term)
        if number is None:
            number = self._known[term] = self._evaluate(term)
        return number

    def _evaluate(self, term: Expression) -> Number:
        if isinstance(term, Element):
            return self._element(term)
        if isinstance(term, Extreme):
            return self._extreme(term)
        if isinstance(term, ScalarInput):
            return self._scalar(term)
        if isinstance(term, Sum):
            return _in_64_bits(term.constant + sum(int(self(part)) * factor for part, factor in term.terms))
        return self._apply(term.function, *(self(argument) for argument in term.args))

    def _element(self, term: Element) -> Number:
        try:
            number: Number = self._arrays[term.tensor][term.index].item()
        except KeyError:
            raise ShapeError(f"value {term.tensor} has no data on the host", code="no_host_data") from None
        except IndexError:
            raise ShapeError(f"value {term.tensor} has no element {list(term.index)}") from None
        return number

    def _extreme(self, term: Extreme) -> Number:
        array = self._arrays.get(term.tensor)
        if array is None or not array.size:
            raise ShapeError(f"value {term.tensor} has no data on the host", code="no_host_data")
        if array.size == 1:  # of every decode step, and faster
            return int(array.item())
        flat = array.reshape(-1)
        return int(np.maximum.reduce(flat) if term.greatest else np.minimum.reduce(flat))

    def _scalar(self, term: ScalarInput) -> Number:
        try:
            return self._scalars[term.value]
        except KeyError:
            raise ShapeError(f"scalar {term.value} is read before it is written", code="read_before_write") from None

    def _apply(self, function: str, *args: Number) -> Number:
        return _computed(function, *args)


class AssumedEvaluator(TermEvaluator):
    """Evaluates terms while a plan is made without data: elements are zero, and divisors are never zero."""

    def _element(self, term: Element) -> Number:
        return 0

    def _extreme(self, term: Extreme) -> Number:
        return 0

    def _scalar(self, term: ScalarInput) -> Number:
        return self._scalars.get(term.value, 0)

    def _apply(self, function: str, *args: Number) -> Number:
        if function in _DIVISIONS and args[1] == 0:
            args = (args[0], 1)
        return _computed(function, *args)


MAX_TERM_DEPTH = 64  # exporters write a handful of nested functions
_BEYOND = ("inf", "-inf", "nan")  # JSON has no such numbers


def number_to_json(number: Number) -> Any:
    return number if math.isfinite(number) else str(float(number))


def number_from_json(data: Any) -> Number:
    """Return a number, after a check that an integer fits 64 bits."""
    if isinstance(data, int) and -(2**63) <= data < 2**63:
        return data
    if (isinstance(data, float) and math.isfinite(data)) or (isinstance(data, str) and data in _BEYOND):
        return float(data)
    raise FormatError(f"{str(data)[:80]!r} is not a number of 64 bits")


def term_to_json(term: Term) -> Any:
    match term:
        case Element(tensor, index, is_integer):
            return ["element", tensor, list(index), is_integer]
        case Extreme(tensor, greatest):
            return [_EXTREMES[greatest], tensor]
        case ScalarInput(value, is_integer):
            return ["scalar", value, is_integer]
        case Sum(terms, constant):
            return ["sum", constant, *([factor, term_to_json(part)] for part, factor in terms)]
        case Apply(function, args):
            return [function, *map(term_to_json, args)]
    return number_to_json(term)


def term_from_json(data: Any, depth: int = MAX_TERM_DEPTH) -> Term:
    """Return a term, after checks: the file may be hostile."""
    if not isinstance(data, list):
        return number_from_json(data)
    if depth == 0:
        raise FormatError(f"the term has more than {MAX_TERM_DEPTH} levels")
    match data:
        case ["element", int(tensor), [*index], bool(is_integer)] if all(isinstance(i, int) for i in index):
            return Element(tensor, tuple(index), is_integer)
        case ["least" | "greatest" as extreme, int(tensor)]:
            return Extreme(tensor, extreme == "greatest")
        case ["scalar", int(value), bool(is_integer)]:
            return ScalarInput(value, is_integer)
        case ["sum", constant, *products]:
            return Sum(tuple(_product(product, depth - 1) for product in products), _integer(constant))
        case [str(function), *args] if function in FUNCTIONS and len(args) == _ARITY.get(function, 2):
            return Apply(function, tuple(term_from_json(argument, depth - 1) for argument in args))
    raise FormatError(f"{str(data)[:80]!r} is not a term", code="invalid_term")


_ONE = ("neg", "not", "ceil", "round", "trunc", "int", "float", "float_bits", "round_to_f16", "saturate")
_ARITY = {"select": 3} | dict.fromkeys(_ONE, 1)


def expression_from_json(data: Any) -> Expression:
    term = term_from_json(data)
    if not isinstance(term, EXPRESSIONS):
        raise FormatError(f"expected an expression, got {term!r}")
    return term


def _integer(data: Any) -> int:
    number = number_from_json(data)
    if not isinstance(number, int):
        raise FormatError(f"expected an integer, got {number!r}")
    return number


def _product(data: Any, depth: int) -> tuple[Expression, int]:
    match data:
        case [factor, inner]:
            part = term_from_json(inner, depth)
            if isinstance(part, EXPRESSIONS) and part.is_integer:
                return part, _integer(factor)
    raise FormatError(f"{str(data)[:80]!r} is not a part of a sum")

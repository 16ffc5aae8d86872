"""Numbers and terms as JSON: a term is a number, or a list whose first item says what it is."""

from __future__ import annotations

import math
from typing import Any

from ..errors import FormatError
from .expressions import EXPRESSIONS, FUNCTIONS, Apply, Element, Expression, Given, Number, Sum, Term

DEPTH = 64  # of what is believed; exporters write a handful of functions over each other
_BEYOND = ("inf", "-inf", "nan")  # JSON has no such numbers


def number_to_json(number: Number) -> Any:
    return number if math.isfinite(number) else str(float(number))


def number_from_json(data: Any) -> Number:
    """The number, checked: whole ones have 64 bits."""
    if isinstance(data, int) and -(2**63) <= data < 2**63:
        return data
    if (isinstance(data, float) and math.isfinite(data)) or (isinstance(data, str) and data in _BEYOND):
        return float(data)
    raise FormatError(f"{str(data)[:80]!r} is not a number of 64 bits")


def term_to_json(term: Term) -> Any:
    match term:
        case Element(tensor, index, whole):
            return ["element", tensor, list(index), whole]
        case Given(value, whole):
            return ["given", value, whole]
        case Sum(terms, constant):
            return ["sum", constant, *([factor, term_to_json(part)] for part, factor in terms)]
        case Apply(function, args):
            return [function, *map(term_to_json, args)]
    return number_to_json(term)


def term_from_json(data: Any, depth: int = DEPTH) -> Term:
    """The term, checked: it need not have been written by us."""
    if not isinstance(data, list):
        return number_from_json(data)
    if depth == 0:
        raise FormatError(f"a term of more than {DEPTH} levels")
    match data:
        case ["element", int(tensor), [*index], bool(whole)] if all(isinstance(i, int) for i in index):
            return Element(tensor, tuple(index), whole)
        case ["given", int(value), bool(whole)]:
            return Given(value, whole)
        case ["sum", constant, *products]:
            return Sum(tuple(_product(product, depth - 1) for product in products), _whole(constant))
        case [str(function), *args] if function in FUNCTIONS and len(args) == _ARITY.get(function, 2):
            return Apply(function, tuple(term_from_json(argument, depth - 1) for argument in args))
    raise FormatError(f"{str(data)[:80]!r} is not a term", code="invalid_term")


_ONE = ("neg", "not", "ceil", "round", "trunc", "int", "float", "float_bits", "half", "saturated")
_ARITY = {"choose": 3} | dict.fromkeys(_ONE, 1)


def expression_from_json(data: Any) -> Expression:
    term = term_from_json(data)
    if not isinstance(term, EXPRESSIONS):
        raise FormatError(f"{term!r} stands where an expression must")
    return term


def _whole(data: Any) -> int:
    number = number_from_json(data)
    if not isinstance(number, int):
        raise FormatError(f"{number!r} stands where a whole number must")
    return number


def _product(data: Any, depth: int) -> tuple[Expression, int]:
    match data:
        case [factor, inner]:
            part = term_from_json(inner, depth)
            if isinstance(part, EXPRESSIONS) and part.whole:
                return part, _whole(factor)
    raise FormatError(f"{str(data)[:80]!r} is no part of a sum")

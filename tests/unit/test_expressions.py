"""Terms: their normal form, their values in a call, and refused expressions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import webpte
from tests.support.harness.errors import raises
from webpte.graph.expressions import (
    EXPRESSIONS,
    FUNCTIONS,
    Apply,
    AssumedEvaluator,
    Element,
    ScalarInput,
    Sum,
    TermEvaluator,
    apply,
    is_integer,
    leaves,
    stands_on,
)

POSITION, LENGTH, SCALE = Element(3, (0,), True), ScalarInput(5, True), Element(4, (1, 2), False)
WHOLE = ("add", "sub", "mul", "floordiv", "mod", "min", "max", "eq", "ne", "ge", "gt", "le", "lt")


def numbers(position=7, length=3, scale=0.5):
    return TermEvaluator({3: np.array([position]), 4: np.full((2, 3), scale, np.float32)}, {5: length})


@pytest.mark.parametrize(
    ("term", "simple"),
    [
        (apply("sub", apply("add", POSITION, LENGTH), POSITION), LENGTH),
        (apply("sub", apply("add", POSITION, 5), POSITION), 5),
        (apply("add", POSITION, LENGTH), apply("add", LENGTH, POSITION)),
        (apply("add", apply("add", POSITION, 2), -2), POSITION),
        (apply("mul", POSITION, 0), 0),
        (apply("mul", 3, POSITION), Sum(((POSITION, 3),), 0)),
        (apply("neg", apply("neg", POSITION)), POSITION),
        (apply("floordiv", apply("mul", POSITION, 6), 3), Sum(((POSITION, 2),), 0)),
        (apply("floordiv", apply("add", apply("mul", POSITION, 4), 7), 4), Sum(((POSITION, 1),), 1)),
        (apply("mod", apply("add", apply("mul", POSITION, 4), 7), 4), 3),
        (apply("min", POSITION, apply("add", POSITION, 1)), POSITION),
        (apply("max", POSITION, apply("add", POSITION, 1)), apply("add", POSITION, 1)),
        (apply("lt", POSITION, apply("add", POSITION, 1)), True),
        (apply("eq", POSITION, POSITION), True),
        (apply("int", POSITION), POSITION),
        (apply("select", True, POSITION, LENGTH), POSITION),
    ],
)
def test_has_one_normal_form(term, simple):
    assert term == simple and hash(term) == hash(simple)


@pytest.mark.parametrize("function", ["add", "sub", "mul", "min", "lt"])
def test_float_sums_keep_their_order(function):
    """Their order matters: (a + b) - a need not be b, and NaN is not equal to itself."""
    assert apply(function, SCALE, SCALE) == Apply(function, (SCALE, SCALE))
    assert not is_integer(apply("add", SCALE, 1)) and is_integer(apply("int", SCALE))


def trees():
    """(a term, the same computed by Python) from plain integers and two that are known in a call only."""
    leaf = st.one_of(
        st.integers(-9, 9).map(lambda n: (n, lambda position, length: n)),
        st.just((POSITION, lambda position, length: position)),
        st.just((LENGTH, lambda position, length: length)),
    )

    def join(children):
        return st.tuples(st.sampled_from(WHOLE), children, children).filter(_divides).map(_joined)

    return st.recursive(leaf, join, max_leaves=12)


def _divides(node):
    function, _, (right, _) = node
    return function not in ("floordiv", "mod") or isinstance(right, EXPRESSIONS) or right != 0


def _joined(node):
    function, (left, a), (right, b) = node
    compute = FUNCTIONS[function]
    return apply(function, left, right), lambda p, n: compute(a(p, n), b(p, n))


@given(trees(), st.integers(-20, 20), st.integers(-20, 20))
def test_term_equals_python(tree, position, length):
    term, compute = tree
    try:
        expected = compute(position, length)
    except ZeroDivisionError:
        # What was divided may have left the term: nothing depended on it.
        return
    assert numbers(position, length)(term) == expected


def test_term_depends_on_expected_values():
    term = apply("select", apply("lt", POSITION, LENGTH), apply("add", POSITION, 1), SCALE)
    assert {*leaves(term)} == {POSITION, LENGTH, SCALE}
    assert stands_on(term, (3, 4, 5)) and not stands_on(term, (3, 4)) and stands_on(7, ())


@pytest.mark.parametrize("function", ["floordiv", "mod", "truediv"])
def test_term_division_by_zero_raises_in_call_not_in_planning(function):
    term = apply(function, LENGTH, POSITION)
    with raises(webpte.ShapeError, f"{function} of 3", code="division_by_zero"):
        numbers(position=0)(term)
    assert AssumedEvaluator({}, {5: 3})(term) == FUNCTIONS[function](3, 1)


def test_integers_have_64_bits():
    square = apply("mul", POSITION, POSITION)
    assert numbers(position=3_037_000_499)(square) == 3_037_000_499**2
    for term in (apply("mul", square, square), apply("add", square, 2**62), apply("int", apply("mul", SCALE, 1e30))):
        with raises(webpte.ShapeError, "more than 64", code="integer_overflow"):
            numbers(position=3_037_000_499)(term)
    with raises(webpte.ShapeError, "more than 64", code="integer_overflow"):
        apply("mul", 2**62, 2)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_term_int_of_non_finite_raises(value):
    with raises(webpte.ShapeError, f"int of {value}", code="not_finite"):
        numbers(scale=value)(apply("int", SCALE))


def test_term_of_missing_data_raises():
    with raises(webpte.ShapeError, "value 3 ", code="no_host_data"):
        TermEvaluator({}, {})(POSITION)
    with raises(webpte.ShapeError, "scalar 5 ", code="read_before_write"):
        TermEvaluator({}, {})(LENGTH)
    assert AssumedEvaluator({}, {})(apply("add", POSITION, LENGTH)) == 0


def test_bits_of_floats():
    assert numbers(scale=1.0)(apply("float_bits", SCALE)) == 0x3F800000
    assert numbers(scale=-0.0)(apply("float_bits", SCALE)) == -(2**31)
    assert numbers(position=1)(apply("round_to_f16", apply("float", POSITION))) == 1.0
    assert apply("round_to_f16", 1e6) == float("inf") and apply("saturate", 1e30) == 2**31 - 1
    assert apply("saturate", float("nan")) == 0

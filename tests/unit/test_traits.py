"""Traits of ops, and how passes use them: no pass has a list of ops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from webpte.errors import GraphError
from webpte.fusion import apply_passes
from webpte.fusion.dims import SymbolicDims
from webpte.graph import DType
from webpte.graph.names import COPY
from webpte.lowering import Context, Op, OpTraits, Tensor, dim_rules, op, registered, unregister
from webpte.lowering.programs import compile_program
from webpte.ops.elementwise import Formula, elementwise


@contextmanager
def toy(name: str, host_args: tuple[str, ...] = (), **traits: Any) -> Iterator[Op]:
    @op(name, host_args=host_args, traits=OpTraits(**traits))
    def lower(cx: Context, scale: float, x: Tensor, *, out: Tensor) -> None:
        raise NotImplementedError

    yield lower
    unregister(lower)


def viewing(b: GraphBuilder) -> tuple[int, int, int]:
    """x of a live length, the toy's result, and what is made of that."""
    x = b.tensor(7, 4, dynamic=True)
    y = b.tensor(7, 4)
    b.call("toy.same.default", (b.number(3), x), y)
    return x, y, b.unary(y, 7, 4, name="aten.cumsum.default")


def names(b: GraphBuilder, x: int, out: int) -> list[str]:
    return [call.name for call in apply_passes(b.graph([x], [out]), ["identities"])[0].calls]


def test_traits_view_of_user_op_dropped_where_shape_is_proven():
    b = GraphBuilder()
    x, y, out = viewing(b)
    with toy("toy.same.default", view="x", dims=dim_rules.like("x")):
        assert SymbolicDims(b.graph([x], [out])).same(x, y)
        assert names(b, x, out) == ["aten.cumsum.default"]


@pytest.mark.parametrize("traits", [{}, {"view": "x"}, {"dims": dim_rules.like("x")}])
def test_traits_single_trait_is_not_enough(traits):
    b = GraphBuilder()
    x, y, out = viewing(b)
    with toy("toy.same.default", **traits):
        assert SymbolicDims(b.graph([x], [out])).same(x, y) == ("dims" in traits)
        assert names(b, x, out) == ["toy.same.default", "aten.cumsum.default"]


def test_traits_rule_of_user_op_is_used():
    b = GraphBuilder()
    x = b.tensor(7, 4, dynamic=True)
    pair, back = b.tensor(7, 2, 4), b.tensor(7, 4)
    b.call("toy.pair.default", (b.number(3), x), pair)
    b.call("aten.select_copy.int", (pair, b.number(1), b.number(0)), back)
    with toy("toy.pair.default", dims=lambda known: [(known.dims("x")[0], 2, *known.dims("x")[1:])]):
        assert SymbolicDims(b.graph([x], [back])).same(x, back)


@pytest.mark.parametrize("traits", [{"mutates": ("y",)}, {"view": "y"}, {"identity": "cx"}, {"host_args": ("y",)}])
def test_traits_unknown_argument_is_refused(traits):
    with raises(GraphError, "scale, x", code="unknown_argument"), toy("toy.wrong", **traits):
        pass
    assert "toy.wrong" not in registered()


@pytest.mark.parametrize("fact", [{"view": "x"}, {"identity": "x"}, {"fills": "scale"}, {"elementwise": COPY}])
def test_traits_conflict_with_in_place_is_refused(fact):
    with raises(GraphError, "writes x ", code="in_place"), toy("toy.wrong", mutates=("x",), **fact):
        pass
    assert "toy.wrong" not in registered()


def test_traits_failing_rule_names_op():
    b = GraphBuilder()
    x, _, out = viewing(b)
    rule = lambda known: [known.dims("y")]  # noqa: E731
    with (
        toy("toy.same.default", dims=rule),
        raises(GraphError, "toy.same.default", "KeyError: 'y'", code="failing_rule"),
    ):
        SymbolicDims(b.graph([x], [out]))


def test_arguments_by_name():
    b = GraphBuilder()
    x, _, out = viewing(b)
    with toy("toy.same.default") as same:
        call, _ = b.graph([x], [out]).calls
        assert same.arguments(call) == {"scale": call.args[0], "x": x}


def own(name: str, code: str) -> Op:
    def describe(x: Tensor, *, out: Tensor) -> Formula:
        return Formula("f", (x,), code=code)

    return elementwise(name)(describe)


def test_traits_redefined_formula_is_used():
    """As in a notebook: programs are compiled once, but not with a formula that is gone."""
    codes = []
    for code in ("a + a", "a * a"):
        curve = own("toy.curve.default", code)
        program, _ = compile_program("f32 toy.curve.default x0\n= v0", (DType.FLOAT32,), (), ())
        codes += [step.code for step in program.own]
        unregister(curve)
    assert codes == ["a + a", "a * a"]


def test_functions_of_ones_own_have_names_of_their_own():
    """Two ops may call theirs the same."""
    ops = [own("toy.twice.default", "a + a"), own("toy.square.default", "a * a")]
    text = "f32 toy.twice.default x0\nf32 toy.square.default v0\nf32 toy.twice.default v1\n= v2"
    program, _ = compile_program(text, (DType.FLOAT32,), (), ())
    called = [program.called(step) for step in program.steps]
    assert called[0] == called[2] != called[1] and len(program.own) == 2 and program.functions == ()
    for toy_op in ops:
        unregister(toy_op)


def test_traits_views_keep_elements_and_order():
    """Not what repeats, moves or converts them."""
    views = {name for name, definition in registered().items() if definition.traits.view}
    assert {"aten.view_copy.default", "aten.clone.default", "aten.unsqueeze_copy.default"} <= views
    assert not {"aten.expand_copy.default", "aten.permute_copy.default", "aten._to_copy.default"} & views

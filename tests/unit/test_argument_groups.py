"""Arguments that belong together are one value for a lowering, and stay apart by name for everyone else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder, live
from webpte.graph import Call, DType, Origin
from webpte.lowering import FLOATS, Context, OpTraits, Tensor, TensorOption, op, registered, unregister


@dataclass(frozen=True)
class Ramp:
    scale: float
    dtype: TensorOption
    sizes: list[int]
    like: Tensor | None


SEEN: list[tuple[Ramp, Ramp]] = []


@pytest.fixture
def ramps():
    @op("toy.ramps.default", kernels=("toy::ramps.out",), dtypes=FLOATS, traits=OpTraits(mutates=("second_like",)))
    def lowering(cx: Context, x: Tensor, first: Ramp, second: Annotated[Ramp, "second_"], *, out: Tensor) -> None:
        out.dims = x.dims
        SEEN.append((first, second))
        cx.alias(out, x)

    @lowering.reference
    def _(x, first, second):
        return x * first.scale + second.scale

    SEEN.clear()
    yield lowering
    unregister(lowering)


def lower() -> None:
    """Lower a call whose first ramp has a size that comes from input data."""
    b = GraphBuilder()
    x, other, position, out = b.tensor(4), b.tensor(5), b.tensor(1, dtype=DType.INT32), b.tensor(4)
    zero, size, null = b.number(0), b.symint(), b.null()
    b.call("et_vk.select_as_symint.default", (position, zero, zero), size)
    first = (b.number(1), null, b.list(b.number(7), size), other)
    second = (b.number(2), null, b.list(b.number(3)), other)
    b.call("toy.ramps.default", (x, *first, *second), out)
    planner = b.planner([x, other, position], [out])
    dims: dict[int, tuple[int, ...]] = {x: (4,), other: (5,), position: (1,)}
    planner.prepare(planner.plan.flow.segments[0], live(dims, {position: [9]}))


def test_names_equal_schema(ramps):
    fields = ("scale", "dtype", "sizes", "like")
    assert [name for name, _ in ramps.parameters] == ["x", *fields, *(f"second_{name}" for name in fields)]
    call = Call("toy::ramps.out", tuple(range(7)), (7,), Origin(0), True)
    assert [name for name, _ in ramps.bound_parameters(call)] == [n for n, _ in ramps.parameters if "dtype" not in n]
    assert ramps.mutated(call) == (6,)


def test_argument_group_parameter_without_annotation_is_refused():
    with raises(webpte.GraphError, "toy.bare.default", "count", code="unannotated_argument"):

        @op("toy.bare.default")
        def bare(cx: Context, x: Tensor, count, *, out: Tensor) -> None:
            out.dims = x.dims


def test_argument_group_trait_of_group_is_refused():
    with raises(webpte.GraphError, "'first'", "x, scale, ", code="unknown_argument"):

        @op("toy.grouped.default", traits=OpTraits(mutates=("first",)))
        def grouped(cx: Context, x: Tensor, first: Ramp, *, out: Tensor) -> None:
            out.dims = x.dims


def test_argument_group_members_decoded_by_annotation(ramps):
    lower()
    first, second = SEEN[-1]
    assert isinstance(first.scale, float) and first.dtype is None and isinstance(first.like, Tensor)
    assert first.sizes == [7, 9]  # the second comes from input data, so it is decoded at every lowering
    assert (second.scale, second.sizes) == (2.0, [3]) and second.like is first.like


def test_argument_group_wrong_member_is_named(ramps):
    b = GraphBuilder()
    x, out, null, one = b.tensor(4), b.tensor(4), b.null(), b.number(1)
    b.call("toy.ramps.default", (x, one, null, null, null, one, null, b.list(b.number(3)), null), out)
    with raises(webpte.GraphError, "toy.ramps.default", "argument sizes", "Null", code="wrong_kind"):
        b.plan([x], [out])
    b = GraphBuilder()
    x, out, one = b.tensor(4), b.tensor(4), b.number(1)
    b.call("toy.ramps.default", (x, one), out)
    with raises(webpte.GraphError, "got 2", "9 arguments (x, scale, ", "second_like", code="wrong_arity"):
        b.plan([x], [out])


def test_argument_group_reference_takes_schema_arguments(ramps):
    compute = ramps.compute
    assert compute is not None
    assert compute(np.ones(2), 3.0, None, [], None, 4.0, None, [], None).tolist() == [7, 7]


def test_argument_group_convolution_keeps_schema_names():
    names = [name for name, _ in registered()["aten.convolution.default"].parameters]
    geometry = ["stride", "padding", "dilation", "transposed", "output_padding", "groups"]
    assert names == ["input", "weight", "bias", *geometry]
    names = [name for name, _ in registered()["et_vk.q8ta_add.default"].parameters]
    assert names[2:6] == ["input_a_scale", "input_a_zero_point", "input_b_scale", "input_b_zero_point"]

"""Elementwise ops of any shape, broadcasting and mix of dtypes; NaN and infinity; numbers taken from data."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import webpte
from tests.cases.elementwise.unary import among
from tests.support.harness.cases import OneOp, T, case, reference, run_case
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType

NAN, INFINITE = float("nan"), float("inf")
DTYPES = ("f32", "f16", "i32", "bool")
pairs = st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES))
in_order = settings(
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def shapes(draw, operands: int):
    """Return the dims of operands that broadcast together, some of them dynamic, and the live sizes of those."""
    rank = draw(st.integers(0, 5))
    bounds = [draw(st.sampled_from((1, 2, 3, 5, 7))) for _ in range(rank)]
    names = [f"d{d}" if draw(st.booleans()) else bound for d, bound in enumerate(bounds)]
    sizes = {n: (b, draw(st.integers(1, b)), 1) for n, b in zip(names, bounds, strict=True) if isinstance(n, str)}
    dims = []
    for position in range(operands):
        own = [name if position == 0 or draw(st.booleans()) else 1 for name in names]
        dims.append(tuple(own[draw(st.integers(0, rank)) if position else 0 :]))
    return draw(st.permutations(dims)), sizes


def operand(dims, dtype: str, low: float = -4, high: float = 4) -> T:
    return T(*dims, dtype=dtype, low=low, high=high)


def check(folder, name: str, args, sizes, dtypes) -> None:
    tolerance = {"atol": 2e-3, "rtol": 2e-3} if "f16" in dtypes else {}
    run_case(case(name, *args, **sizes, **tolerance), folder)


UNARY = {"abs": (-4, 4), "exp": (-4, 4), "round": (-4, 4), "sin": (-4, 4), "sqrt": (0, 9), "relu": (-4, 4)}


@in_order
@given(shape=shapes(1), name=st.sampled_from(sorted(UNARY)), dtype=st.sampled_from(("f32", "f16", "i32")))
def test_functions_of_one_operand_equal_reference(tmp_path, device, shape, name, dtype):
    ((dims,), sizes) = shape
    check(tmp_path, f"aten.{name}.default", [operand(dims, dtype, *UNARY[name])], sizes, [dtype])


BINARY = ("add.Tensor", "mul.Tensor", "maximum.default", "minimum.default")


@in_order
@given(
    shape=shapes(2), name=st.sampled_from(BINARY), dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES))
)
def test_arithmetic_of_two_operands_equals_reference(tmp_path, device, shape, name, dtypes):
    dims, sizes = shape
    rest = (1,) if name == "add.Tensor" else ()
    args = [operand(d, dtype) for d, dtype in zip(dims, dtypes, strict=True)]
    check(tmp_path, f"aten.{name}", [*args, *rest], sizes, dtypes)


QUOTIENTS = (("div.Tensor",), ("div.Tensor_mode", "floor"), ("div.Tensor_mode", "trunc"), ("remainder.Tensor",))


@in_order
@given(shape=shapes(2), op=st.sampled_from(QUOTIENTS), dtypes=st.tuples(*[st.sampled_from(("f32", "i32"))] * 2))
def test_division_equals_reference(tmp_path, device, shape, op, dtypes):
    (a, b), sizes = shape
    name, *mode = op
    args = [operand(a, dtypes[0], -99, 99), operand(b, dtypes[1], 1, 7), *mode]
    check(tmp_path, f"aten.{name}", args, sizes, dtypes)


@in_order
@given(
    shape=shapes(2),
    name=st.sampled_from(("eq", "ne", "lt", "le", "gt", "ge")),
    dtypes=pairs,
    seed=st.integers(0, 99),
)
def test_comparisons_equal_reference(tmp_path, device, shape, name, dtypes, seed):
    dims, sizes = shape
    odd = np.array([NAN, INFINITE, -INFINITE, 0.0, -0.0, 1.0, -2.0])

    def argument(d, dtype: str, offset: int) -> T:
        if dtype in ("i32", "bool"):
            return operand(d, dtype, -2, 2)
        return T(*d, dtype=dtype, make=lambda live: np.random.default_rng(seed + offset).choice(odd, live))

    args = [argument(d, dtype, i) for i, (d, dtype) in enumerate(zip(dims, dtypes, strict=True))]
    check(tmp_path, f"aten.{name}.Tensor", args, sizes, ())


@in_order
@given(shape=shapes(3), dtypes=pairs)
def test_where_any_shape_and_dtype(tmp_path, device, shape, dtypes):
    (condition, *dims), sizes = shape
    args = [operand(condition, "bool"), *(operand(d, dtype) for d, dtype in zip(dims, dtypes, strict=True))]
    check(tmp_path, "aten.where.self", args, sizes, dtypes)


ODD = T(7, make=among(NAN, INFINITE, -INFINITE, 1, -0.0, NAN, 2))
OTHER = T(7, make=among(1, NAN, 2, -INFINITE, NAN, NAN, INFINITE))
SURVIVALS = [
    case("aten.where.self", T(7, dtype="bool"), ODD, OTHER),
    case("aten.where.self", T(7, dtype="bool"), ODD, T(7, dtype="i32")),
    case("aten.minimum.default", ODD, OTHER),
    case("aten.maximum.default", ODD, OTHER),
    case("aten.clamp.default", ODD, -1, 1.5),
    case("aten.copy.default", T(3, 7), ODD, False),
    case("aten._to_copy.default", ODD, DType.FLOAT16.scalar_type, None, None, None, False, None),
    case("aten.add.Tensor", ODD, OTHER, 1),
    case("aten.pow.Tensor_Scalar", ODD, 0),
    case("aten.pow.Tensor_Scalar", T(3, make=among(-8, -0.5, 4)), 0.5),
    case("aten.fmod.Tensor", ODD, T(7, make=among(1, 0, 2, 0, INFINITE, 1, NAN))),
    *(case(f"aten.{n}.default", ODD) for n in ("abs", "neg", "sign", "relu", "tanh", "exp", "sigmoid", "round")),
]


@pytest.mark.parametrize("survival", SURVIVALS, ids=str)
def test_elementwise_nan_and_inf_propagate(survival, tmp_path, device):
    one = OneOp(survival)
    one.write(tmp_path / "case.pte")
    arrays = [t.array({}, np.random.default_rng(3)) for t in survival.tensors]
    (want,) = reference(survival, one.substitute(arrays, {}))
    with webpte.load(tmp_path / "case.pte") as program:
        (got,) = program.method().run(arrays)
    np.testing.assert_allclose(got, want.astype(got.dtype), 1e-6, 1e-6, equal_nan=True)


def test_constants_of_a_live_size(tmp_path, device):
    values: list[c.VkValue] = [c.VkTensor(DType.FLOAT32, (11, 2)), c.VkInt(0), c.VkSymInt(0), c.VkInt(3)]
    values += [c.VkValueList((2, 3)), c.VkNull(), c.VkDouble(2.5), c.VkInt(2)]
    x, zero, rows, _three, size, null, number, two = range(8)
    values += [c.VkTensor(DType.FLOAT32, (11, 3)) for _ in range(3)] + [c.VkTensor(DType.INT32, (6,))]
    outs = [8, 9, 10, 11]
    options = [null] * 4
    calls = [
        ("sym_size.int", [x, zero, rows]),
        ("aten.zeros.default", [size, *options, outs[0]]),
        ("aten.ones.default", [size, *options, outs[1]]),
        ("aten.full.default", [size, number, *options, outs[2]]),
        ("aten.arange.start_step", [zero, rows, two, *options, outs[3]]),
    ]
    simple_pte(tmp_path / "sized.pte", values, calls, [x], outs, [], dynamic=True)
    with webpte.load(tmp_path / "sized.pte") as program:
        method = program.method()
        for n in (11, 7, 2, 1, 11):
            zeros, ones, full, steps = method.run([np.zeros((n, 2), np.float32)])
            for got, value in ((zeros, 0), (ones, 1), (full, 2.5)):
                np.testing.assert_array_equal(got, np.full((n, 3), value, np.float32), strict=True)
            np.testing.assert_array_equal(steps, np.arange(0, n, 2, dtype=np.int32), strict=True)


def test_bool_input_nonzero_byte_counts_as_true(tmp_path, device):
    """Truth values are stored as 0 or 1, whatever they were made of: what follows counts on it."""
    values: list[c.VkValue] = [c.VkTensor(DType.FLOAT32, (5,)), c.VkInt(2), c.VkNull()]
    values += [c.VkTensor(DType.BOOL, (5,)) for _ in range(4)]
    x, two, null, filled, cast, *outs = range(7)
    calls = [
        ("aten.full_like.default", [x, two, *[null] * 5, filled]),
        ("aten._to_copy.default", [x, *[null] * 6, cast]),
        ("aten.bitwise_not.default", [filled, outs[0]]),
        ("aten.bitwise_and.Tensor", [filled, cast, outs[1]]),
    ]
    simple_pte(tmp_path / "truth.pte", values, calls, [x], outs, [])
    with webpte.load(tmp_path / "truth.pte") as program:
        inverted, both = program.method().run([np.array([4, 0, -2, 0.5, NAN], np.float32)])
    assert inverted.tolist() == [False] * 5
    assert both.tolist() == [True, False, True, True, True]


def test_numbers_taken_from_data(tmp_path, device):
    """A number read from an input changes from call to call, and no parameter block with it."""
    values: list[c.VkValue] = [c.VkTensor(DType.FLOAT32, (5,)), c.VkTensor(DType.INT32, (1,)), c.VkSymInt(0)]
    values += [c.VkInt(0), c.VkInt(1), c.VkInt(4), c.VkSymInt(0), c.VkNull()]
    x, data, number, zero, one, four, end, null = range(8)
    outs = [8, 9, 10, 11]
    values += [c.VkTensor(DType.FLOAT32, (5,)), c.VkTensor(DType.BOOL, (5,))]
    values += [c.VkTensor(DType.FLOAT32, (5,)), c.VkTensor(DType.INT32, (4,))]
    options = [null] * 4
    calls = [
        ("et_vk.select_as_symint.default", [data, zero, zero, number]),
        ("add", [number, four, end]),
        ("aten.add.Scalar", [x, number, one, outs[0]]),
        ("aten.lt.Scalar", [x, number, outs[1]]),
        ("aten.full_like.default", [x, number, *options, null, outs[2]]),
        ("aten.arange.start_step", [number, end, one, *options, outs[3]]),
    ]
    simple_pte(tmp_path / "live.pte", values, calls, [x, data], outs, [])
    array = np.linspace(-3, 9, 5, dtype=np.float32)
    with webpte.load(tmp_path / "live.pte") as program:
        method = program.method()
        for value in (3, -1, 100, 3):
            got = method.run([array, np.array([value], np.int32)])
            want = (array + value, operator.lt(array, value), np.full_like(array, value), np.arange(value, value + 4))
            for g, w in zip(got, want, strict=True):
                np.testing.assert_array_equal(g, w)
        before = method.counters.snapshot()
        method.run([array, np.array([7], np.int32)])
        done = method.counters.since(before)
        assert (done.bind_groups, done.buffers) == (0, 0)
        assert done.uniform_bytes <= 16 * 16  # slots of live scalars, no block of 256 bytes

"""Ops from outside the package take part in fusion by what they were registered with: a formula, or being a view.

One that writes in place is in test_own_mutation.py.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkDouble, VkInt, VkIntList, VkNull, VkSymInt, VkTensor, VkValue, VkValueList
from webpte.graph import String, ValueList
from webpte.graph.names import ELEMENTWISE
from webpte.lowering import registered, unregister

PYTHON = '''
"""softsign(x) = x / (scale + |x|); squared(x, y) = x * x - y; rows (n, 4) as pairs (n, 2, 2); and a copy"""
import numpy as np
from webpte.lowering import FLOATS, Context, OpTraits, Tensor, dim_rules, op
from webpte.ops.elementwise import Formula, Number, elementwise


@elementwise("toy.softsign.default", dtypes=FLOATS)
def softsign(x: Tensor, scale: float, *, out: Tensor) -> Formula:
    return Formula("f", (x,), numbers=(Number.of(scale),), code="a / (b + abs(a))")


@softsign.reference
def _(x, scale):
    return x / (np.float32(scale) + np.abs(x))


@elementwise("toy.squared.default", dtypes=FLOATS, numbers=("y",))
def squared(x: Tensor, y: Tensor, *, out: Tensor) -> Formula:
    return Formula("f", (x, y), code="a * a - b")


@squared.reference
def _(x, y):
    return x * x - y


@op("toy.pairs.default", dtypes=FLOATS, traits=OpTraits(view="x", dims=lambda known: [(known.dims("x")[0], 2, 2)]))
def pairs(cx: Context, x: Tensor, *, out: Tensor) -> None:
    out.dims = (x.dims[0], 2, 2)
    if not cx.alias(out, x):
        cx.dispatch("copied.wgsl", reads={"x": x}, writes={"y": out}, threads=x.numel, type=x.wgsl)


@op("toy.same.default", dtypes=FLOATS, traits=OpTraits(view="x", dims=dim_rules.like("x")))
def same(cx: Context, factor: float, x: Tensor, *, out: Tensor) -> None:
    out.dims = x.dims
    cx.dispatch("copied.wgsl", reads={"x": x}, writes={"y": out}, threads=x.numel, type=x.wgsl)
'''

WGSL = """{$ include "kernel.wgsl" $}

var<storage> x: array<{{ type }}>;
var<storage> y: array<{{ type }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i < p.threads) {
        y[i] = x[i];
    }
}
"""
ROWS = 7
X = np.random.default_rng(3).normal(size=(ROWS, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def toys(tmp_path):
    (tmp_path / "toys.py").write_text(PYTHON)
    (tmp_path / "copied.wgsl").write_text(WGSL)
    spec = importlib.util.spec_from_file_location("toys", tmp_path / "toys.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield
    for toy in (module.softsign, module.squared, module.pairs, module.same):
        unregister(toy)


def tensor(*dims: int, dtype: DType = DType.FLOAT32, **options: Any) -> VkTensor:
    return VkTensor(dtype, dims, **options)


def ran(path, *arrays, passes=None) -> tuple[list[str], tuple[Any, ...]]:
    """The calls that run, and the results."""
    with webpte.load(path, passes=passes) as program:
        results = program.method().run(list(arrays))
        return [call.name for call in program.plan().graph.calls], results


def check(path, expected: list[str], want: list[Any], tolerance: float = 1e-5) -> None:
    """With passes, without, and below the bound of a dynamic shape."""
    for rows in (ROWS, 3):
        inputs = X[:rows].astype(want[0].dtype)
        names, results = ran(path, inputs)
        assert names == expected
        plain, alone = ran(path, inputs, passes=())
        assert len(plain) > len(names)
        for result, single, whole in zip(results, alone, want, strict=True):
            np.testing.assert_allclose(result, whole[:rows], rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(result, single, rtol=tolerance, atol=tolerance)


def softsign(x, scale):
    return x / (np.float32(scale) + np.abs(x))


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16])
def test_formulas_join_a_program(tmp_path, dtype):
    """Two of them, both called f, in one call with ops of ours."""
    values: list[VkValue] = [tensor(ROWS, 4, dtype=dtype) for _ in range(5)]
    values += [VkDouble(0.5), VkDouble(2.0)]
    x, a, b, c, d, half, two = range(7)
    calls = [
        ("aten.mul.Scalar", (x, two, a)),
        ("toy.softsign.default", (a, half, b)),
        ("toy.squared.default", (b, x, c)),
        ("aten.tanh.default", (c, d)),
    ]
    simple_pte(tmp_path / "p.pte", values, calls, [x], [d], dynamic=True)
    inputs = X.astype(dtype.numpy)
    want = np.tanh(softsign(inputs * 2, 0.5) ** 2 - inputs).astype(dtype.numpy)
    check(tmp_path / "p.pte", [ELEMENTWISE], [want], 1e-5 if dtype is DType.FLOAT32 else 4e-3)


def test_own_op_fused_reference_uses_formula(tmp_path):
    values: list[VkValue] = [*(tensor(ROWS, 4) for _ in range(3)), VkDouble(0.5)]
    calls = [("toy.softsign.default", (0, 3, 1)), ("aten.relu.default", (1, 2))]
    simple_pte(tmp_path / "p.pte", values, calls, [0], [2])
    with webpte.load(tmp_path / "p.pte") as program:
        graph = program.plan().graph
        (call,) = graph.calls
        text, numbers = graph.values[call.args[0]], graph.values[call.args[2]]
        assert isinstance(text, String) and "toy.softsign.default" in text.value
        assert isinstance(numbers, ValueList) and len(numbers.ids) == 1
        compute = registered()[ELEMENTWISE].compute
        assert compute is not None
        (result,) = compute(text.value, [X], [0.5])
    np.testing.assert_array_equal(result, np.maximum(softsign(X, 0.5), 0))


def test_own_op_constant_of_one_element_is_scalar(tmp_path):
    """`numbers` says that the formula takes one: nothing is bound for it."""
    values: list[VkValue] = [*(tensor(ROWS, 4) for _ in range(3)), tensor(1, constant_id=0), tensor(1)]
    calls = [
        ("et_vk.prepack.default", (3, 4)),
        ("toy.squared.default", (0, 4, 1)),
        ("aten.relu.default", (1, 2)),
    ]
    simple_pte(tmp_path / "p.pte", values, calls, [0], [2], [np.array([0.25], np.float32)])
    with webpte.load(tmp_path / "p.pte") as program:
        graph = program.plan().graph
        call = graph.calls[-1]
        assert call.name == ELEMENTWISE and graph.values[call.args[1]] == ValueList((graph.inputs[0],))
        (result,) = program.method().run([X])
    np.testing.assert_allclose(result, np.maximum(X * X - 0.25, 0), rtol=1e-6)


def test_own_op_formula_fuses_as_epilogue_after_view(tmp_path):
    """The product passes over the user's view, because the residual has its shape, and computes the user's formula."""
    weight = np.random.default_rng(4).normal(size=(4, 4)).astype(np.float32)
    values: list[VkValue] = [tensor(ROWS, 4), tensor(4, 4, constant_id=0), VkNull(), tensor(ROWS, 4)]
    values += [tensor(ROWS, 2, 2), tensor(ROWS, 2, 2), tensor(ROWS, 2, 2), VkDouble(0.5), tensor(ROWS, 2, 2), VkInt(1)]
    x, w, none, result, seen, other, added, half, out, one = range(10)
    calls = [
        ("toy.pairs.default", (x, other)),
        ("aten.linear.default", (x, w, none, result)),
        ("toy.pairs.default", (result, seen)),
        ("aten.add.Tensor", (seen, other, one, added)),
        ("toy.softsign.default", (added, half, out)),
    ]
    simple_pte(tmp_path / "p.pte", values, calls, [x], [out], [weight], dynamic=True)
    want = softsign((X @ weight.T + X).reshape(ROWS, 2, 2), 0.5)
    check(tmp_path / "p.pte", ["toy.pairs.default", "webpte.linear"], [want], 1e-4)


def test_views_are_dropped_and_proven_equal(tmp_path):
    """A copy of ones own goes, and so does the view that has the sizes of what is after it."""
    values: list[VkValue] = [tensor(ROWS, 4) for _ in range(5)]
    values += [tensor(ROWS, 2, 2), VkDouble(1.0), VkInt(0), VkInt(1), VkSymInt(0), VkSymInt(0)]
    x, copied, viewed, back, out, pair, factor, zero, one, rows, columns = range(11)
    values += [VkValueList((rows, columns)), VkIntList((-1, 4)), VkNull()]
    sizes, fixed, none = range(11, 14)
    calls = [
        ("toy.same.default", (factor, x, copied)),
        ("sym_size.int", (copied, zero, rows)),
        ("sym_size.int", (copied, one, columns)),
        ("aten.view_copy.default", (copied, sizes, viewed)),
        ("toy.pairs.default", (viewed, pair)),
        ("aten.view_copy.default", (pair, fixed, back)),
        ("aten.cumsum.default", (back, zero, none, out)),
    ]
    simple_pte(tmp_path / "p.pte", values, calls, [x], [out], dynamic=True)
    remaining = ["toy.pairs.default", "aten.view_copy.default", "aten.cumsum.default"]  # no one reads the sizes
    check(tmp_path / "p.pte", remaining, [np.cumsum(X, axis=0)])

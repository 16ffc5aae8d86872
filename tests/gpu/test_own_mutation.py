"""A user's op that writes its argument in place: every pass knows it from the registration, not from a list of ours."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import webpte
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkInt, VkIntList, VkTensor, VkValue, VkValueList
from webpte.fusion import PASSES
from webpte.lowering import unregister

PYTHON = '''
"""x += 100 in place; out is what x was"""
from webpte.lowering import FLOATS, Context, OpTraits, Tensor, op


@op("toy.raise_.default", dtypes=FLOATS, traits=OpTraits(mutates=("x",)))
def raise_(cx: Context, x: Tensor, *, out: Tensor) -> None:
    out.dims = x.dims
    cx.dispatch("raise_.wgsl", writes={"x": x, "y": out}, threads=x.numel, type=x.wgsl)


@op("toy.raise_all_.default", dtypes=FLOATS, traits=OpTraits(mutates=("tensors",)))
def raise_all_(cx: Context, tensors: list[Tensor], *, out: Tensor) -> None:
    out.dims = tensors[0].dims
    for x in tensors:
        cx.dispatch("raise_.wgsl", writes={"x": x, "y": out}, threads=x.numel, type=x.wgsl)
'''

WGSL = """{$ include "kernel.wgsl" $}

var<storage> x: array<{{ type }}>;
var<storage> y: array<{{ type }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    y[i] = x[i];
    x[i] = x[i] + {{ type }}(100);
}
"""


@pytest.fixture
def toy(tmp_path):
    (tmp_path / "raise_.py").write_text(PYTHON)
    (tmp_path / "raise_.wgsl").write_text(WGSL)
    spec = importlib.util.spec_from_file_location("raise_", tmp_path / "raise_.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield
    unregister(module.raise_)
    unregister(module.raise_all_)


def program(path):
    """h = x + x, then a clone, a view, a negative, a square and a transpose of it; all are read after raise_(h)."""
    count = 12
    values: list[VkValue] = [VkTensor(DType.FLOAT32, (4, 6)) for _ in range(count)]
    values += [VkInt(1), VkIntList((4, 6)), VkIntList((1, 0)), VkTensor(DType.FLOAT32, (6, 4))]
    one, shape, order, turned = count, count + 1, count + 2, count + 3
    x, h, kept, viewed, shown, tied, before, a, b, c, d, total = range(count)
    calls = [
        ("aten.add.Tensor", (x, x, one, h)),
        ("aten.clone.default", (h, one + 1, kept)),
        ("aten.view_copy.default", (h, shape, viewed)),
        ("aten.neg.default", (h, shown)),
        ("aten.mul.Tensor", (h, h, tied)),
        ("aten.permute_copy.default", (h, order, turned)),
        ("toy.raise_.default", (h, before)),
        ("aten.relu.default", (kept, a)),
        ("aten.relu.default", (viewed, b)),
        ("aten.relu.default", (shown, c)),
        ("aten.add.Tensor", (tied, h, one, d)),
        ("aten.mm.default", (a, turned, total)),
    ]
    values[total] = VkTensor(DType.FLOAT32, (4, 4))
    simple_pte(path, values, calls, [x], [a, b, c, d, before, h, total])


@pytest.mark.parametrize("passes", [(), *((name,) for name in PASSES), tuple(PASSES)], ids=" ".join)
def test_own_op_mutation_keeps_earlier_reads(toy, tmp_path, passes):
    program(tmp_path / "p.pte")
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    h = x + x
    relu = np.maximum(h, 0)
    want = [relu, relu, np.maximum(-h, 0), h * h + h + 100, h, h + 100, relu @ h.T]
    with webpte.load(tmp_path / "p.pte", passes=passes) as loaded:
        for result, expected in zip(loaded.method().run([x]), want, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


def program_of_views(path):
    """h = x + x and views of views of it; the middle one is raised with x in a list, and the outer one alone."""
    count = 13
    values: list[VkValue] = [VkTensor(DType.FLOAT32, (4, 6)) for _ in range(count)]
    values += [VkInt(1), VkIntList((4, 6)), VkValueList((1, 3)), VkValueList((2, 0))]
    one, shape, both, others = range(count, count + 4)
    x, h, first, second, third, before, a, b, c, d, old, e, f = range(count)
    calls = [
        ("aten.add.Tensor", (x, x, one, h)),
        ("aten.view_copy.default", (h, shape, first)),
        ("aten.view_copy.default", (first, shape, second)),
        ("aten.view_copy.default", (second, shape, third)),
        ("aten.relu.default", (second, a)),
        ("toy.raise_all_.default", (both, before)),  # h and second
        ("aten.relu.default", (first, b)),
        ("aten.relu.default", (second, c)),
        ("aten.relu.default", (third, d)),
        ("toy.raise_all_.default", (others, old)),  # first and x
        ("aten.mul.Tensor", (h, first, e)),
        ("aten.mul.Tensor", (second, x, f)),
    ]
    simple_pte(path, values, calls, [x], [a, b, c, d, e, f, third])


@pytest.mark.parametrize("passes", [(), *((name,) for name in PASSES), tuple(PASSES)], ids=" ".join)
def test_lists_and_views_of_views(toy, tmp_path, passes):
    program_of_views(tmp_path / "p.pte")
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    h = x + x
    relu, raised = np.maximum(h, 0), np.maximum(h + 100, 0)
    want = [relu, relu, raised, relu, (h + 100) * (h + 100), (h + 100) * (x + 100), h]
    inputs = x.copy()
    with webpte.load(tmp_path / "p.pte", passes=passes) as loaded:
        for result, expected in zip(loaded.method().run([x]), want, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(x, inputs)  # the delegate has raised a copy of its own

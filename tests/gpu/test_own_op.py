"""Adding an op takes its Python file, its .wgsl and its cases: here all three live outside the package."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import webpte
from tests.support.harness.cases import T, case, run_case
from tests.support.harness.errors import raises
from webpte.lowering import registered, unregister

PYTHON = '''
"""y = x * x + bias"""
import numpy as np
from webpte.lowering import FLOATS, Context, Tensor, op
from webpte.wgsl import Uniforms, f32


class Square(Uniforms):
    bias: f32


@op("toy.square_plus.default", dtypes=FLOATS)
def square_plus(cx: Context, x: Tensor, bias: float, *, out: Tensor) -> None:
    out.dims = x.dims
    params = Square(bias=bias)
    cx.dispatch("square_plus.wgsl", reads={"x": x}, writes={"y": out}, params=params, threads=x.numel, type=x.wgsl)


@square_plus.reference
def _(x, bias):
    return x * x + np.float32(bias)
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
    y[i] = x[i] * x[i] + {{ type }}(p.bias);
}
"""


@pytest.fixture
def toy(tmp_path):
    (tmp_path / "square_plus.py").write_text(PYTHON)
    (tmp_path / "square_plus.wgsl").write_text(WGSL)
    spec = importlib.util.spec_from_file_location("square_plus", tmp_path / "square_plus.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    unregister(module.square_plus)


def test_own_op_from_external_folder_passes_case(toy, tmp_path):
    assert run_case(case("toy.square_plus.default", T("n", 7), 0.5, n=(11, 3, 1)), tmp_path) == 4


def test_own_op_unregistered_leaves_nothing(tmp_path):
    assert "toy.square_plus.default" not in registered()


def test_own_op_broken_kernel_raises_and_device_survives(toy, tmp_path, device):
    (tmp_path / "square_plus.wgsl").write_text(WGSL.replace("x[i] * x[i]", "x[i] * nonsense"))
    with raises(webpte.DeviceError, "kernel", "nonsense", code="validation"):
        run_case(case("toy.square_plus.default", T("n", 7), 0.5, n=(11, 3)), tmp_path)
    assert run_case(case("aten.view_copy.default", T(6), [2, 3]), tmp_path) == 2


def test_own_op_lowering_without_shape_raises(toy, tmp_path):
    def forgets(cx, x, bias, *, out):
        pass

    toy.square_plus.lower = forgets
    with raises(webpte.GraphError, "toy.square_plus.default", code="missing_shape"):
        run_case(case("toy.square_plus.default", T(3), 0.5), tmp_path)


def test_own_op_lowering_exception_is_wrapped(toy, tmp_path):
    def breaks(cx, x, bias, *, out):
        return np.zeros(3)[7]

    toy.square_plus.lower = breaks
    with raises(webpte.GraphError, "toy.square_plus.default", "IndexError"):
        run_case(case("toy.square_plus.default", T(3), 0.5), tmp_path)

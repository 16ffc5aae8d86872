"""Dtypes and memory orders at the borders of a program, and outside its delegates."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import DelegateBlob, Method, pte_file, span_of, vk_blob
from webpte import container as c
from webpte.container import DelegateCall, DType, KernelCall, VkTensor

F32, BF16 = DType.FLOAT32, DType.BFLOAT16


def tensor(dtype, *dims, order=None, **more):
    place = None if "data" in more else (1, -1)
    return c.TensorValue(dtype, dims, order or tuple(range(len(dims))), place=place, **more)


def write(path, values, instructions, inputs, outputs, blobs=()):
    pte_file(path, [Method("forward", values, inputs, outputs, instructions, [DelegateBlob(b) for b in blobs])])


def cut(x):
    """Return the nearest bfloat16, ties to even, as f32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


@pytest.fixture
def scaled(tmp_path):
    """x * w, both bfloat16, w a constant of the file."""
    w = cut(np.linspace(-2, 2, 5))
    stored = (w.view(np.uint32) >> 16).astype("<u2")
    values = [tensor(BF16, 5), tensor(BF16, 5, data=span_of(stored)), tensor(BF16, 5)]
    write(tmp_path / "p.pte", values, [KernelCall("aten::mul.out", (0, 1, 2, 2))], [0], [2])
    with webpte.load(tmp_path / "p.pte") as program:
        yield program.method(), w


def test_bfloat16_is_float32_to_callers_and_rounded(scaled):
    method, w = scaled
    x = np.array([0.1, 1.0039063, 3e38, -1e-40, 7.7], np.float32)
    got = method(x)
    assert str(method.inputs[0]) == "bf16[5]" and got.dtype == np.float32
    assert np.array_equal(got, cut(cut(x) * w)) and not np.array_equal(got, x * w)
    assert method(np.float16(x[:2]).repeat(3)[:5]).dtype == np.float32
    with raises(webpte.InputError, "float64", "float32", code="dtype"):
        method(x.astype(np.float64))


def test_bfloat16_of_torch(scaled):
    torch = pytest.importorskip("torch")
    method, w = scaled
    x = torch.linspace(-3, 3, 5).bfloat16()
    assert np.array_equal(method(x), (x * torch.from_numpy(w).bfloat16()).float().numpy())


def test_nan_and_infinity_survive_rounding():
    got = BF16.rounded(np.array([np.nan, np.inf, -np.inf, 3.4e38], np.float32))
    assert np.isnan(got[0]) and got[1:].tolist() == [np.inf, -np.inf, np.inf]


@pytest.mark.parametrize("dtype", [DType.INT16, DType.UINT8, DType.INT8, DType.FLOAT64, DType.UINT16], ids=str)
def test_dtype_without_kernel_runs_on_cpu(dtype, tmp_path):
    values = [tensor(dtype, 4), tensor(dtype, 4), tensor(dtype, 4), c.IntValue(1)]
    write(tmp_path / "p.pte", values, [KernelCall("aten::add.out", (0, 1, 3, 2, 2))], [0, 1], [2])
    x, y = (np.array(row).astype(dtype.numpy) for row in ([1, 2, 3, 100], [5, 6, 7, 27.5]))
    with webpte.load(tmp_path / "p.pte") as program:
        got = program.method()(x, y)
    assert got.dtype == dtype.numpy and np.array_equal(got, x + y)


def test_channels_last_inputs_and_outputs(tmp_path):
    """The program has them in memory as (B, H, W, C); callers have (B, C, H, W), with whatever strides."""
    blob = vk_blob([VkTensor(F32, (2, 3, 5, 7))] * 2, [("aten.relu.default", (0, 1))], [0], [1])
    last = tensor(F32, 2, 3, 5, 7, order=(0, 2, 3, 1))
    write(tmp_path / "p.pte", [last, last], [DelegateCall(0, (0, 1))], [0], [1], [blob])
    x = np.random.default_rng(1).standard_normal((2, 3, 5, 7)).astype(np.float32)
    with webpte.load(tmp_path / "p.pte") as program:
        for inputs in (x, np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2), x[::-1][::-1]):
            assert np.array_equal(program.method()(inputs), np.maximum(x, 0))


def test_channels_last_constants(tmp_path):
    w = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    held = tensor(F32, 1, 2, 3, 4, order=(0, 2, 3, 1), data=span_of(np.ascontiguousarray(w.transpose(0, 2, 3, 1))))
    values = [tensor(F32, 1, 2, 3, 4), held, tensor(F32, 1, 2, 3, 4), c.IntValue(1)]
    write(tmp_path / "p.pte", values, [KernelCall("aten::add.out", (0, 1, 3, 2, 2))], [0], [2])
    with webpte.load(tmp_path / "p.pte") as program:
        assert np.array_equal(program.method()(np.ones_like(w)), w + 1)

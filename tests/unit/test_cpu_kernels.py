"""Kernel calls that no op of ours serves, on the CPU with NumPy alone."""

from __future__ import annotations

import numpy as np
import pytest

from webpte.graph import Call, Origin
from webpte.lowering import find
from webpte.runtime.kernels import KERNELS, CpuKernels, _numpy_kernel


def test_cpu_kernels_do_not_duplicate_ops():
    assert [name for name in KERNELS if find(Call(name, (), (), Origin(0), True))] == []


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dim", [0, -1])
def test_cpu_topk_equals_torch(largest, dim):
    x = np.random.default_rng(0).permutation(24).reshape(4, 6)
    values, indices = KERNELS["aten::topk.values"](x, 3, dim, largest, True)
    ordered = np.sort(x, axis=dim)
    expected = np.flip(ordered, dim) if largest else ordered
    np.testing.assert_array_equal(values, expected.take(range(3), axis=dim))
    np.testing.assert_array_equal(np.take_along_axis(x, indices, axis=dim), values)


def test_cpu_kernels_source_names_numpy_or_torch():
    kernels = CpuKernels()
    assert kernels.source("aten::topk.values") == "numpy"  # written for it
    assert kernels.source("aten::add.out") == "numpy"  # the reference of an op
    assert kernels.source("aten::linalg_det.out") == "torch"


@pytest.mark.parametrize("name", ["__{}shift__.Scalar_out", "bitwise_{}_shift.Tensor_out"])
def test_cpu_shift_equals_torch(name):
    x = np.array([-7, 5, 0, 2**40])
    left, right = (KERNELS[f"aten::{name.format(way if 'bitwise' in name else way[0])}"] for way in ("left", "right"))
    np.testing.assert_array_equal(left(x, 2), x * 4)
    np.testing.assert_array_equal(right(x, 1), x // 2)
    np.testing.assert_array_equal(right(x, 70), [-1, 0, 0, 0])  # as torch: nothing is left but the sign


def test_batch_norm_by_its_own_statistics():
    x = np.random.default_rng(0).normal(3, 2, (2, 3, 5)).astype(np.float32)
    norm = KERNELS["aten::_native_batch_norm_legit.no_stats_out"]
    result, mean, scale = norm(x, np.array([1, 2, 3], np.float32), None, True, 0.1, 1e-5)
    np.testing.assert_allclose(mean, x.mean((0, 2)), rtol=1e-6)
    np.testing.assert_allclose(scale, 1 / np.sqrt(x.var((0, 2)) + 1e-5), rtol=1e-6)
    np.testing.assert_allclose(result.std((0, 2)), [1, 2, 3], rtol=1e-4)
    np.testing.assert_allclose(
        norm(x, None, np.array([5, 5, 5], np.float32), True, 0.1, 1e-5)[0].mean((0, 2)), 5, rtol=1e-6
    )


@pytest.mark.parametrize(("mode", "reduce"), [(0, np.sum), (1, np.mean), (2, np.max)])
def test_embedding_bag(mode, reduce):
    weight = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    indices, offsets = np.array([1, 6, 0, 3, 3]), np.array([0, 2, 2])
    result, bag, sizes, _ = KERNELS["aten::_embedding_bag.out"](
        weight, indices, offsets, False, mode, False, None, False, -1
    )
    np.testing.assert_array_equal(bag, [0, 0, 2, 2, 2])
    np.testing.assert_array_equal(sizes, [2, 0, 3])
    np.testing.assert_allclose(result[0], reduce(weight[[1, 6]], 0), rtol=1e-6)
    np.testing.assert_array_equal(result[1], 0)
    np.testing.assert_allclose(result[2], reduce(weight[[0, 3, 3]], 0), rtol=1e-6)


@pytest.mark.parametrize(
    ("indices", "offsets"), [([7], [0]), ([-1], [0]), ([1], [0, 0, 0]), ([1, 1], [1]), ([1, 1], [0, 3])]
)
def test_embedding_bag_index_out_of_range_is_refused(indices, offsets):
    """A file may request a billion empty bags."""
    with pytest.raises((IndexError, ValueError)):
        KERNELS["aten::_embedding_bag.out"](
            np.zeros((7, 3)), np.array(indices), np.array(offsets), False, 0, False, None, False, -1
        )


def test_cpu_trilinear_equals_einsum():
    rng = np.random.default_rng(0)
    x, w, y = rng.normal(size=(5, 4)), rng.normal(size=(3, 4, 6)), rng.normal(size=(5, 6))
    trilinear = KERNELS["aten::_trilinear.out"]
    got = trilinear(x, w, y, [1, 3], [0], [1, 2], [2, 3], 1)
    np.testing.assert_allclose(got, np.einsum("bi,oij,bj->bo", x, w, y), rtol=1e-12)
    vector = np.ones(10_000)
    with pytest.raises(ValueError, match="elements"):
        trilinear(vector, vector, vector, [1, 2], [0, 2], [0, 1], [], 1)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("div.out_mode", ["trunc"]),
        ("div.out_mode", ["floor"]),
        ("floor_divide.out", []),
        ("remainder.Tensor_out", []),
        ("fmod.Tensor_out", []),
    ],
)
def test_integer_division_by_zero_raises(name, mode):
    kernel = _numpy_kernel(f"aten::{name}")
    assert kernel is not None
    assert kernel(np.array([7, 8]), np.array([2, 4]), *mode).shape == (2,)
    with pytest.raises(ZeroDivisionError):
        kernel(np.array([7, 8]), np.array([2, 0]), *mode)


def test_topk_with_nan_puts_it_first_or_last():
    x = np.array([[1, np.nan, 3, np.nan], [5, 4, np.nan, -np.inf]], np.float32)
    values, order = KERNELS["aten::topk.values"](x, 2, 1, True, True)
    np.testing.assert_array_equal(order, [[1, 3], [2, 0]])
    np.testing.assert_array_equal(values, [[np.nan, np.nan], [np.nan, 5]])
    _, order = KERNELS["aten::topk.values"](x, 3, 1, False, True)
    np.testing.assert_array_equal(order, [[0, 2, 1], [3, 1, 0]])


@pytest.mark.parametrize(("mode", "first"), [(0, 1 + 5), (1, 3), (2, 5)])
def test_embedding_bag_with_padding_neither_counts_nor_returns_it(mode, first):
    """The padding row is greater than all others, and comes first, between and last."""
    weight = np.array([[1, 2], [9, 9], [5, 0]], np.float32)
    indices, offsets = np.array([1, 0, 1, 2, 1, 1]), np.array([0, 4])
    result, _, sizes, greatest = KERNELS["aten::_embedding_bag.out"](
        weight, indices, offsets, False, mode, False, None, False, 1
    )
    assert result[:, 0].tolist() == [first, 0]
    assert sizes.tolist() == [2, 0]
    assert greatest.tolist() == ([[2, 0], [0, 0]] if mode == 2 else [0, 0])

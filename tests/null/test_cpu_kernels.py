"""Kernel calls that no op of ours serves, on the CPU with NumPy alone."""

from __future__ import annotations

import numpy as np
import pytest

from webpte.graph import Call, Origin
from webpte.ops import find
from webpte.runtime.kernels import CpuKernels
from webpte.runtime.numpy_kernels import KERNELS


def test_none_repeats_what_an_op_already_does():
    assert [name for name in KERNELS if find(Call(name, (), (), Origin(0), True))] == []


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dim", [0, -1])
def test_topk(largest, dim):
    x = np.random.default_rng(0).permutation(24).reshape(4, 6)
    values, indices = KERNELS["aten::topk.values"](x, 3, dim, largest, True)
    ordered = np.sort(x, axis=dim)
    expected = np.flip(ordered, dim) if largest else ordered
    np.testing.assert_array_equal(values, expected.take(range(3), axis=dim))
    np.testing.assert_array_equal(np.take_along_axis(x, indices, axis=dim), values)


def test_what_runs_a_call_is_told():
    kernels = CpuKernels()
    assert kernels.source("aten::topk.values") == "numpy"  # written for it
    assert kernels.source("aten::add.out") == "numpy"  # the reference of an op
    assert kernels.source("aten::linalg_det.out") == "torch"

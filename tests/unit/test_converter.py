"""The range that 64-bit floats must have to be stored on the device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.errors import raises
from webpte.container import DType
from webpte.errors import RangeError
from webpte.graph import TensorSpec
from webpte.runtime.converter import to_device

F64 = TensorSpec(DType.FLOAT32, (2,), DType.FLOAT64)
MAX_F32 = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("value", [MAX_F32, -MAX_F32, np.inf, -np.inf, np.nan])
def test_to_device_with_floats_that_32_bits_hold_keeps_them(value):
    np.testing.assert_array_equal(to_device(np.array([1, value]), F64), np.array([1, value], np.float32))


@pytest.mark.parametrize("value", [1.001 * MAX_F32, -1.001 * MAX_F32, 1.9 * MAX_F32, 1e300])
def test_to_device_with_floats_beyond_32_bits_raises(value):
    with raises(RangeError, f"{abs(value):g}"):
        to_device(np.array([np.nan, value]), F64)

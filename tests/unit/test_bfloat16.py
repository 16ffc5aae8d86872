"""bf16 on the host: NumPy has none, so its values are held in f32."""

from __future__ import annotations

import numpy as np

from webpte.container import DType


def test_values_are_rounded_to_the_nearest_and_to_even_between_two():
    step = 2.0**-7  # between values of bf16 from 1 to 2
    inputs = np.array([1, 1 + step / 2, 1 + 3 * step / 2, 1 + 0.51 * step, -(1 + 0.49 * step), 3.4e38, 0, -0.0, np.inf])
    expected = np.array([1, 1, 1 + 2 * step, 1 + step, -1, np.inf, 0, -0.0, np.inf], np.float32)
    actual = DType.BFLOAT16.rounded(inputs)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))
    assert actual.dtype == np.float32


def test_nan_stays_nan():
    """Of a NaN whose bits are all in the lower half, rounding by bits would make an infinity."""
    odd = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    assert np.isnan(DType.BFLOAT16.rounded(odd)).all()


def test_bytes_of_a_file_are_the_upper_half_of_f32():
    values = np.array([1.5, -2.0, 0.0, np.inf], np.float32)
    stored = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    np.testing.assert_array_equal(DType.BFLOAT16.from_bytes(stored), values)


def test_rounded_other_dtypes_are_only_cast():
    x = np.arange(6.0).reshape(2, 3).T
    for dtype in (DType.FLOAT32, DType.INT8, DType.FLOAT64):
        result = dtype.rounded(x)
        assert result.dtype == dtype.numpy and result.flags.c_contiguous
        np.testing.assert_array_equal(result, x)
    assert DType.INT64.rounded(3).shape == ()

"""Weights that are quantized in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from webpte.builder.quantize import Grouped, check_range, grouped, pack_embedding, pack_linear, pack_rows


@pytest.fixture(scope="module")
def weight():
    return np.random.default_rng(5).standard_normal((24, 96)).astype(np.float32)


def error(weight: np.ndarray, codes: Grouped) -> float:
    return float(((weight - codes.values()) ** 2).sum())


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 16), (8, 32), (8, 96)])
def test_grouped_error_is_below_that_of_scaling_by_the_maximum(weight, bits, group):
    result = grouped(weight, bits, group)
    assert result.codes.dtype == np.int8 and result.scales.shape == (24, 96 // group) and result.group == group
    assert result.codes.min() >= -(1 << bits - 1) and result.codes.max() < 1 << bits - 1
    split = weight.reshape(24, -1, group)
    step = np.abs(split).max(-1, keepdims=True) / ((1 << bits - 1) - 1)
    plain = (np.rint(split / step) * step).reshape(weight.shape)
    assert error(weight, result) < ((weight - plain) ** 2).sum()


def test_grouped_scales_of_four_bits_are_numbers_of_f16(weight):
    rounded, rows = grouped(weight), grouped(weight, 8, 96)
    assert rounded.scales.dtype == rows.scales.dtype == np.float32
    assert np.array_equal(rounded.scales, rounded.scales.astype(np.float16))
    assert not np.array_equal(rows.scales, rows.scales.astype(np.float16))


@pytest.mark.parametrize("factor", [1e-6, 1e8])
def test_grouped_scales_beyond_normal_numbers_of_f16_keep_their_precision(weight, factor):
    outside = grouped(weight * np.float32(factor))
    largest, sizes = np.finfo(np.float16).max, np.abs(outside.scales)
    assert sizes.min() > largest or sizes.max() < np.finfo(np.float16).smallest_normal
    assert error(weight, Grouped(outside.codes, outside.scales / factor)) <= 1.001 * error(weight, grouped(weight))


def test_grouped_of_zeros_is_zero():
    result = grouped(np.zeros((4, 64), np.float32))
    assert not result.codes.any() and np.isfinite(result.scales).all()


def test_grouped_of_a_large_weight_in_parts_equals_that_of_its_rows():
    large = np.random.default_rng(6).standard_normal((4096, 64)).astype(np.float32)
    result = grouped(large)
    assert np.array_equal(result.codes[-16:], grouped(large[-16:]).codes)


def test_pack_rows_has_one_scale_per_row(weight):
    codes, scales = pack_rows(grouped(weight, 8, weight.shape[1]))
    assert codes.shape == weight.shape and scales.shape == (24,) and scales.flags.c_contiguous
    assert np.allclose(codes * scales[:, None], weight, atol=0.03)


def test_pack_linear_even_columns_in_low_nibbles_scales_transposed(weight):
    layer = grouped(weight[:22])
    codes, scales = pack_linear(layer)
    assert codes.shape == (22, 48) and scales.shape == (3, 24)  # rows of scales are padded to a multiple of 4
    assert np.array_equal((codes & 15).astype(int) - 8, layer.codes[:, ::2])
    assert np.array_equal((codes >> 4).astype(int) - 8, layer.codes[:, 1::2])
    assert np.array_equal(scales[:, :22].T, layer.scales) and not scales[:, 22:].any()


def test_pack_embedding_has_scales_by_row(weight):
    codes, scales = pack_embedding(grouped(weight))
    assert codes.shape == (24, 48) and scales.shape == (24, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e11])
def test_check_range_refuses_weights_without_a_finite_square(weight, value):
    damaged = weight.copy()
    damaged[3, 4] = value
    with raises(webpte.UnsupportedError, code="weight_range"):
        check_range("layers.0", damaged)

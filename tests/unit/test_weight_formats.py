"""Formats of weights: the numbers of codes, and calls that name a format that does not exist."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.errors import raises
from webpte.errors import GraphError
from webpte.ops.weight_formats import format_named, numpy_scales

NUMBERS: dict[str, list[float]] = {  # of the bytes 0x00, 0x21, 0x8f and 0xf7
    "int4": [-8, -8, -7, -6, 7, 0, -1, 7],
    "int4_high_first": [-8, -8, -6, -7, 0, 7, 7, -1],
    "mxfp4": [0.0, 0.0, 0.5, 1.0, -6.0, -0.0, 6.0, -6.0],
    "int8": [0, 33, -113, -9],
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_codes(name):
    codes = np.array([[0x00, 0x21, 0x8F, 0xF7]], np.uint8)
    assert format_named(name).numbers(codes).tolist() == [NUMBERS[name]]
    assert format_named(name).word_codes == len(NUMBERS[name])


def test_format_that_does_not_exist_is_refused_with_those_that_do():
    with raises(GraphError, "int4, int4_high_first, int8, mxfp4", "int5", code="weight_format"):
        format_named("int5")


def test_scales_in_bytes_are_powers_of_two():
    scales = np.array([0, 1, 127, 128, 254], np.uint8)
    assert numpy_scales(scales).tolist() == [0.0, 2.0**-126, 1.0, 2.0, 2.0**127]

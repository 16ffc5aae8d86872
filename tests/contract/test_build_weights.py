"""Weights that the builder reads, against the package gguf."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from webpte.checkpoints.ggml import TYPES


def test_gguf_type_sizes_equal_gguf_package():
    ours = {number: (kind.name, kind.weights, kind.bytes) for number, kind in TYPES.items()}
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    assert ours == {number: theirs[number] for number in ours} and {*theirs} - {*ours} == set()


@pytest.mark.parametrize(
    "number", [number for number, kind in TYPES.items() if kind.decode], ids=lambda number: TYPES[number].name
)
def test_gguf_block_decoding_equals_gguf_package(number):
    kind, theirs = TYPES[number], GGMLQuantizationType(number)
    assert kind.decode is not None
    blocks = np.random.default_rng(8).integers(0, 256, (512, kind.bytes), dtype=np.uint8)
    if kind.name == "MXFP4":
        blocks[:, 0] = np.minimum(blocks[:, 0], 254)  # a scale of 255 is NaN by the format, and 2^128 in the package
    with np.errstate(all="ignore"):
        if kind.name == "F64":
            expected = blocks.view(np.float64).astype(np.float32)
        else:
            expected = gguf.quants.dequantize(blocks, theirs).reshape(512, -1)
        assert np.array_equal(kind.decode(blocks), expected, equal_nan=True)

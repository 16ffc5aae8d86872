"""Weights that NumPy reads and quantizes, against torch, gguf and what the exporter writes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from tests.support.models.families import Tiny, tinies
from webpte.builder.compensation import InputMoments, compensated
from webpte.builder.quantize import Grouped, grouped
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.ggml import TYPES
from webpte.checkpoints.shapes import parameter_shapes
from webpte.export.decoder_module import empty_module
from webpte.export.quantization import compensation
from webpte.export.quantization.grid import least_squares

EVERY = [tiny for variants in tinies().values() for tiny in variants.values()]


@pytest.mark.parametrize(("rows", "columns", "group"), [(64, 576, 32), (64, 1536, 64), (96, 576, 8), (32, 256, 16)])
def test_grouped_has_the_bits_of_torch(rows, columns, group):
    weight = np.random.default_rng(7).standard_normal((rows, columns)).astype(np.float32)
    weight[3], weight[5, :group] = 0, 0
    ours, theirs = grouped(weight, 4, group), least_squares(torch.from_numpy(weight), group, 4)
    assert np.array_equal(ours.codes, theirs.codes.numpy())
    assert np.array_equal(ours.scales, theirs.scales.numpy())


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (8, 192)])
def test_compensated_has_the_error_of_torch(bits, group):
    random = np.random.default_rng(9)
    weight = random.standard_normal((36, 192)).astype(np.float32)
    inputs = (random.standard_normal((500, 192)) @ random.standard_normal((192, 192))).astype(np.float32)
    inputs[:, 5] = 0
    moments = InputMoments(inputs.T @ inputs)
    ours = compensated(weight, group, bits, moments)
    theirs = compensation.compensated(torch.from_numpy(weight), group, bits, torch.from_numpy(inputs.T @ inputs))
    both = [moments.error(weight, each).sum() for each in (ours, Grouped(theirs.codes.numpy(), theirs.scales.numpy()))]
    assert both[0] == pytest.approx(both[1], rel=0.02)
    assert both[0] < 0.8 * moments.error(weight, grouped(weight, bits, group)).sum()


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
    with np.errstate(all="ignore"):
        if kind.name == "F64":
            expected = blocks.view(np.float64).astype(np.float32)
        else:
            expected = gguf.quants.dequantize(blocks, theirs).reshape(512, -1)
        assert np.array_equal(kind.decode(blocks), expected, equal_nan=True)


@pytest.mark.parametrize("tiny", EVERY, ids=lambda tiny: f"{tiny.family}: {tiny.variant}")
def test_parameter_shapes_equal_module(tiny: Tiny, tmp_path):
    tiny.save(tmp_path)
    source = read_checkpoint(tmp_path)
    module = empty_module(source, 2, 2)
    assert parameter_shapes(source.architecture) == {n: tuple(p.shape) for n, p in module.named_parameters()}

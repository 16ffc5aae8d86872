"""Weights that NumPy reads and quantizes, against torch, gguf and what the exporter writes."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from tests.support.models import gguf_families
from tests.support.models.families import Tiny, tinies
from webpte.build.checkpoint import ArrayCheckpoint, read_checkpoint
from webpte.build.ggml import TYPES
from webpte.build.quantize import grouped
from webpte.build.shapes import parameter_shapes
from webpte.export import checkpoint as with_torch
from webpte.export.family import shapes_of
from webpte.export.quantization.grid import least_squares

EVERY = [tiny for variants in tinies().values() for tiny in variants.values()]
IN_GGUF = [tinies()[family][names[0]] for family, names in gguf_families.VARIANTS.items()]


@pytest.mark.parametrize(("rows", "columns", "group"), [(64, 576, 32), (64, 1536, 64), (96, 576, 8), (32, 256, 16)])
def test_grouped_has_the_bits_of_torch(rows, columns, group):
    weight = np.random.default_rng(7).standard_normal((rows, columns)).astype(np.float32)
    weight[3], weight[5, :group] = 0, 0
    ours, theirs = grouped(weight, 4, group), least_squares(torch.from_numpy(weight), group, 4)
    assert np.array_equal(ours.codes, theirs.codes.numpy())
    assert np.array_equal(ours.scales, theirs.scales.numpy())


@pytest.mark.parametrize("number", TYPES, ids=lambda number: TYPES[number].name)
def test_every_block_decodes_as_in_the_gguf_package(number):
    kind, theirs = TYPES[number], GGMLQuantizationType(number)
    assert (kind.name, kind.weights, kind.bytes) == (theirs.name, *GGML_QUANT_SIZES[theirs])
    blocks = np.random.default_rng(8).integers(0, 256, (512, kind.bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        if kind.name == "F64":
            expected = blocks.view(np.float64).astype(np.float32)
        else:
            expected = gguf.quants.dequantize(blocks, theirs).reshape(512, -1)
        assert np.array_equal(kind.decode(blocks), expected, equal_nan=True)


@pytest.mark.parametrize("tiny", EVERY, ids=lambda tiny: f"{tiny.family}: {tiny.variant}")
def test_a_folder_is_read_as_by_torch(tiny: Tiny, tmp_path):
    tiny.save(tmp_path)
    compare(read_checkpoint(tmp_path), tmp_path)


@pytest.mark.parametrize("tiny", IN_GGUF, ids=lambda tiny: tiny.family)
def test_a_gguf_file_is_read_as_by_torch(tiny: Tiny, tmp_path):
    tiny.save(tmp_path)
    path = gguf_families.write_gguf(tmp_path, tmp_path / "model.gguf")
    compare(read_checkpoint(path), path)


def compare(ours: ArrayCheckpoint, path: Path) -> None:
    theirs = with_torch.read_checkpoint(path)
    assert ours.architecture == theirs.architecture
    assert (ours.tokenizer, ours.chat_template, ours.bos_id, ours.eos_ids) == (
        theirs.tokenizer, theirs.chat_template, theirs.bos_id, theirs.eos_ids,
    )  # fmt: skip
    assert parameter_shapes(ours.architecture) == shapes_of(theirs.family, theirs.architecture)
    assert ours.arrays.sources == theirs.weights.sources
    for name in ours.arrays.sources:
        assert np.array_equal(ours.arrays.read(name), theirs.weights.read(name).numpy()), name

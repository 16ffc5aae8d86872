"""Quantized GGUF files: programs built from them answer as transformers with the weights that the package gguf reads.

One family is in the gate: Granite, whose rows are reordered and multiplied. `python -m tests.studies families --gguf`
has all.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.studies.families.gguf_files import QuantizedFile, build, default_weights, measure, program_logits, write_file
from tests.support.harness.gate import slow_but
from tests.support.models.gguf_blocks import FORMATS, dequantize, quantize
from tests.support.models.gguf_families import QUANTIZED
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.families import families
from webpte.checkpoints.recipe import EMBEDDING, HEAD

IN_GATE = "granite"


@pytest.fixture(scope="module", params=slow_but(["Q4_K"], FORMATS))
def file(request, tmp_path_factory) -> QuantizedFile:
    return write_file(IN_GATE, request.param, tmp_path_factory.mktemp(request.param))


def test_program_of_a_quantized_file_answers_as_transformers(file):
    errors = measure(file)
    assert errors.are_right(IN_GATE, file.quantization), errors


def test_default_program_keeps_the_values_of_a_format(file):
    """Q4_0 exactly. Of Q4_K, offsets have 8 bits per row; of others, weights do: half a step of error at most."""
    source = read_checkpoint(file.path)
    for name, weight in default_weights(source).items():
        stored = source.weights.read(f"{name}.weight")
        largest = np.abs(stored).max(-1)
        if name == HEAD or (name != EMBEDDING and file.quantization in ("Q6_K", "Q8_0")):
            step = largest / 127
        elif file.quantization == "Q4_0":
            step = 0 * largest
        elif name != EMBEDDING:
            affine = source.weights.affine(f"{name}.weight")
            assert affine is not None
            step = np.abs(affine.offsets).max(-1) / 127
        else:
            continue  # the embedding of other formats has 4 bits
        error = np.sqrt(np.square(weight - stored).mean(-1))
        assert (error <= step / 2 + 1e-6 * largest).all(), name


@pytest.mark.parametrize("file", ["Q4_K"], indirect=True)
def test_quantized_file_in_place_of_a_program_answers_as_the_built_one(file, tmp_path, monkeypatch):
    expected = program_logits(file, build(file, "default"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert np.abs(program_logits(file, file.path) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("quantization", FORMATS)
def test_blocks_of_the_test_decode_to_the_weights(quantization):
    weight = np.random.default_rng(5).standard_normal((8, 512)).astype(np.float32)
    steps = {"Q4_0": 8, "Q4_K": 15, "Q6_K": 32, "Q8_0": 127}[quantization]
    error = np.abs(dequantize(quantize(weight, quantization), quantization) - weight).max()
    assert error <= 1.1 * np.abs(weight).max() / steps


def test_gguf_families_are_all_measured():
    by_other_names = {"mistral", "olmo3", "granite4"}  # of Llama, OLMo 2 and Granite
    assert set(QUANTIZED) == {name for name, family in families().items() if family.gguf_types} | by_other_names

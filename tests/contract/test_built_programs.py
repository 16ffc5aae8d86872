"""Built programs of every variant of every family have the logits of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.harness.built_models import SIZES, expected_logits, method_error, slots_error
from tests.support.harness.gate import slow_but
from tests.support.models import gguf_families
from tests.support.models.exact_weights import make_exact
from tests.support.models.families import CONTEXT, Tiny, tinies, write_tokenizer
from webpte.builder import build_program
from webpte.checkpoints.architecture import Architecture
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.device import acquire

TOLERANCE = 2e-5  # of the largest logit
VARIANTS = {f"{family}: {name}": tiny for family, variants in tinies().items() for name, tiny in variants.items()}
IN_GGUF = {
    f"{family}: {name}": tinies()[family][name] for family, names in gguf_families.VARIANTS.items() for name in names
}
FORMATS: tuple[dict[str, Any], ...] = (
    {"quantize": "4w", "embedding": "4,32", "lm_head": "4"},
    {"quantize": "4w", "group_size": 16, "embedding": "none", "lm_head": "none"},
    {"quantize": "8w"},
)


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    """Keep a device open: programs that are loaded one after the other share its pipelines."""
    gpu = acquire({})
    yield
    gpu.release()


def save(tiny: Tiny, folder: Path) -> np.ndarray:
    """Save a checkpoint that every format holds exactly, and return the logits of transformers."""
    model = make_exact(tiny.make())
    model.save_pretrained(folder)
    write_tokenizer(folder / "tokenizer.json")
    return expected_logits(model)


@pytest.mark.parametrize("name", VARIANTS)
def test_variant_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    """In floats by its own method, in 4 bits in two slots."""
    expected = save(VARIANTS[name], tmp_path)
    floats = build_program(tmp_path, tmp_path / "floats.pte", quantize=None, **SIZES)
    assert method_error(floats, expected) <= TOLERANCE
    quantized = build_program(tmp_path, tmp_path / "quantized.pte", quantize="4w", **SIZES)
    assert slots_error(quantized, expected) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_variant_in_every_format_equals_transformers(name: str, tmp_path: Path) -> None:
    expected = save(VARIANTS[name], tmp_path)
    for options in FORMATS:
        if "experts" in str(VARIANTS[name].fields) and options["quantize"] == "8w":
            continue  # 8-bit experts are refused
        path = build_program(tmp_path, tmp_path / "model.pte", **options, **SIZES)
        assert max(method_error(path, expected), slots_error(path, expected)) <= TOLERANCE, options


@pytest.mark.parametrize("name", IN_GGUF)
def test_gguf_checkpoint_equals_checkpoint_of_transformers(name: str, tmp_path: Path) -> None:
    """The builder is called with the same architecture and weights, so the program is the same."""
    IN_GGUF[name].save(tmp_path)
    expected, got = read_checkpoint(tmp_path), read_checkpoint(gguf_families.write_gguf(tmp_path, tmp_path / "m.gguf"))
    assert described(got.architecture) == described(expected.architecture)
    for rope in expected.architecture.ropes:
        ours, theirs = (source.architecture.rotary_table(rope, CONTEXT) for source in (got, expected))
        assert np.allclose(np.array(ours), np.array(theirs), rtol=0, atol=1e-5)
    # Where nothing rotates, any order of the elements of queries and keys is right.
    still = [number for number, layer in enumerate(expected.architecture.layers) if layer.rope is None]
    unordered = tuple(f"layers.{number}.attention.w{part}." for number in still for part in "qk")
    assert set(got.weights.sources) == set(expected.weights.sources)
    for parameter in expected.weights.sources:
        first, second = (source.weights.read(parameter) for source in (got, expected))
        if parameter.startswith(unordered):
            first, second = np.sort(first, axis=0), np.sort(second, axis=0)
        assert np.allclose(first, second, rtol=1e-5, atol=1e-6), parameter


def described(model: Architecture) -> Any:
    """Return what the builder reads of an architecture besides its weights and the tables of its ropes."""
    every = range(model.n_layers)
    layers = tuple(
        replace(layer, head_dim=model.head_width(number), hidden_dim=model.hidden_width(number))
        for number, layer in zip(every, model.layers, strict=True)
    )
    return rounded(asdict(replace(model, layers=layers, head_dim=0, hidden_dim=0, ropes={}, norm_offset=0.0)))


def rounded(value: Any) -> Any:
    """Return a value with its floats in five digits: files store some as f32."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", slow_but(["llama: plain", "gemma3: as GGUF can say it"], IN_GGUF))
def test_built_from_gguf_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    expected = save(IN_GGUF[name], tmp_path)
    file = gguf_families.write_gguf(tmp_path, tmp_path / "model.gguf")
    for quantize in (None, "4w"):
        built = build_program(file, tmp_path / "model.pte", quantize=quantize, **SIZES)
        assert slots_error(built, expected) <= TOLERANCE

"""Programs of the builder: the logits of transformers, and to the last bit those that ExecuTorch exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import webpte
from tests.families.measuring import TOLERANCE, difference, steps
from tests.support.harness.gate import slow_but
from tests.support.models import example_models, gguf_families
from tests.support.models.families import CONTEXT, MAX_TOKENS, PREFILL, Tiny, first, tinies, tokens
from tests.support.oracle.module import build_module, export_module, quantized_module
from webpte.builder import build_program
from webpte.builder.context import choose_sizes
from webpte.checkpoints.checkpoint import read_checkpoint

ORACLE = Path(__file__).parents[1] / "support" / "oracle"
IN_F32 = ("qwen3",)
BUILT = {f"{family}: {name}": tiny for family, variants in tinies().items() for name, tiny in variants.items()}
IN_GATE = [f"{family}: {first(family).variant}" for family in ("llama", "gemma2", "gemma3", "lfm2", "qwen3_5")]
IN_GGUF = {
    f"{family}: {name}": tinies()[family][name] for family, names in gguf_families.VARIANTS.items() for name in names
}


def logits(path: Path) -> np.ndarray:
    """Return the logits of a prefill and of each token after it."""
    rows, position = [], 0
    with webpte.load(path) as program:
        forward = program.method("forward")
        for step in steps():
            rows.append(np.array(forward(np.array([step]), np.array([position]))).reshape(-1))
            position += len(step)
    return np.array(rows)


def build(checkpoint: Path, path: Path, **options: object) -> Path:
    return build_program(checkpoint, path, max_context=CONTEXT, max_tokens=MAX_TOKENS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", slow_but(IN_F32, tinies()))
def test_built_program_logits_equal_exported(family: str, tmp_path: Path) -> None:
    """Exported from the oracle in torch."""
    tiny, checkpoint = first(family), tmp_path / "checkpoint"
    tiny.save(checkpoint)
    source = read_checkpoint(checkpoint)

    def make(folder: Path) -> None:
        sizes = choose_sizes(source, CONTEXT, MAX_TOKENS)
        export_module(build_module(source, CONTEXT, MAX_TOKENS), source, folder / "model.pte", sizes)

    exporter = [*example_models.LOWERED, "checkpoints/weights", f"checkpoints/families/{tiny.family}"]
    folder = example_models.cached(f"oracle-{family}", sorted(ORACLE.glob("*.py")), make, repr(tiny), exporter=exporter)
    exported = folder / "model.pte"
    assert np.array_equal(logits(build(checkpoint, tmp_path / "model.pte", quantize=None)), logits(exported))


def transformers_logits(tiny: Tiny, folder: Path) -> np.ndarray:
    """Save a checkpoint and return the logits that transformers computes."""
    model = tiny.save(folder)
    with torch.no_grad():
        rows: np.ndarray = model(torch.tensor([tokens()])).logits[0, PREFILL - 1 :].numpy()
    return rows


@pytest.mark.parametrize("name", slow_but(IN_GATE, BUILT))
def test_built_program_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    expected = transformers_logits(BUILT[name], tmp_path)
    built = build(tmp_path, tmp_path / "model.pte", quantize=None)
    assert difference(logits(built), expected) <= TOLERANCE


@pytest.mark.parametrize("name", slow_but(["llama: plain", "gemma3: as GGUF can say it"], IN_GGUF))
def test_built_from_gguf_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    expected = transformers_logits(IN_GGUF[name], tmp_path)
    file = gguf_families.write_gguf(tmp_path, tmp_path / "model.gguf")
    built = build(file, tmp_path / "model.pte", quantize=None)
    assert difference(logits(built), expected) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("llama: scaled RoPE", {"quantize": "4w", "embedding": "4,32", "lm_head": "4"}),
        ("granite: biases", {"quantize": "4w"}),
        ("granite: biases", {"quantize": "8w", "embedding": "none", "lm_head": "none"}),
        ("granite: biases", {"quantize": "8da4w", "lm_head": "4"}),
        ("gemma3: both kinds of layers", {"quantize": "4w"}),
        ("lfm2: three taps", {"quantize": "4w"}),
    ],
)
def test_built_quantized_program_logits_equal_exported(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    BUILT[name].save(checkpoint)
    built = build(checkpoint, tmp_path / "built.pte", **options)
    source, exported = read_checkpoint(checkpoint), tmp_path / "exported.pte"
    quantized = quantized_module(checkpoint, built, CONTEXT, MAX_TOKENS)
    export_module(quantized, source, exported, choose_sizes(source, CONTEXT, MAX_TOKENS))
    assert np.array_equal(logits(built), logits(exported))

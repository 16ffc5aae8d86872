"""Programs built without torch: the same logits as those that ExecuTorch exports, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import webpte
from tests.families.measuring import TOLERANCE, difference, measured, steps
from tests.support.harness.gate import slow_but
from tests.support.models import gguf_families
from tests.support.models.families import CONTEXT, MAX_TOKENS, PREFILL, Tiny, first, tinies, tokens
from webpte.builder import build_program
from webpte.export import export_llm

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
    exported = measured(first(family))
    built = build(exported.folder / "checkpoint", tmp_path / "model.pte", quantize=None)
    assert np.array_equal(logits(built), logits(exported.path))


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
def test_codes_and_logits_equal_uncalibrated_export(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    BUILT[name].save(tmp_path / "checkpoint")
    built = build(tmp_path / "checkpoint", tmp_path / "built.pte", **options)
    exported = export_llm(
        tmp_path / "checkpoint",
        tmp_path / "exported.pte",
        **options,
        calibrate=False,
        quality=False,
        max_context=CONTEXT,
        max_tokens=MAX_TOKENS,
    )
    assert np.array_equal(logits(built), logits(exported))

"""Exports of tiny checkpoints in the cache, and how far what they answer is from what eager PyTorch says.

In f32 transformers says what is right, in 4w the module that was exported, quantized and run eagerly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.export.exporter_files import exporter_files
from tests.support.export.exporting import cache_root, kept, key_of
from tests.support.export.sources import definitions_hash, source_hash
from tests.support.models import families
from tests.support.models.families import CONTEXT, DECODE, MAX_TOKENS, PREFILL, Tiny
from tests.support.models.named import installed

TOLERANCE = 1e-4  # of the largest logit
GROUP = 32


@dataclass(frozen=True)
class Measured:
    """One program."""

    tiny: Tiny
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "model.pte"

    def wanted(self) -> np.ndarray:
        """Logits behind the prefill and behind each token after it, (1 + DECODE, V)."""
        return np.load(self.folder / "wanted.npy")

    def error(self) -> float:
        """The largest difference from what is wanted, relative to the largest logit; NaN is no small number."""
        from webpte.llm import LLM

        with LLM.load(self.path) as llm:
            sequence = llm.sequence()
            got = np.concatenate([sequence.logits(step) for step in steps()])
        return difference(got, self.wanted())


def difference(got: np.ndarray, wanted: np.ndarray) -> float:
    assert got.shape == wanted.shape, f"{got.shape}, not {wanted.shape}"
    assert np.isfinite(wanted).all() and np.abs(wanted).max() > 0.1
    largest = float(np.abs(got - wanted).max() / np.abs(wanted).max())
    return largest if np.isfinite(got).all() else float("inf")


def steps() -> Iterator[list[int]]:
    """A prefill, and tokens one by one."""
    tokens = families.tokens()
    yield tokens[:PREFILL]
    yield from ([token] for token in tokens[PREFILL : PREFILL + DECODE])


def measured(tiny: Tiny, quantize: str | None = None) -> Measured:
    """From the cache, or exported now."""
    sources = [source_hash(path) for path in exporter_files("export/llm", f"checkpoints/families/{tiny.family}")]
    sources.append(definitions_hash((Path(__file__), "write"), (Path(families.__file__), "Tiny")))
    params = {"quantize": quantize, "model_type": tiny.model_type, "fields": tiny.fields}
    params["transformers"] = installed("transformers")
    name = f"{tiny.family}-{quantize or 'f32'}"
    folder = cache_root() / f"{name}-{key_of(' '.join(sources), 'measured', params)}"
    kept(folder, name, params, lambda partial: write(tiny, quantize, partial))
    return Measured(tiny, folder)


def write(tiny: Tiny, quantize: str | None, folder: Path) -> None:
    import torch

    from webpte.export import export_llm

    model = tiny.save(folder / "checkpoint")
    with torch.no_grad():
        if quantize is None:
            logits = model(torch.tensor([families.tokens()])).logits[0, PREFILL - 1 :]
        else:
            logits = eager(quantized(folder / "checkpoint", quantize))
    np.save(folder / "wanted.npy", logits.numpy())
    export_llm(
        folder / "checkpoint",
        folder / "model.pte",
        quantize=quantize,
        group_size=GROUP,
        max_context=CONTEXT,
        max_tokens=MAX_TOKENS,
        quality=False,
    )


def quantized(checkpoint: Path, quantize: str) -> Any:
    """The module that is exported."""
    from webpte.builder.options import LLMOptions
    from webpte.checkpoints.checkpoint import read_checkpoint
    from webpte.export.llm import quantized_module

    options = LLMOptions(quantize, GROUP, max_context=CONTEXT, max_tokens=MAX_TOKENS)
    return quantized_module(read_checkpoint(checkpoint), options)[0]


def eager(module: Any) -> Any:
    """Its logits, call by call, (1 + DECODE, V)."""
    import torch

    rows, position = [], 0
    for step in steps():
        rows.append(module(torch.tensor([step]), {"input_pos": torch.tensor([position])}).reshape(1, -1))
        position += len(step)
    return torch.cat(rows)

"""Build programs of tiny checkpoints in the cache, and compare their logits with eager PyTorch.

In f32 the reference is transformers, in 4w the oracle with the quantized weights of the program.
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
    """One exported checkpoint, with the logits of transformers."""

    tiny: Tiny
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "model.pte"

    def expected(self) -> np.ndarray:
        """Return the logits of transformers after the prefill and after each further token, (1 + DECODE, V)."""
        return np.load(self.folder / "wanted.npy")

    def error(self) -> float:
        """Return the largest difference from transformers, relative to the largest logit; infinity for NaN."""
        from webpte.llm import LLM

        with LLM.load(self.path) as llm:
            sequence = llm.sequence()
            got = np.concatenate([sequence.logits(step) for step in steps()])
        return difference(got, self.expected())


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    assert got.shape == expected.shape, f"{got.shape}, not {expected.shape}"
    assert np.isfinite(expected).all() and np.abs(expected).max() > 0.1
    largest = float(np.abs(got - expected).max() / np.abs(expected).max())
    return largest if np.isfinite(got).all() else float("inf")


def steps() -> Iterator[list[int]]:
    """Yield the tokens of a prefill, then tokens one by one."""
    tokens = families.tokens()
    yield tokens[:PREFILL]
    yield from ([token] for token in tokens[PREFILL : PREFILL + DECODE])


def measured(tiny: Tiny, quantize: str | None = None) -> Measured:
    """Return a program from the cache, or build it."""
    sources = [source_hash(path) for path in exporter_files("builder/llm", f"checkpoints/families/{tiny.family}")]
    sources.append(definitions_hash((Path(__file__), "write"), (Path(families.__file__), "Tiny")))
    params = {"quantize": quantize, "model_type": tiny.model_type, "fields": tiny.fields}
    params["transformers"] = installed("transformers")
    name = f"{tiny.family}-{quantize or 'f32'}"
    folder = cache_root() / f"{name}-{key_of(' '.join(sources), 'measured', params)}"
    kept(folder, name, params, lambda partial: write(tiny, quantize, partial))
    return Measured(tiny, folder)


def write(tiny: Tiny, quantize: str | None, folder: Path) -> None:
    import torch

    from tests.support.oracle.module import quantized_module
    from webpte.export import export_llm

    checkpoint, path = folder / "checkpoint", folder / "model.pte"
    model = tiny.save(checkpoint)
    export_llm(checkpoint, path, quantize=quantize, group_size=GROUP, max_context=CONTEXT, max_tokens=MAX_TOKENS)
    with torch.no_grad():
        if quantize is None:
            logits = model(torch.tensor([families.tokens()])).logits[0, PREFILL - 1 :]
        else:
            logits = eager(quantized_module(checkpoint, path, CONTEXT, MAX_TOKENS))
    np.save(folder / "wanted.npy", logits.numpy())


def eager(module: Any) -> Any:
    """Its logits, call by call, (1 + DECODE, V)."""
    import torch

    rows, position = [], 0
    for step in steps():
        rows.append(module(torch.tensor([step]), {"input_pos": torch.tensor([position])}).reshape(1, -1))
        position += len(step)
    return torch.cat(rows)

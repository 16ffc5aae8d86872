"""Build programs of tiny checkpoints in the cache, and compare their logits with transformers.

In 4w, transformers has the quantized weights of the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.export.exporter_files import exporter_files
from tests.support.export.exporting import cache_root, kept, key_of
from tests.support.export.sources import definitions_hash, source_hash
from tests.support.harness.built_models import difference
from tests.support.models import families
from tests.support.models.dequantized import program_values, transformers_model
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

    from webpte.checkpoints.checkpoint import read_checkpoint
    from webpte.export import export_llm

    checkpoint, path = folder / "checkpoint", folder / "model.pte"
    model = tiny.save(checkpoint)
    export_llm(checkpoint, path, quantize=quantize, group_size=GROUP, max_context=CONTEXT, max_tokens=MAX_TOKENS)
    if quantize is not None:
        model = transformers_model(checkpoint, program_values(read_checkpoint(checkpoint), path))
    with torch.no_grad():
        logits = model(torch.tensor([families.tokens()])).logits[0, PREFILL - 1 :]
    np.save(folder / "wanted.npy", logits.numpy())

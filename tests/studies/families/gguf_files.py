"""Quantized GGUF files of every family that has them: what their programs answer, and what transformers does.

The package gguf writes each file and reads it back. transformers has the weights that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.support.harness.built_models import difference
from tests.support.models import families, gguf_families
from tests.support.models.dequantized import transformers_model
from tests.support.models.families import CONTEXT, DECODE, MAX_TOKENS, PREFILL, Tiny, tinies
from tests.support.models.gguf_blocks import BLOCK
from tests.support.models.gguf_families import QUANTIZED

from .measuring import TOLERANCE

KEPT_DIVERGENCE = {"Q4_0": 1e-4}  # nats, of a format that the default program keeps
PROMPTS = (PREFILL, 5)  # tokens of each


class Errors(NamedTuple):
    """Differences of the programs of a file from transformers with the file's weights."""

    floats: float  # the largest difference of the program in f32, relative to the largest logit
    default: float  # the same of the default program, from transformers with the default program's weights
    divergence: float  # mean KL divergence of the default program from transformers, in nats

    def are_right(self, family: str, quantization: str) -> bool:
        bound = KEPT_DIVERGENCE.get(quantization, families.max_divergence(family))
        return max(self.floats, self.default) <= TOLERANCE and self.divergence <= bound


def wide(family: str) -> Tiny:
    """Return the checkpoint of a family that is quantized: the rows of all matrices are whole blocks of 256."""
    tiny = tinies()[family][QUANTIZED[family]]
    heads = 32 if "head_dim" in tiny.fields else BLOCK // 16  # of 24, or of 16
    values = {}
    if "linear_value_head_dim" in tiny.fields:  # short keys overlap, which multiplies errors
        values = {"linear_value_head_dim": BLOCK // 4, "linear_key_head_dim": BLOCK // 4}
    if "shared_intermediate_size" in tiny.fields:
        values = {"shared_intermediate_size": 2 * BLOCK}
    if "moe_intermediate_size" in tiny.fields:
        values = {"moe_intermediate_size": BLOCK}
    if "hidden_size_per_layer_input" in tiny.fields:
        values = {"hidden_size_per_layer_input": BLOCK}
    sizes = {**values, "hidden_size": BLOCK, "intermediate_size": 2 * BLOCK, "num_attention_heads": heads}
    return replace(tiny, fields={**tiny.fields, **sizes})


@dataclass(frozen=True)
class QuantizedFile:
    """A GGUF file, and what transformers answers with its weights."""

    path: Path
    quantization: str
    prompts: list[list[int]]
    answers: list[list[int]]  # the most likely tokens after each prompt
    logits: np.ndarray  # after each prompt and after each token of its answer, (prompts * (1 + DECODE), V)

    def calls(self, index: int) -> list[list[int]]:
        """Return the tokens of each call: a prompt, then its answer one by one."""
        return [self.prompts[index], *([token] for token in self.answers[index])]


def write_file(family: str, quantization: str, folder: Path) -> QuantizedFile:
    import torch
    from safetensors.torch import save_file

    model = wide(family).save(folder)
    path = gguf_families.write_gguf(folder, folder / f"{family}.gguf", quantization)
    state = {name: torch.tensor(weight) for name, weight in gguf_families.read_back(path, folder).items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    model = type(model).from_pretrained(folder, attn_implementation="eager")
    prompts, answers, rows = [], [], []
    for seed, count in enumerate(PROMPTS):
        prompt = [int(token) for token in np.random.default_rng(seed).integers(3, families.VOCABULARY, count)]
        tokens = list(prompt)
        with torch.no_grad():
            for _ in range(DECODE):
                tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
            rows.append(model(torch.tensor([tokens])).logits[0, count - 1 :].numpy())
        prompts.append(prompt)
        answers.append(tokens[count:])
    return QuantizedFile(path, quantization, prompts, answers, np.concatenate(rows))


def build(file: QuantizedFile, name: str, **options: Any) -> Path:
    """Build a program, without torch."""
    from webpte.builder import build_program

    path = file.path.with_name(f"{name}.pte")
    return build_program(file.path, path, max_context=CONTEXT, max_tokens=MAX_TOKENS, **options)


def program_logits(file: QuantizedFile, path: Path) -> np.ndarray:
    """Return the logits of a program, or of the program that a checkpoint becomes."""
    from webpte.llm import LLM

    with LLM.load(path) as llm:
        rows = []
        for index in range(len(file.prompts)):
            sequence = llm.sequence()
            rows += [sequence.logits(tokens) for tokens in file.calls(index)]
            sequence.close()
    return np.concatenate(rows)


def measure(file: QuantizedFile) -> Errors:
    """Build both programs of a file and compare them."""
    floats = program_logits(file, build(file, "floats", quantize=None))
    assert (floats.argmax(-1) == file.logits.argmax(-1)).all(), "the most likely tokens differ"
    default = program_logits(file, build(file, "default"))
    return Errors(
        difference(floats, file.logits),
        difference(default, default_logits(file)),
        divergence(file.logits, default),
    )


def divergence(expected: np.ndarray, logits: np.ndarray) -> float:
    """Return the mean KL divergence of next-token distributions, in nats."""
    first, second = (rows - np.logaddexp.reduce(rows, axis=-1, keepdims=True) for rows in (expected, logits))
    return float((np.exp(first) * (first - second)).sum(-1).mean())


def default_logits(file: QuantizedFile) -> np.ndarray:
    """Return the logits of transformers with the weights of the default program."""
    import torch

    from webpte.checkpoints.checkpoint import read_checkpoint

    model = transformers_model(file.path.parent, default_weights(read_checkpoint(file.path)))
    rows = []
    with torch.no_grad():
        for prompt, answer in zip(file.prompts, file.answers, strict=True):
            rows.append(model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 :].numpy())
    return np.concatenate(rows)


def default_weights(source: Any) -> dict[str, np.ndarray]:
    """Return the dequantized weights of linear layers and embedding in the default program, by name."""
    from webpte.builder.quantize import FOUR_BITS_WITH_OFFSETS
    from webpte.builder.recipe import ProgramWeights, default_recipe
    from webpte.checkpoints.recipe import EMBEDDING

    recipe, weights = default_recipe(source), ProgramWeights(source)
    results = {}
    for name, kind in {**recipe.linears, EMBEDDING: recipe.embedding}.items():
        results[name] = weights.quantized(name, kind).values()
        if kind == FOUR_BITS_WITH_OFFSETS:
            codes, scales = weights.offsets(name)  # (G, N) and (N,)
            results[name] = results[name] + np.repeat(codes.T * scales[:, None], kind.group, axis=1)
    return results

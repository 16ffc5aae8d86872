"""Adapters that PEFT writes for every family: what is added to each layer, and the logits of programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.harness.gate import slow_but, slow_rows_but
from tests.support.models.families import CONTEXT, MAX_TOKENS, Tiny, first, tinies, tokens, write_tokenizer
from tests.support.models.peft_adapter import with_adapter
from webpte.builder import build_program
from webpte.checkpoints.adapters import adapter_modules, read_adapters
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.llm import LLM

EVERY = [tiny for variants in tinies().values() for tiny in variants.values()]
FIRST = [first(family) for family in tinies()]
# PEFT takes the stacked experts of these for layers, too, which are refused.
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
TARGETS = dict.fromkeys(("mixtral", "olmoe", "qwen3_moe"), ATTENTION)
PROMPT = 9  # tokens that are computed before those whose logits are compared
# Of the norm of all logits, by format. Scales of 4 bits are rounded to f16; inputs of 8da4w have 8 bits.
TOLERANCES = {None: 5e-5, "8w": 5e-5, "4w": 1e-3, "8da4w": 0.2}


@pytest.mark.parametrize("tiny", slow_but(FIRST, EVERY), ids=lambda tiny: f"{tiny.family}: {tiny.variant}")
def test_adapter_matrices_of_every_layer_equal_what_peft_merges(tiny: Tiny, tmp_path):
    model = tiny.save(tmp_path / "base")
    fields = {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}}
    adapted = with_adapter(model, tmp_path / "adapter", TARGETS.get(tiny.family, "all-linear"), **fields)
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    write_tokenizer(tmp_path / "merged/tokenizer.json")
    base, merged = (read_checkpoint(tmp_path / name) for name in ("base", "merged"))
    modules = adapter_modules(base.architecture, base.family.names)
    layers = read_adapters({"a": tmp_path / "adapter"}, modules, "model.pte")["a"]
    changed = set()
    for name in base.weights.sources:
        change = merged.weights.read(name) - base.weights.read(name)
        if not change.any():
            continue
        layer = name.removesuffix(".weight")
        changed.add(layer)
        assert np.allclose(layers[layer].up().T @ layers[layer].down(), change, atol=1e-5), name
    assert changed == {*layers}


def quantizable(model: torch.nn.Module, bits: int) -> torch.nn.Module:
    """Round the weights of linear layers, so that codes of `bits` in groups of 32, or of a row, lose nothing."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim < 2 or name.endswith(("embed_tokens.weight", "lm_head.weight")):
                continue
            four = bits == 4 or "embed_tokens_per_layer" in name  # which has 4 bits in every quantized program
            low, high, group = (-8, 7, 32) if four else (-128, 127, weight.shape[-1])
            steps = (weight * (high / 3 * weight.shape[-1] ** 0.5)).round().clip(low, high)
            steps[..., ::group] = low
            weight.copy_(steps * 2.0 ** -round(np.log2(high / 3 * weight.shape[-1] ** 0.5)))
    return model


def logits(llm: LLM, adapter: str | None) -> np.ndarray:
    """Return the logits of the tokens after the prompt."""
    sequence = llm.sequence()
    sequence.generate(tokens=tokens()[:PROMPT], max_new_tokens=1, stop=[], adapter=adapter).result()
    if sequence.position > PROMPT:
        sequence.rewind(sequence.position - PROMPT)
    return sequence.logits(tokens()[PROMPT:], every=True)


def difference(got: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(got - reference) / np.linalg.norm(reference))


def one_layer(tiny: Tiny) -> Tiny:
    """Return the model with the fewest layers that have every kind."""
    fields = {**tiny.fields}
    kinds: list[str] = fields.get("layer_types", [])
    if len({*kinds}) == 1:
        fields |= {"num_hidden_layers": 1, "layer_types": kinds[:1]}
    elif not kinds and "num_hidden_layers" not in fields:
        fields |= {"num_hidden_layers": 1}
    return Tiny(tiny.family, tiny.variant, tiny.model_type, fields)


GATE = [("granite4", "8w"), ("phi3", "8da4w"), ("gpt_oss", None), ("qwen3_5", "4w"), ("gemma4", None)]
FORMATS = [
    (family, kind)
    for family in tinies()
    for kind in TOLERANCES
    # Experts have 4 bits or f32. With inputs of 8 bits, other experts are chosen.
    if kind in (None, "4w") or not ("moe" in family or family in ("gpt_oss", "mixtral"))
]


@pytest.mark.parametrize(("family", "quantize"), slow_rows_but(GATE, FORMATS))
def test_adapter_logits_of_program_equal_peft(family: str, quantize: str | None, tmp_path: Path):
    tiny = one_layer(first(family))
    model = tiny.make()
    if quantize is not None:
        model = quantizable(model, 8 if quantize == "8w" else 4)
    model.save_pretrained(tmp_path / "base")
    write_tokenizer(tmp_path / "base/tokenizer.json")
    expected: dict[str | None, np.ndarray] = {}
    with torch.no_grad():
        expected[None] = model(torch.tensor([tokens()])).logits[0, PROMPT:].numpy()
        adapted = with_adapter(model, tmp_path / "adapter", TARGETS.get(family, "all-linear"))
        expected["a"] = adapted(torch.tensor([tokens()])).logits[0, PROMPT:].numpy()
    options: dict[str, Any] = {"quantize": quantize, "max_context": CONTEXT, "max_tokens": MAX_TOKENS}
    if quantize is not None:
        options |= {"embedding": "none", "lm_head": "none"}
    path = build_program(tmp_path / "base", tmp_path / "model.pte", **options)
    with LLM.load(path, adapters={"a": tmp_path / "adapter"}, kv_cache="f32") as llm:
        for name, reference in expected.items():
            assert difference(logits(llm, name), reference) <= TOLERANCES[quantize], name
    assert difference(expected["a"], expected[None]) > 0.3

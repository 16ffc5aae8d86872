"""Mixtures of experts: what a program holds of them, and what a call of their op costs and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import webpte
from tests.cases.experts.experts import mixture
from tests.support.harness.cases import OneOp, T
from tests.support.harness.errors import raises
from tests.support.models.families import tinies
from tests.support.models.gguf_families import write_gguf
from webpte.builder import build_program
from webpte.builder.recipe import default_recipe
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.recipe import MXFP4, UNQUANTIZED, Recipe, WeightFormat, linear_recipe
from webpte.graph import Origin, names
from webpte.graph.delegate import refuse_own
from webpte.llm import LLM
from webpte.lowering import registered

SHAPES = {"layers.0.experts.0.w1": (32, 64), "layers.0.experts.0.w2": (64, 32), "layers.0.attention.wo": (64, 96)}


@pytest.mark.parametrize(
    ("mode", "group", "expected"), [("4w", 16, 16), ("4w", 12, 32), ("8da4w", 0, 32), ("8da4w", 32, 32)]
)
def test_experts_have_4_bits_in_groups_of_whole_words(mode, group, expected):
    recipe = linear_recipe(SHAPES, mode, group)
    kinds = {kind for name, kind in recipe.linears.items() if ".experts." in name}
    assert kinds == {WeightFormat("4w", expected)}


def test_expert_of_odd_width_stays_in_f32():
    recipe = linear_recipe({**SHAPES, "layers.0.experts.0.w2": (64, 36)}, "4w", 32)
    assert recipe.linears["layers.0.experts.0.w2"] == UNQUANTIZED


def test_8_bit_experts_are_refused():
    with raises(webpte.UnsupportedError, "quantize", "'8w'", "'4w'", code="expert_format"):
        linear_recipe(SHAPES, "8w", 32)


def test_stacked_experts_equal_single_ones(tmp_path):
    """Published files of Qwen3.5 MoE have the gates and values of all experts of a layer as one tensor."""
    tinies()["qwen3_5_moe"]["shared keys"].save(tmp_path)
    single = read_checkpoint(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    count = json.loads((tmp_path / "config.json").read_text())["num_experts"]
    for number in range(single.architecture.n_layers):
        block = f"model.layers.{number}.mlp.experts"
        parts = {
            part: np.stack([tensors.pop(f"{block}.{expert}.{part}.weight") for expert in range(count)])
            for part in ("gate_proj", "up_proj", "down_proj")
        }
        tensors[f"{block}.gate_up_proj"] = np.concatenate([parts["gate_proj"], parts["up_proj"]], axis=1)
        tensors[f"{block}.down_proj"] = parts["down_proj"]
    names_of = [name for name in single.weights.sources if ".experts." in name]
    before = {name: single.weights.read(name) for name in names_of}
    stacked = tmp_path / "stacked"
    stacked.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (stacked / name).write_text((tmp_path / name).read_text())
    save_file(tensors, stacked / "model.safetensors")
    other = read_checkpoint(stacked)
    assert len(before) == 3 * count * single.architecture.n_layers
    assert all(np.array_equal(other.weights.read(name), weight) for name, weight in before.items())


@pytest.mark.slow
def test_program_with_experts_in_mxfp4_answers_as_the_one_in_floats(tmp_path, monkeypatch):
    """Of a GGUF file of Qwen3 with experts; the other layers are in floats in both programs."""
    tiny = tinies()["qwen3_moe"]["experts in all layers"]
    replace(tiny, fields={**tiny.fields, "hidden_size": 64, "intermediate_size": 64}).save(tmp_path)
    file, logits = write_gguf(tmp_path, tmp_path / "model.gguf", "MXFP4"), []
    chosen = default_recipe(read_checkpoint(file))
    experts = {name: kind for name, kind in chosen.linears.items() if ".experts." in name}
    assert set(experts.values()) == {MXFP4}
    monkeypatch.setattr("webpte.builder.options.default_recipe", lambda source: Recipe(experts))
    for quantize in ("checkpoint", None):
        path = build_program(file, tmp_path / f"{quantize}.pte", quantize=quantize, max_context=64, max_tokens=16)
        with LLM.load(path) as llm:
            logits.append(llm.sequence().logits([5, 17, 3, 60, 8, 41, 9]))
    assert np.abs(logits[0] - logits[1]).max() <= 1e-4 * np.abs(logits[1]).max()


def test_cost_of_a_row_counts_only_chosen_experts():
    traits = registered()[names.EXPERTS].traits
    dims = {"gate": (32, 96, 64)}
    sizes = SimpleNamespace(out=(1, 2, 64), dims=dims.__getitem__, number={"chosen": 4}.__getitem__)
    assert traits.work is not None and traits.work(sizes) == 2 * 4 * 3 * 2 * 96 * 64
    assert {share(sizes, (32, 96, 32), False) for share in traits.memory_traffic.values()} == {8 / 32}
    assert set(traits.memory_traffic) == {f"{part}{of}" for part in ("gate", "up", "down") for of in ("", "_scales")}


def test_file_may_call_experts_and_no_other_op_of_ours(monkeypatch):
    monkeypatch.setattr(names, "OWN", "webpte.")
    refuse_own(names.EXPERTS, Origin(0))
    with raises(webpte.GraphError, "webpte.copy"):
        refuse_own("webpte.copy", Origin(0))


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (11, 5),
        (11, 0),
        (12, "tanh"),
        (16, "relu"),
        (18, T(4, 32, constant=True)),
        (19, T(4, 1, constant=True)),
        (9, 24),
        (9, 0),
        (10, 64),
    ],
    ids=["chosen", "none", "scoring", "activation", "input bias", "output bias", "group", "no group", "down group"],
)
def test_experts_of_other_shapes_are_refused(position, value, tmp_path):
    """A file may call the op with anything."""
    subject = mixture((4, 2, 64, 32), n=(3,))
    args = list(subject.args)
    args[position] = value
    OneOp(replace(subject, args=tuple(args))).write(tmp_path / "op.pte")
    with pytest.raises((webpte.ShapeError, webpte.GraphError)), webpte.load(tmp_path / "op.pte") as program:
        program.method()


def published(folder, drop=None):
    """Write a tiny gpt-oss as it is published: experts in MXFP4 of random codes. Return the tensors."""
    tinies()["gpt_oss"]["every second layer"].save(folder)
    tensors, random = load_file(folder / "model.safetensors"), np.random.default_rng(5)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        count, columns, rows = tensors.pop(name).shape
        tensors[f"{name}_blocks"] = random.integers(0, 256, (count, rows, columns // 32, 16), np.uint8)
        tensors[f"{name}_scales"] = random.integers(118, 125, (count, rows, columns // 32), np.uint8)
    save_file(
        {name: each for name, each in tensors.items() if drop is None or drop not in name}, folder / "model.safetensors"
    )
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    return tensors


def test_experts_in_mxfp4_of_safetensors_are_those_that_transformers_reads(tmp_path):
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    tensors = published(tmp_path)
    checkpoint = read_checkpoint(tmp_path)
    recipe = default_recipe(checkpoint)
    assert {kind for name, kind in recipe.linears.items() if ".experts." in name} == {MXFP4}
    parts = ((0, "gate_up_proj", "w1", 0, 2), (1, "gate_up_proj", "w3", 1, 2), (1, "down_proj", "w2", 0, 1))
    for layer, part, own, first, step in parts:
        stored = f"model.layers.{layer}.mlp.experts.{part}"
        packed = [torch.from_numpy(tensors[f"{stored}_{kind}"]) for kind in ("blocks", "scales")]
        values = convert_moe_packed_tensors(*packed, dtype=torch.float32).numpy()  # (E, K, N)
        for expert in (0, 5):
            name = f"layers.{layer}.experts.{expert}.{own}.weight"
            assert np.array_equal(checkpoint.weights.read(name), values[expert].T[first::step])
            codes, scales = checkpoint.weights.codes(name)
            rows = slice(first, None, step)
            assert np.array_equal(codes, tensors[f"{stored}_blocks"][expert, rows].reshape(len(codes), -1))
            assert np.array_equal(scales, tensors[f"{stored}_scales"][expert, rows])


def test_codes_without_scales_are_refused(tmp_path):
    published(tmp_path, drop="layers.1.mlp.experts.down_proj_scales")
    with raises(webpte.UnsupportedError, "not floats", "layers.1.mlp.experts.down_proj_blocks", code="tensor_type"):
        read_checkpoint(tmp_path)


@pytest.mark.slow
def test_program_of_published_gpt_oss_answers_as_the_one_in_floats(tmp_path, monkeypatch):
    published(tmp_path)
    chosen, logits = default_recipe(read_checkpoint(tmp_path)), []
    experts = {name: kind for name, kind in chosen.linears.items() if ".experts." in name}
    monkeypatch.setattr("webpte.builder.options.default_recipe", lambda source: Recipe(experts))
    for quantize in ("checkpoint", None):
        path = build_program(tmp_path, tmp_path / f"{quantize}.pte", quantize=quantize, max_context=64, max_tokens=16)
        with LLM.load(path) as llm:
            logits.append(llm.sequence().logits([5, 17, 3, 60, 8, 41, 9]))
    assert np.abs(logits[0] - logits[1]).max() <= 1e-4 * np.abs(logits[1]).max()

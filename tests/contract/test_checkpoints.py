"""Checkpoints are a closed world: a field or a tensor that would change the mathematics is refused by its name."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import webpte
from tests.support.harness.errors import check, raises
from tests.support.models import gguf_talker, talker
from webpte.builder.options import LLMOptions, weight_bytes
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.export import export_llm
from webpte.llm import LLM
from webpte.suppress_output import suppress_logs
from webpte.text import size

HEAD = talker.WIDTH // talker.HEADS


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Never written to."""
    path: Path = tmp_path_factory.mktemp("talker")
    talker.write_checkpoint(path)
    return path


def changed(folder: Path, target: Path, config: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None):
    """Return a copy with fields of config.json and tensors added, replaced or, where None, left out."""
    from safetensors.numpy import load_file, save_file

    target.mkdir(exist_ok=True)
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    if config:
        merged = json.loads((folder / "config.json").read_text()) | config
        (target / "config.json").write_text(json.dumps({k: v for k, v in merged.items() if v != "absent"}))
    if tensors:
        merged = load_file(folder / "model.safetensors") | tensors
        save_file({k: v for k, v in merged.items() if v is not None}, target / "model.safetensors")
    return target


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
REFUSED_FIELDS: list[tuple[str, Any]] = [
    ("rope_scaling", {"rope_type": "dynamic", "factor": 2.0}),
    ("rope_scaling", {"rope_type": "proportional", "factor": 2.0}),
    ("rope_scaling", {"type": "linear", "factor": 2.0, "finetuned": True}),
    ("rope_scaling", {"a_kind": "unheard of"}),
    ("rope_scaling", {"rope_type": ["llama3"]}),
    ("rope_scaling", "linear"),
    ("rope_parameters", LLAMA3 | {"rope_theta": 10000.0, "a_factor_of_tomorrow": 2.0}),
    ("rope_parameters", {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    ("rope_parameters", {"full_attention": {"rope_theta": 10000.0}}),
    ("partial_rotary_factor", 0.25),
    ("rope_interleaved", True),
    ("no_rope_layers", [1, 0]),
    ("no_rope_layer_interval", 4),
    ("lm_head_bias", True),
    ("qkv_bias", True),
    ("hidden_act", "gelu"),
    ("hidden_activation", "gelu_pytorch_tanh"),
    ("layer_types", ["sliding_attention", "full_attention"]),
    ("attn_logit_softcapping", 50.0),
    ("final_logit_softcapping", 30.0),
    ("query_pre_attn_scalar", 256),
    ("attention_multiplier", 0.015625),
    ("embedding_multiplier", 12.0),
    ("residual_multiplier", 0.22),
    ("logits_scaling", 8.0),
    ("use_qk_norm", True),
    ("num_local_experts", 8),
    ("num_experts_per_tok", 2),
    ("quantization_config", {"quant_method": "gptq", "bits": 4}),
    ("quantization", {"group_size": 64, "bits": 4}),
    ("auto_map", {"AutoModelForCausalLM": "modeling.Own"}),
    ("architectures", ["LlamaForSequenceClassification"]),
    ("is_encoder_decoder", True),
    ("a_field_of_tomorrow", 3),
    ("a_switch_of_tomorrow", False),  # something that is on here would be off
    ("model_type", "gpt_neox"),
]


@pytest.mark.parametrize(("field", "value"), REFUSED_FIELDS, ids=[f"{f}={str(v)[:30]}" for f, v in REFUSED_FIELDS])
def test_checkpoint_field_changing_math_is_refused_by_name(folder, tmp_path, field, value):
    with pytest.raises(webpte.UnsupportedError) as refused:
        read_checkpoint(changed(folder, tmp_path / "c", {field: value}))
    assert refused.value.items == (field,)
    check(refused.value, field if field != "model_type" else "gpt_neox")


def test_checkpoint_unknown_fields_are_all_listed(folder, tmp_path):
    rope = {"rope_type": "dynamic", "factor": 8.0}
    config = {"qkv_bias": True, "a_field_of_tomorrow": 3, "rope_scaling": rope, "hidden_act": "gelu"}
    with pytest.raises(webpte.UnsupportedError) as refused:
        read_checkpoint(changed(folder, tmp_path / "c", config))
    assert set(refused.value.items) == set(config)
    check(refused.value, "qkv_bias = true", "a_field_of_tomorrow = 3", '"factor": 8.0', "config.json")


@pytest.mark.parametrize(
    "config",
    [
        {"rope_scaling": None, "attention_bias": False, "mlp_bias": False, "hidden_act": "silu", "head_dim": HEAD},
        {"rope_scaling": {"rope_type": "default"}, "partial_rotary_factor": 1.0, "layer_types": ["full_attention"] * 2},
        {"rope_theta": "absent", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        {"rope_interleaved": False, "is_llama_config": True, "transformers.js_config": {"dtype": "q4"}},  # SmolLM2's
        {"a_field_of_tomorrow": None, "a_list_of_tomorrow": [], "a_table_of_tomorrow": {}},
        {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "use_cache": True, "pretraining_tp": 1},
        {"temperature": 0.7, "top_k": 50, "max_length": 20, "do_sample": False, "attention_dropout": 0.1},
        {"model_type": "mistral", "sliding_window": None},
    ],
)
def test_fields_without_effect_are_accepted(folder, tmp_path, config):
    result = read_checkpoint(changed(folder, tmp_path / "c", config)).architecture
    assert all(layer.window is None for layer in result.layers)


BIASES = [f"model.layers.{n}.self_attn.{p}_proj.bias" for n in (0, 1) for p in "qkvo"]
REFUSED_TENSORS: dict[str, list[str]] = {
    "attention biases": BIASES,
    "mlp biases": ["model.layers.0.mlp.up_proj.bias", "model.layers.1.mlp.down_proj.bias"],
    "head bias": ["lm_head.bias"],
    "query and key norms": ["model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.k_norm.weight"],
    "experts": ["model.layers.0.block_sparse_moe.gate.weight", "model.layers.0.block_sparse_moe.experts.0.w1.weight"],
    "one more layer": ["model.layers.2.self_attn.q_proj.weight"],
    "post norms": ["model.layers.0.pre_feedforward_layernorm.weight"],
    "scales of stored quantization": ["model.layers.0.self_attn.q_proj.weight_scale"],
    "an adapter": ["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"],
    "other rotary frequencies": ["model.layers.0.self_attn.rotary_emb.inv_freq"],
}


@pytest.mark.parametrize("names", REFUSED_TENSORS.values(), ids=REFUSED_TENSORS)
def test_checkpoint_unused_tensors_are_listed(folder, tmp_path, names):
    more = {name: np.ones(HEAD // 2, np.float32) for name in names}
    with pytest.raises(webpte.UnsupportedError) as refused:
        read_checkpoint(changed(folder, tmp_path / "c", tensors=more))
    assert set(refused.value.items) == set(names)
    for name in names:
        assert name in str(refused.value) or name.replace(".0.", ".*.").replace(".1.", ".*.") in str(refused.value)


def test_stored_rotary_frequencies_equal_to_computed_are_accepted(folder, tmp_path):
    plain = (10000.0 ** -(np.arange(0, HEAD, 2) / HEAD)).astype(np.float16)
    more = {f"model.layers.{n}.self_attn.rotary_emb.inv_freq": plain for n in (0, 1)}
    changed(folder, tmp_path / "c", tensors=more)
    assert len(read_checkpoint(tmp_path / "c").weights.sources) == len(talker.weights())
    changed(folder, tmp_path / "c", {"rope_theta": 500.0}, more)
    with raises(webpte.UnsupportedError, "inv_freq"):
        read_checkpoint(tmp_path / "c")


def test_checkpoint_missing_and_misshapen_tensors_are_listed(folder, tmp_path):
    wrong = {"model.layers.1.mlp.up_proj.weight": None, "model.norm.weight": np.ones(7, np.float32)}
    with pytest.raises(webpte.FormatError) as refused:
        read_checkpoint(changed(folder, tmp_path / "c", tensors=wrong))
    check(refused.value, "model.norm.weight", "[7]", "[64]", "model.layers.1.mlp.up_proj.weight")


def test_checkpoint_integer_weights_are_refused(folder, tmp_path):
    wrong = {"model.norm.weight": np.ones(64, np.int8)}
    with raises(webpte.UnsupportedError, "model.norm.weight (I8)"):
        read_checkpoint(changed(folder, tmp_path / "c", tensors=wrong))


@pytest.mark.parametrize(
    ("config", "tensors", "refused"),
    [
        ({}, {"lm_head.weight": None}, "missing"),
        ({"tie_word_embeddings": False}, {"lm_head.weight": None}, "missing"),
        ({"tie_word_embeddings": True}, {}, "another"),
        ({"tie_word_embeddings": True}, {"lm_head.weight": None}, None),
        ({"tie_word_embeddings": True}, {"lm_head.weight": talker.weights()["model.embed_tokens.weight"]}, None),
    ],
)
def test_checkpoint_tied_head_follows_config(folder, tmp_path, config, tensors, refused):
    changed(folder, tmp_path / "c", config, tensors)
    if refused is not None:
        with raises(webpte.FormatError, "lm_head.weight") as caught:
            read_checkpoint(tmp_path / "c")
        assert ("tie_word_embeddings" in str(caught.value)) == (refused == "another")
    else:
        weights = read_checkpoint(tmp_path / "c").weights
        assert np.array_equal(weights.read("output.weight"), weights.read("tok_embeddings.weight"))


@pytest.mark.parametrize(
    ("config", "values"),
    [
        ({"hidden_size": "absent", "rms_norm_eps": "absent"}, ["hidden_size, rms_norm_eps"]),
        ({"hidden_size": "64"}, ["hidden_size", '"64"']),
        ({"num_hidden_layers": 0}, ["num_hidden_layers", "0"]),
        ({"rms_norm_eps": -1.0}, ["rms_norm_eps", "-1.0"]),
        ({"rope_theta": "x"}, ["rope_theta", '"x"']),
        ({"rope_parameters": {"rope_theta": 500.0}}, ["rope_theta", "10000.0", "rope_parameters.rope_theta", "500.0"]),
        ({"num_key_value_heads": 3}, ["attention heads", "3 key", "got 4"]),
        ({"num_attention_heads": 3}, ["num_attention_heads, 3", "got 64", "head_dim"]),
    ],
)
def test_checkpoint_invalid_config_is_refused(folder, tmp_path, config, values):
    with raises(webpte.FormatError, "config.json", *values):
        read_checkpoint(changed(folder, tmp_path / "c", config))


def test_rope_theta_and_eps_are_read_at_each_level(folder, tmp_path):
    for theta in ({"rope_theta": 500}, {"rope_theta": "absent", "rope_parameters": {"rope_theta": 500}}):
        model = read_checkpoint(changed(folder, tmp_path / "c", theta | {"rms_norm_eps": 0.25})).architecture
        assert (model.ropes["rope"].theta, model.norm_eps) == (500.0, 0.25)


def test_files_are_chosen_as_transformers_does(folder, tmp_path):
    """Mistral's folders hold the weights a second time, under other names."""
    from safetensors.numpy import save_file

    changed(folder, tmp_path / "c")
    save_file({"tok_embeddings.weight": np.zeros(3, np.float32)}, tmp_path / "c" / "consolidated.safetensors")
    assert len(read_checkpoint(tmp_path / "c").weights.sources) == len(talker.weights())

    (tmp_path / "c" / "model.safetensors").unlink()
    names = list(talker.weights())
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, some in parts.items():
        save_file({name: talker.weights()[name] for name in some}, tmp_path / "c" / file)
    index = {name: file for file, some in parts.items() for name in some}
    (tmp_path / "c" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert len(read_checkpoint(tmp_path / "c").weights.sources) == len(talker.weights())

    (tmp_path / "c" / "b.safetensors").unlink()
    with raises(webpte.FormatError, "b.safetensors"):
        read_checkpoint(tmp_path / "c")


def test_checkpoint_with_adapter_is_refused(folder, tmp_path):
    changed(folder, tmp_path / "c")
    (tmp_path / "c" / "adapter_config.json").write_text("{}")
    with raises(webpte.UnsupportedError, "adapter_config.json"):
        read_checkpoint(tmp_path / "c")


# ---------------------------------------------------------------- GGUF


def test_checkpoint_gguf_equals_folder(folder, tmp_path):
    ours, theirs = read_checkpoint(folder), read_checkpoint(gguf_talker.write(tmp_path / "t.gguf"))
    eps = theirs.architecture.norm_eps
    assert eps == pytest.approx(ours.architecture.norm_eps)  # stored as f32
    assert replace(theirs.architecture, norm_eps=ours.architecture.norm_eps) == ours.architecture
    assert ours.weights.sources.keys() == theirs.weights.sources.keys()
    for name in ours.weights.sources:
        assert np.array_equal(ours.weights.read(name), theirs.weights.read(name)), name


REFUSED_KEYS: list[tuple[str, Any]] = [
    ("llama.rope.scaling.type", "longrope"),
    ("llama.rope.scaling.type", "dynamic"),
    ("llama.rope.scaling.factor", 4.0),
    ("llama.rope.scaling.original_context_length", 8192),
    ("llama.rope.scaling.yarn_log_multiplier", 0.1),
    ("llama.rope.scale_linear", 2.0),
    ("llama.attention.value_length", HEAD * 2),
    ("llama.attention.scale", 0.5),
    ("llama.attention.causal", False),
    ("llama.attention.clamp_kqv", 8.0),
    ("llama.attn_logit_softcapping", 50.0),
    ("llama.final_logit_softcapping", 30.0),
    ("llama.logit_scale", 0.25),
    ("llama.residual_scale", 0.22),
    ("llama.embedding_scale", 12.0),
    ("llama.expert_count", 8),
    ("llama.expert_used_count", 2),
    ("llama.use_parallel_residual", True),
    ("llama.a_key_of_tomorrow", 1),
    ("xielu.beta", 0.5),
    ("adapter.type", "lora"),
    ("split.count", 3),
    ("general.type", "adapter"),
    ("tokenizer.ggml.model", "t5"),
    ("tokenizer.ggml.pre", "viking"),
]


@pytest.mark.parametrize(("key", "value"), REFUSED_KEYS, ids=[f"{k}={v}" for k, v in REFUSED_KEYS])
def test_checkpoint_gguf_key_changing_math_is_refused(tmp_path, key, value):
    with pytest.raises(webpte.UnsupportedError) as refused:
        read_checkpoint(gguf_talker.write(tmp_path / "t.gguf", {key: value}))
    assert refused.value.items == (key,)
    check(refused.value, key)


@pytest.mark.parametrize(
    "name", ["rope_factors_long.weight", "blk.0.attn_q.bias", "blk.1.ffn_gate_inp.weight", "output.bias"]
)
def test_checkpoint_gguf_unused_tensors_are_listed(tmp_path, name):
    more = {name: np.linspace(1, 8, HEAD // 2, dtype=np.float32)}
    with pytest.raises(webpte.UnsupportedError) as refused:
        read_checkpoint(gguf_talker.write(tmp_path / "t.gguf", more=more))
    assert refused.value.items == (name,)
    check(refused.value, name)


def test_gguf_fields_and_tensors_without_effect_are_accepted(tmp_path):
    changes = {
        "llama.rope.scaling.type": "none",
        "llama.expert_count": 0,
        "llama.logit_scale": 1.0,
        "quantize.imatrix.file": "x.dat",
        "general.license": "apache-2.0",
        "llama.rope.freq_base": 500.0,
        "llama.attention.layer_norm_rms_epsilon": 0.25,
        "llama.attention.head_count_kv": talker.KV_HEADS,
    }
    more = {"rope_freqs.weight": np.ones(HEAD // 2, np.float32), "output.weight": None}
    result = read_checkpoint(gguf_talker.write(tmp_path / "t.gguf", changes, more))
    assert (result.architecture.ropes["rope"].theta, result.architecture.norm_eps) == (500.0, 0.25)
    assert np.array_equal(result.weights.read("output.weight"), result.weights.read("tok_embeddings.weight"))


@pytest.mark.parametrize("key", ["llama.block_count", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"])
def test_checkpoint_gguf_missing_key_is_named(tmp_path, key):
    with raises(webpte.FormatError, key):
        read_checkpoint(gguf_talker.write(tmp_path / "t.gguf", {key: None}))


def test_checkpoint_gguf_unknown_architecture_is_refused(tmp_path):
    with raises(webpte.UnsupportedError, "gptneox", "general.architecture"):
        read_checkpoint(gguf_talker.write(tmp_path / "t.gguf", architecture="gptneox"))


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "error", "values"),
    [
        ({"embedding": "4"}, webpte.InputError, ["embedding", '"4,GROUP"', "'4'"]),
        ({"embedding": "8,32"}, webpte.InputError, ["embedding", '"4,GROUP"', "'8,32'"]),
        ({"embedding": "4,x"}, webpte.InputError, ["embedding", '"4,GROUP"', "'4,x'"]),
        ({"embedding": "4,48"}, webpte.UnsupportedError, ["embedding", "width 64", "groups of 48"]),
        ({"embedding": "4,64"}, webpte.UnsupportedError, ["embedding", "width 64", "groups of 64"]),
        ({"quantize": "2w"}, webpte.InputError, ["quantize", "4w, 8w, 8da4w", "'2w'"]),
        ({"quantize": "4w", "group_size": 0}, webpte.InputError, ["group_size", 0]),
        ({"quantize": "4w", "group_size": 7}, webpte.UnsupportedError, ["layers.0.attention.wq", "64 columns", 7]),
        ({"quantize": "8da4w", "group_size": 7}, webpte.UnsupportedError, ["8da4w", "groups of 7"]),
        ({"quantize": "4w", "lm_head": "2"}, webpte.InputError, ["lm_head", "4, 8, none", "'2'"]),
        ({"quantize": "auto"}, webpte.InputError, ["bits_per_weight", "'auto'", "None"]),
        ({"quantize": "4w", "bits_per_weight": 5.0}, webpte.InputError, ["bits_per_weight", "'auto'", "5.0", "4w"]),
        ({"quantize": "auto", "bits_per_weight": 3}, webpte.InputError, ["bits_per_weight", 3, 4, 32]),
        (
            {"quantize": "auto", "bits_per_weight": 6, "calibrate": False},
            webpte.InputError,
            ["quantize", "'auto'", "calibrate"],
        ),
        ({"lm_head": "8"}, webpte.InputError, ["lm_head", "'8'", "quantize"]),
        ({"quantize": "8w", "lm_head": "4"}, webpte.InputError, ["lm_head", "'4'", "quantize", "'8w'"]),
        ({"quantize": "4w", "calibrate": "absent.txt"}, webpte.InputError, ["calibrate", "absent.txt"]),
        ({"max_tokens": 1}, webpte.InputError, ["max_tokens", 1, "max_context"]),
        ({"max_context": 16, "max_tokens": 32}, webpte.InputError, ["max_tokens", 32, "max_context, 16"]),
    ],
)
def test_options_are_checked_before_any_work(folder, tmp_path, monkeypatch, options, error, values):
    def work(*args):
        raise AssertionError("weights were read")

    monkeypatch.setattr("webpte.checkpoints.weights.CheckpointWeights.read", work)
    with raises(error, *values):
        export_llm(folder, tmp_path / "x.pte", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{}, {"quantize": "4w"}, {"quantize": "8w", "embedding": "4,32"}])
def test_export_full_disk_refused_before_work(folder, tmp_path, monkeypatch, options):
    """With a byte less than the weights take; with as many, weights are read."""
    source = read_checkpoint(folder)
    needed = weight_bytes(source, LLMOptions(**options).recipe(source))
    counts = {name: math.prod(place.shape) for name, place in source.weights.sources.items()}
    assert needed == 4 * sum(counts.values()) if not options else needed < 1.3 * sum(counts.values())

    class ReadError(Exception):
        pass

    def work(*args):
        raise ReadError

    monkeypatch.setattr("webpte.checkpoints.weights.CheckpointWeights.read", work)
    for free, refused in (
        (needed - 1, raises(webpte.InputError, "x.pte", size(needed))),
        (needed, pytest.raises(ReadError)),
    ):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr("webpte.builder.options.shutil.disk_usage", lambda path, usage=usage: usage)
        with refused:
            export_llm(folder, tmp_path / "x.pte", **options)
    assert not list(tmp_path.iterdir())


def test_export_head_not_divisible_stays_float(folder, tmp_path):
    rows = {name: np.ones((129, talker.WIDTH), np.float32) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    odd = changed(folder, tmp_path / "c", {"vocab_size": 129}, rows)
    export_llm(odd, tmp_path / "m.pte", quantize="4w", calibrate=False, quality=True)
    report = json.loads((tmp_path / "m.quality.json").read_text())["quantized"]
    kinds = {name: layer["kind"] for name, layer in report["layers"].items()}
    assert kinds.pop("output") == "f32" and kinds.pop("tok_embeddings") == "8w" and set(kinds.values()) == {"4w"}
    assert any("output, 129 by 64, is f32: 129 rows are not divided by 4" in line for line in report["notes"])


def test_export_target_checked_before_work(tmp_path):
    """Even the checkpoint, which does not exist, is looked at later."""
    for path, values in ((tmp_path / "no" / "x.pte", [f"{tmp_path / 'no'}"]), (tmp_path, [f"{tmp_path}", ".pte"])):
        with raises(webpte.InputError, path, *values):
            export_llm(tmp_path / "absent", path)


# ---------------------------------------------------------------- what is taken is right


def test_export_mistral_logits_equal_transformers(folder, tmp_path):
    """Within its window a Mistral is a Llama."""
    from transformers import AutoModelForCausalLM

    config = {
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "rope_theta": 700.0,
        "rms_norm_eps": 0.03,
    }
    source = changed(folder, tmp_path / "c", config)
    tokens = [(7 * i + 3) % len(talker.CHARACTERS) for i in range(20)]
    with suppress_logs(), torch.no_grad():
        want = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)(torch.tensor([tokens])).logits[0, -1:]
    export_llm(source, tmp_path / "m.pte", max_context=64, max_tokens=32)
    with LLM.load(tmp_path / "m.pte") as llm, llm.sequence() as sequence:
        np.testing.assert_allclose(sequence.logits(tokens), want.numpy(), rtol=1e-4, atol=1e-4)

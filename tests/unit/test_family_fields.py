"""Fields of config.json by family: those of published models are taken, those that change the mathematics refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from webpte.checkpoints.architecture import Architecture, Delta, Rope
from webpte.checkpoints.config import Fields
from webpte.checkpoints.families import families, family_of_config, family_of_gguf
from webpte.checkpoints.gguf_file import read_keys
from webpte.checkpoints.hugging_face import read_config

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
HARMONY_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
SIZES = {
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "vocab_size": 32000,
    "max_position_embeddings": 131072,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "initializer_range": 0.02,
    "attention_dropout": 0.0,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0",
    "use_cache": True,
}


def factors(value: float, count: int = 24) -> list[float]:
    return [value] * count


# The fields that published config.json files of these families have, besides their sizes.
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "mlp_bias": False,
        "head_dim": 64,
        "pretraining_tp": 1,
        "rope_scaling": LLAMA3,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    },
    "mistral": {
        "architectures": ["MistralForCausalLM"],
        "head_dim": 128,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
    "smollm3": {
        "architectures": ["SmolLM3ForCausalLM"],
        "attention_bias": False,
        "mlp_bias": False,
        "layer_types": ["full_attention"] * 4,
        "max_window_layers": 28,
        "no_rope_layer_interval": 4,
        "no_rope_layers": [1, 1, 1, 0],
        "pretraining_tp": 2,
        "rope_scaling": None,
        "rope_theta": 5000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
    },
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"],
        "max_window_layers": 24,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "use_sliding_window": False,
        "use_mrope": False,
        "tie_word_embeddings": True,
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "head_dim": 128,
        "max_window_layers": 28,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
    },
    "phi3": {
        "architectures": ["Phi3ForCausalLM"],
        "auto_map": {
            "AutoConfig": "configuration_phi3.Phi3Config",
            "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
        },
        "attention_bias": False,
        "mlp_bias": False,
        "lm_head_bias": False,
        "full_attn_mod": 1,
        "interpolate_factor": 1,
        "original_max_position_embeddings": 4096,
        "partial_rotary_factor": 0.75,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "rope_scaling": {"type": "longrope", "short_factor": factors(1.0), "long_factor": factors(2.0)},
        "rope_theta": 10000.0,
        "sliding_window": 262144,
        "tie_word_embeddings": True,
    },
    "granite": {
        "architectures": ["GraniteForCausalLM"],
        "attention_bias": False,
        "mlp_bias": False,
        "attention_multiplier": 0.015625,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "logits_scaling": 8.0,
        "rope_scaling": None,
        "rope_theta": 10000000.0,
        "tie_word_embeddings": True,
    },
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"],
        "attention_bias": False,
        "attn_logit_softcapping": 50.0,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": 30.0,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 224,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
    },
    "gemma4": {
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "attention_k_eq_v": False,
        "enable_moe_block": False,
        "expert_intermediate_size": None,
        "final_logit_softcapping": 30.0,
        "global_head_dim": 512,
        "head_dim": 256,
        "hidden_act": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size_per_layer_input": 256,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_global_key_value_heads": None,
        "num_kv_shared_layers": 2,
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        "sliding_window": 512,
        "tie_word_embeddings": True,
        "use_double_wide_mlp": True,
        "vocab_size_per_layer_input": 32000,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": None,
        "head_dim": 256,
        "hidden_act": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "rope_local_base_freq": 10000,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": 512,
        "sliding_window_pattern": 2,
    },
    "ernie4_5": {"architectures": ["Ernie4_5ForCausalLM"], "head_dim": 128, "rope_theta": 500000.0, "use_bias": False},
    "olmo2": {
        "architectures": ["Olmo2ForCausalLM"],
        "attention_bias": False,
        "rope_scaling": None,
        "rope_theta": 500000,
    },
    "exaone4": {
        "architectures": ["Exaone4ForCausalLM"],
        "head_dim": 128,
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
        "rope_scaling": LLAMA3,
        "rope_theta": 1000000,
        "sliding_window": 4096,
        "sliding_window_pattern": "LLLG",
    },
    "arcee": {"architectures": ["ArceeForCausalLM"], "hidden_act": "relu2", "head_dim": 128, "mlp_bias": False},
    "hunyuan_v1_dense": {
        "architectures": ["HunYuanDenseV1ForCausalLM"],
        "eod_token_id": 127967,
        "head_dim": 128,
        "rope_scaling": {
            "alpha": 1000.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "type": "dynamic",
        },
        "use_qk_norm": True,
    },
    "granite4": {
        "model_type": "granitemoehybrid",
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "attention_bias": False,
        "attention_multiplier": 0.015625,
        "embedding_multiplier": 12,
        "layer_types": ["attention"] * 4,
        "logits_scaling": 8,
        "mamba_chunk_size": 256,
        "mamba_conv_bias": True,
        "mamba_d_head": "auto",
        "num_experts_per_tok": 0,
        "num_local_experts": 0,
        "position_embedding_type": "rope",
        "residual_multiplier": 0.22,
        "rope_theta": 10000000,
        "router_aux_loss_coef": 0.01,
        "shared_intermediate_size": 8192,
    },
    "ministral3": {
        "architectures": ["Ministral3ForCausalLM"],
        "head_dim": 128,
        "sliding_window": None,
        "rope_parameters": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 16.0,
            "llama_4_scaling_beta": 0.1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 16384,
            "rope_theta": 1000000.0,
            "rope_type": "yarn",
        },
    },
    "olmo3": {
        "architectures": ["Olmo3ForCausalLM"],
        "attention_bias": False,
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
        "rope_scaling": {
            "attention_factor": 1.2079441541679836,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 8.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "yarn",
        },
        "rope_theta": 500000,
        "sliding_window": 4096,
    },
    "gemma": {
        "architectures": ["GemmaForCausalLM"],
        "attention_bias": False,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_scaling": None,
        "rope_theta": 10000.0,
    },
    "seed_oss": {
        "architectures": ["SeedOssForCausalLM"],
        "attention_bias": True,
        "attention_out_bias": False,
        "head_dim": 128,
        "mlp_bias": False,
        "residual_dropout": 0.1,
        "rope_scaling": {"rope_type": "default"},
        "rope_theta": 10000000.0,
    },
    "glm": {
        "architectures": ["GlmForCausalLM"],
        "attention_bias": True,
        "head_dim": 128,
        "partial_rotary_factor": 0.5,
        "rope_theta": 10000.0,
    },
    "glm4": {
        "architectures": ["Glm4ForCausalLM"],
        "attention_bias": True,
        "head_dim": 128,
        "partial_rotary_factor": 0.5,
        "rope_theta": 10000.0,
    },
    "gpt_oss": {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "experts_per_token": 4,
        "head_dim": 64,
        "initial_context_length": 4096,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_experts_per_tok": 4,
        "num_local_experts": 32,
        "output_router_logits": False,
        "quantization_config": {"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"},
        "rope_scaling": HARMONY_YARN,
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
    },
}
PUBLISHED = {name: {**SIZES, "model_type": name, **fields} for name, fields in PUBLISHED.items()}


def read(family: str, **changes: Any) -> Architecture:
    config = json.loads(json.dumps(PUBLISHED[family] | changes))
    fields = Fields("config.json", config)
    return read_config(family_of_config("a folder", fields.get("model_type")), fields)


@pytest.mark.parametrize("family", PUBLISHED)
def test_family_published_configs_are_accepted(family):
    result = read(family)
    assert (result.n_layers, result.n_heads, result.n_kv_heads, result.hidden_dim) == (4, 32, 8, 8192)
    assert all(family in families() for family in PUBLISHED)


def test_family_distinguishing_fields_are_read():
    assert [layer.rope for layer in read("smollm3").layers] == ["rope", "rope", "rope", None]
    assert read("qwen2").qkv_bias and not read("qwen2").out_bias
    assert (read("qwen3").qk_norm, read("qwen3").head_dim) == (True, 128)
    phi = read("phi3").ropes["rope"]
    assert (phi.width, phi.original, phi.divisors, phi.long_divisors) == (48, 4096, (1.0,) * 24, (2.0,) * 24)
    assert phi.amplitude == pytest.approx(1.1902380714238083)
    granite = read("granite")
    assert (granite.attention_scale, granite.embedding_factor, granite.residual_factor) == (0.015625, 12.0, 0.22)
    assert (granite.query_factor(0), granite.logits_factor) == (0.125, 0.125)


def test_family_norms_and_feed_forwards_are_read():
    olmo, exaone, hunyuan = read("olmo2"), read("exaone4"), read("hunyuan_v1_dense")
    assert (olmo.pre_norms, olmo.post_norms, olmo.qk_norm, olmo.qk_norm_by_head) == (False, True, True, False)
    assert [(layer.rope, layer.window) for layer in exaone.layers] == [("rope", 4096)] * 3 + [(None, None)]
    assert hunyuan.qk_norm_rotated and hunyuan.ropes["rope"].theta == pytest.approx(10000.0 * 1000.0 ** (128 / 126))
    assert (read("arcee").activation, read("arcee").gated_mlp) == ("relu2", False)
    assert [layer.rope for layer in read("granite4", position_embedding_type="nope").layers] == [None] * 4
    assert read("ministral3").max_positions == 16384
    assert (read("glm4").ropes["rope"].width, read("glm4").post_norms, read("glm").post_norms) == (64, True, False)
    assert (read("seed_oss").qkv_bias, read("seed_oss").out_bias) == (True, False)
    assert (read("gemma").norm_offset, read("gemma").post_norms, read("gemma").attention_scale) == (1.0, False, None)


def test_olmo_3_scales_the_rope_of_full_layers_only():
    olmo = read("olmo3")
    assert [layer.window for layer in olmo.layers] == [4096] * 3 + [None]
    full, sliding = (olmo.ropes[olmo.layers[number].rope or ""] for number in (3, 0))
    assert (full.theta, full.amplitude, sliding) == (5e5, 1.2079441541679836, Rope(5e5, 64))
    assert full.divisors is not None and full.divisors[-1] == 8.0


def test_family_windows_equal_layers():
    sliding = read("qwen2", use_sliding_window=True, max_window_layers=1, sliding_window=512)
    assert [layer.window for layer in sliding.layers] == [None, 512, 512, 512]
    listed = ["sliding_attention", "full_attention"] * 2
    chosen = read("qwen3", use_sliding_window=True, sliding_window=512, layer_types=listed)
    assert [layer.window for layer in chosen.layers] == [512, None, 512, None]
    unused = read("qwen2", use_sliding_window=True, max_window_layers=0, sliding_window=None)
    assert [layer.window for layer in unused.layers] == [None] * 4
    assert [layer.window for layer in read("mistral", sliding_window=4096).layers] == [4096] * 4
    assert [layer.window for layer in read("gemma2").layers] == [4096, None] * 2
    assert [layer.window for layer in read("gemma3").layers] == [512, None] * 2
    assert [layer.window for layer in read("gemma3", sliding_window_pattern=None).layers] == [512] * 4
    assert [layer.window for layer in read("gpt_oss", layer_types=None).layers] == [128, None] * 2


def test_gemma_4_layers_share_keys_and_differ_in_width():
    model = read("gemma4")
    assert [layer.shares for layer in model.layers] == [None, None, 0, 1]
    assert [model.head_width(number) for number in range(4)] == [256, 512, 256, 512]
    assert [model.hidden_width(number) for number in range(4)] == [8192, 8192, 16384, 16384]
    assert [layer.rows for layer in model.with_rows(1024, 256).layers] == [512 + 254, 1024] * 2
    assert model.cache_bytes(1024) == 1024 * 8 * (256 + 512) * 2 * 4  # only the layers with caches of their own
    assert (model.query_factor(0), model.query_factor(1)) == (16.0, 512**0.5)
    cosines, sines = model.rotary_table("full_attention", 8)
    assert cosines.shape == (8, 256) and (cosines[:, 64:] == 1).all() and (sines[:, 64:] == 0).all()
    np.testing.assert_allclose(sines[3, 63], np.sin(3 * 1e6 ** (-126 / 512)), rtol=1e-5)
    assert read("gemma4", num_kv_shared_layers=0).layers[3].shares is None
    assert read("gemma4", hidden_size_per_layer_input=0).per_layer_dim == 0


def test_gemma_4_newer_files_list_layers_of_another_width():
    listed = {"1": {"head_dim": 64}, "3": {"head_dim": 64}}
    model = read("gemma4", per_layer_config=listed)
    assert [model.head_width(number) for number in range(4)] == [256, 64, 256, 64]


def test_family_window_cache_has_rows_for_window_and_call():
    model = read("gemma3")
    assert [layer.rows for layer in model.with_rows(1024, 256).layers] == [512 + 254, None] * 2
    assert model.cache_window(1024, 256) == (511, 766)
    assert [layer.rows for layer in model.with_rows(600, 256).layers] == [600, None] * 2
    assert model.cache_window(600, 256) == (600, 600)  # the whole context: nothing is forgotten
    assert [layer.rows for layer in model.with_rows(512, 256).layers] == [None] * 4 and model.cache_window(
        512, 256
    ) is None
    capped = read("gemma2")
    assert [layer.rows for layer in capped.with_rows(512, 256).layers] == [512] * 4
    assert capped.cache_window(512, 256) == (512, 512) and capped.cache_window(8192, 256) == (4095, 4096 + 254)


def test_gemma_distinguishing_fields_are_read():
    two, three = read("gemma2"), read("gemma3")
    assert (two.attention_cap, two.logits_cap, two.attention_scale) == (50.0, 30.0, 224**-0.5)
    assert read("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None).attention_cap is None
    assert (three.attention_cap, three.logits_cap, three.qk_norm, three.tied) == (None, None, True, True)
    assert [layer.rope for layer in three.layers] == ["sliding_attention", "full_attention"] * 2
    assert [three.ropes[kind].theta for kind in ("sliding_attention", "full_attention")] == [1e4, 1e6]
    scaled = read("gemma3", rope_scaling={"rope_type": "linear", "factor": 8.0}).ropes
    assert scaled["full_attention"].divisors == (8.0,) * 128 and scaled["sliding_attention"].divisors is None


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [("bfloat16", 45.25), ("float16", 45.25), ("float32", 45.254833221435547), (None, 45.254833221435547)],
)
def test_embeddings_are_scaled_by_a_number_of_their_type(dtype, factor):
    assert read("gemma3", torch_dtype=dtype).embedding_factor == factor  # the root of 2048


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("granite4", {"layer_types": ["mamba", "attention"] * 2}),
    ("hunyuan_v1_dense", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    ("ministral3", {"sliding_window": 4096}),
    ("olmo3", {"rope_parameters": {"linear_attention": {"rope_type": "default"}}}),
    ("gemma", {"hidden_act": "silu"}),
    ("seed_oss", {"sliding_window": 4096}),
    ("glm4", {"layer_types": ["linear_attention"] * 4}),
    ("arcee", {"hidden_act": "silu"}),
    ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    ("llama", {"rope_scaling": LLAMA3 | {"mscale": 2.0}}),
    ("llama", {"rope_scaling": {"rope_type": "su", "short_factor": factors(1), "long_factor": factors(2)}}),
    ("llama", {"final_logit_softcapping": 30.0}),
    ("llama", {"attn_logit_softcapping": 50.0}),
    ("llama", {"hidden_act": "gelu"}),
    ("llama", {"residual_multiplier": 0.22}),
    ("llama", {"use_qk_norm": True}),
    ("llama", {"num_local_experts": 8}),
    ("llama", {"no_rope_layers": [1, 1, 0, 1]}),
    ("mistral", {"attention_bias": True}),
    ("mistral", {"mlp_bias": True}),
    ("mistral", {"layer_types": ["sliding_attention"] * 4}),
    ("mistral", {"architectures": ["MistralForTokenClassification"]}),
    ("smollm3", {"layer_types": ["chunked_attention"] * 4}),
    ("smollm3", {"hidden_act": "relu2"}),
    ("smollm3", {"qk_norm": True}),
    ("qwen2", {"use_mrope": True}),
    ("qwen2", {"layer_types": ["sliding_attention"] * 4}),
    ("qwen2", {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}),
    ("qwen2", {"qkv_bias": False}),
    ("qwen2", {"quantization_config": {"quant_method": "awq"}}),
    ("qwen3", {"rope_scaling": {"rope_type": "ntk", "factor": 2.0}}),
    ("qwen3", {"layer_types": ["linear_attention"] * 4}),
    ("qwen3", {"num_experts": 128}),
    ("qwen3", {"use_qk_norm": False}),
    ("qwen3", {"partial_rotary_factor": 0.5}),
    ("qwen3", {"norm_type": "layernorm"}),
    ("phi3", {"lm_head_bias": True}),
    ("phi3", {"attention_bias": True}),
    ("phi3", {"full_attn_mod": 2}),
    ("phi3", {"auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}}),
    ("phi3", {"rope_scaling": {"type": "linear2", "factor": 2.0}}),
    ("granite", {"num_local_experts": 32}),
    ("granite", {"logit_scale": 0.5}),
    ("granite", {"position_embedding_type": "nope"}),
    ("granite", {"rope_scaling": {"rope_type": "proportional"}}),
    ("gemma2", {"hidden_act": "silu"}),
    ("gemma2", {"hidden_activation": "gelu"}),
    ("gemma2", {"layer_types": ["chunked_attention"] * 4}),
    ("gemma2", {"use_bidirectional_attention": True}),
    ("gemma2", {"torch_dtype": "float8_e4m3fn"}),
    ("gemma2", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    ("gemma3", {"attn_logit_softcapping": 50.0}),  # which transformers does not apply either
    ("gemma3", {"rope_scaling": {"rope_type": "su", "factor": 2.0}}),
    ("gemma3", {"rope_parameters": {"other_attention": {"rope_type": "default"}}}),
    ("gemma3", {"use_bidirectional_attention": True}),
    ("gemma3", {"hidden_size_per_layer_input": 256}),
    ("gemma3", {"num_kv_shared_layers": 10}),
    ("gpt_oss", {"swiglu_alpha": 1.0}),
    ("gpt_oss", {"swiglu_limit": 10.0}),
    ("gpt_oss", {"quantization_config": {"quant_method": "bitsandbytes"}}),
    ("gemma4", {"enable_moe_block": True}),
    ("gemma4", {"attention_k_eq_v": True}),
    ("gemma4", {"use_bidirectional_attention": "all"}),
    ("gemma4", {"vocab_size_per_layer_input": 16000}),
    ("gemma4", {"per_layer_config": {"1": {"num_key_value_heads": 4}}}),
    ("gemma4", {"per_layer_config": {"1": {"head_dim": 64}}}),  # of two layers with one RoPE
]


@pytest.mark.parametrize(("family", "change"), REFUSED, ids=[f"{f}: {json.dumps(c)[:60]}" for f, c in REFUSED])
def test_family_field_changing_math_is_refused_by_name(family, change):
    with raises(webpte.UnsupportedError, *change, code="unsupported_field") as refused:
        read(family, **change)
    assert refused.value.items == tuple(change)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"rope_scaling": {"rope_type": "linear"}}, "rope_scaling: factor is null"),
    ("llama", {"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "high_freq_factor is 1"),
    ("llama", {"rope_scaling": LLAMA3 | {"factor": "8"}}, 'factor is "8"'),
    ("llama", {"rope_theta": 1.0}, "rope_theta is 1.0"),
    ("llama", {"attention_bias": 1}, "attention_bias is 1"),
    ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers is [1, 0]"),
    ("smollm3", {"no_rope_layers": [1, 2, 0, 1]}, "no_rope_layers is [1, 2, 0, 1]"),
    ("qwen2", {"layer_types": ["full_attention"]}, 'layer_types is ["full_attention"]'),
    ("qwen2", {"max_window_layers": -1}, "max_window_layers is -1"),
    ("qwen3", {"head_dim": 127}, "head_dim and rotary width is 127 and 127"),
    ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": factors(1.0)}}, "long_factor is null"),
    ("phi3", {"original_max_position_embeddings": 1}, "original_max_position_embeddings is 1"),
    ("granite", {"attention_multiplier": 0}, "attention_multiplier is 0"),
    ("gemma2", {"attn_logit_softcapping": -1.0}, "attn_logit_softcapping is -1.0"),
    ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
    ("gemma3", {"sliding_window": "512"}, 'sliding_window is "512"'),
    ("gemma3", {"sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
    ("gemma3", {"layer_types": ["full_attention"]}, 'layer_types is ["full_attention"]'),
    ("gemma4", {"num_kv_shared_layers": 4}, "num_kv_shared_layers is 4"),
    ("gemma4", {"num_kv_shared_layers": 3}, "num_kv_shared_layers is 3"),  # no full layer is left to share
    ("granite", {"logits_scaling": float("inf")}, "logits_scaling is Infinity"),
]
SHORT = {"type": "longrope", "short_factor": factors(1.0, 5), "long_factor": factors(2.0, 5)}
WRONG.append(("phi3", {"rope_scaling": SHORT}, "rope is 5"))
OTHERS = {
    "head_dim and rotary width is 127 and 127": (webpte.UnsupportedError, "odd_width"),
    "rope is 5": (webpte.FormatError, "factor_count"),
}


@pytest.mark.parametrize(("family", "change", "problem"), WRONG, ids=[f"{f}: {p}" for f, _, p in WRONG])
def test_family_invalid_config_is_refused(family, change, problem):
    kind, code = OTHERS.get(problem, (webpte.FormatError, "invalid_field"))
    field, _, value = problem.partition(" is ")
    with raises(kind, f"{field}: expected", f"got {value}", code=code):
        read(family, **change)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("deepseek_v3", "experts"), ("gemma3", "gemma3_text"), ("falcon_h1", "Mamba-2"),
     ("lfm3", "gate for each head"), ("gemma3n", "caches"), ("gemma4_unified_text", "without encoders"),
     ("ernie4_5_moe", "mixture of experts")],
)  # fmt: skip
def test_family_refusal_states_reason(kind, reason):
    with raises(webpte.UnsupportedError, f"a {kind} model", reason, "llama", code="unknown_family"):
        family_of_config("a folder", kind)


def test_granite_4_in_gguf_is_not_refused_as_a_mixture_of_experts():
    """Its Micro and Nano models have no experts."""
    with raises(webpte.UnsupportedError, "Granite 4", "Mamba-2", code="unknown_family") as refused:
        family_of_gguf("a checkpoint", "granitehybrid")
    assert "mixture of experts" not in str(refused.value)


def read_gguf(architecture: str, **changes: Any) -> Architecture:
    keys = {
        "embedding_length": 64,
        "block_count": 3,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    values = {f"{architecture}.{key}": value for key, value in (keys | changes).items()}
    values |= {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.model": "gpt2"}
    return read_keys(family_of_gguf("a file", architecture), Fields("a file", values), architecture)


GEMMA_4_KEYS = {
    "block_count": 4,
    "feed_forward_length": [8192, 8192, 16384, 16384],
    "attention.key_length": 512,
    "attention.value_length": 512,
    "attention.key_length_swa": 256,
    "attention.value_length_swa": 256,
    "attention.shared_kv_layers": 2,
    "attention.sliding_window": 512,
    "attention.sliding_window_pattern": [True, False, True, False],
    "embedding_length_per_layer_input": 256,
    "rope.dimension_count": 512,
    "rope.dimension_count_swa": 256,
    "rope.freq_base": 1000000.0,
    "rope.freq_base_swa": 10000.0,
}


def test_gguf_gemma_4_has_the_layers_of_its_config():
    model, other = read_gguf("gemma4", **GEMMA_4_KEYS), read("gemma4")
    assert [(layer.shares, layer.window, layer.head_dim, layer.rope) for layer in model.layers] == [
        (layer.shares, layer.window, layer.head_dim, layer.rope) for layer in other.layers
    ]
    assert [model.hidden_width(number) for number in range(4)] == [8192, 8192, 16384, 16384]
    assert (model.per_layer_dim, model.attention_scale) == (256, 1.0)
    assert read_gguf("gemma4", **{**GEMMA_4_KEYS, "embedding_length_per_layer_input": 0}).per_layer_dim == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("feed_forward_length", [8192]), ("feed_forward_length", [0] * 4), ("attention.shared_kv_layers", 3)],
)
def test_gguf_gemma_4_invalid_key_is_refused(key, value):
    with raises(webpte.FormatError, f"gemma4.{key}", code="invalid_field"):
        read_gguf("gemma4", **{**GEMMA_4_KEYS, key: value})


def test_gguf_layers_without_key_heads_are_convolutions():
    model = read_gguf("lfm2", **{"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3})
    assert model.n_kv_heads == 2 and [layer.taps for layer in model.layers] == [3, 0, 3]
    for heads in ([0, 2], [0, 2, 4], [0, 0, 0], [0, -2, 0]):
        with raises(webpte.FormatError, "attention.head_count_kv", code="invalid_field"):
            read_gguf("lfm2", **{"attention.head_count_kv": heads})


YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 8.0,
    "rope.scaling.original_context_length": 64,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
}


@pytest.mark.parametrize("amplitude", [None, 1.0, 1.2079441541679836])
def test_gguf_yarn_has_its_own_amplitude(amplitude):
    windows = {"attention.sliding_window": 16, "attention.sliding_window_pattern": [True, False, True]}
    model = read_gguf("olmo2", **YARN, **windows, **{"rope.scaling.yarn_attn_factor": amplitude})
    assert [layer.window for layer in model.layers] == [16, None, 16]
    assert model.ropes["full_attention"].amplitude == pytest.approx(1.2079441541679836)
    assert model.ropes["sliding_attention"] == Rope(10000.0, 16)


def test_gguf_gpt_oss_has_the_layers_of_its_config():
    """YaRN's range is not rounded to whole pairs, which GGUF does not state."""
    keys = {
        "attention.head_count": 32,
        "attention.head_count_kv": 8,
        "attention.key_length": 64,
        "attention.sliding_window": 128,
        "block_count": 4,
        "expert_count": 32,
        "expert_feed_forward_length": 8192,
        "expert_used_count": 4,
        "rope.freq_base": 150000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
    }
    model, other = read_gguf("gpt-oss", **keys), read("gpt_oss")
    assert (model.layers, model.sinks, model.activation) == (other.layers, True, "clamped_silu")
    assert model.ropes == other.ropes and model.ropes["rope"].amplitude == pytest.approx(1.3465735902799727)
    rounded = read("gpt_oss", rope_scaling={**HARMONY_YARN, "truncate": True})
    assert rounded.ropes != other.ropes


def test_gguf_other_amplitude_is_refused():
    key = "rope.scaling.attn_factor"
    with raises(webpte.UnsupportedError, key, "YaRN", code="unsupported_field"):
        read_gguf("olmo2", **YARN, **{key: 1.5})


def test_gguf_ministral_ends_at_its_original_context():
    keys = YARN | {"rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.1}
    model = read_gguf("mistral3", **keys)
    assert model.max_positions == 64 and model.ropes["rope"].amplitude == 1.0
    assert read_gguf("mistral3", **YARN).max_positions is None


@pytest.mark.parametrize("rotates", [True, False, None])
def test_gguf_granite_states_heads_of_each_layer_and_whether_they_rotate(rotates):
    model = read_gguf("granite", **{"attention.head_count_kv": [2] * 3, "rope.scaling.finetuned": rotates})
    assert (
        model.n_kv_heads == 2 and [layer.rope for layer in model.layers] == [None if rotates is False else "rope"] * 3
    )
    for heads in ([2, 2, 4], [0, 0, 0], [-1] * 3, ["2"] * 3):
        with raises(webpte.FormatError, "attention.head_count_kv", code="invalid_field"):
            read_gguf("granite", **{"attention.head_count_kv": heads})


QWEN35 = {
    "block_count": 5,
    "attention.key_length": 16,
    "nextn_predict_layers": 1,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 6,
    "ssm.state_size": 8,
    "ssm.inner_size": 96,
    "ssm.conv_kernel": 4,
}


def test_gguf_qwen35_leaves_out_layers_that_draft():
    model = read_gguf("qwen35", **QWEN35)
    assert [layer.delta is None for layer in model.layers] == [False, False, False, True]
    assert model.layers[0].delta == Delta(key_heads=2, value_heads=6, key_dim=8, value_dim=16, taps=4)
    assert model.norm_offset == 0.0  # converters add 1 to the weights


@pytest.mark.parametrize(
    ("key", "value"), [("nextn_predict_layers", 5), ("nextn_predict_layers", "1"), ("ssm.conv_kernel", 1)]
)
def test_gguf_qwen35_invalid_key_is_refused(key, value):
    with raises(webpte.FormatError, f"qwen35.{key}", str(value), code="invalid_field"):
        read_gguf("qwen35", **{**QWEN35, key: value})


def test_gguf_qwen35_values_that_share_no_keys_evenly_are_refused():
    with raises(webpte.FormatError, "qwen35.ssm.time_step_rank", "multiple", "2", "got 5", code="head_count"):
        read_gguf("qwen35", **{**QWEN35, "ssm.time_step_rank": 5})


@pytest.mark.parametrize("kind", ["gpt_neox", "starcoder2", None, 7])
def test_family_unknown_refused_with_supported_ones(kind):
    with raises(
        webpte.UnsupportedError, f"a {kind} model", "llama, ministral3, mistral", "qwen2", code="unknown_family"
    ) as refused:
        family_of_config("a folder", kind)
    assert refused.value.items == ("model_type",)

"""Random configs of language models, within what the families of the builder accept.

Sizes are few, so that models share kernels; everything else is free. Multipliers are powers of two, which keep the
weights of `exact_weights.py` exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

Fields = dict[str, Any]
VOCABULARY = 131
KINDS = ("sliding_attention", "full_attention")
FORMATS: tuple[Fields, ...] = (
    {"quantize": None},
    {"quantize": "4w"},
    {"quantize": "4w", "embedding": "4,32", "lm_head": "4"},
    {"quantize": "4w", "group_size": 16, "embedding": "none", "lm_head": "none"},
    {"quantize": "8w"},
)


@dataclass(frozen=True)
class RandomModel:
    """A config of transformers, and the options of a program for it."""

    model_type: str
    fields: Fields
    context: int
    max_tokens: int
    options: Fields


def random_model(random: Random, family: str | None = None) -> RandomModel:
    name = family or random.choice(sorted(FAMILIES))
    context, max_tokens = random.choice([40, 73]), random.choice([7, 16, 24])
    sizes = _sizes(random)
    model_type, own = FAMILIES[name](random, sizes, context)
    fields = {**sizes, **own}
    if fields["head_dim"] is None:
        del fields["head_dim"]
    mixture = any("expert" in key and value for key, value in fields.items())
    formats = [options for options in FORMATS if not (mixture and options["quantize"] == "8w")]
    return RandomModel(model_type, fields, context, max_tokens, random.choice(formats))


def _sizes(random: Random) -> Fields:
    keys = random.choice([1, 2, 3])
    heads = keys * random.choice([1, 2, 4])
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 96 if heads % 3 == 0 else 64,
        "intermediate_size": random.choice([68, 96, 128]),
        "num_hidden_layers": random.choice([1, 2, 3]),
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "head_dim": random.choice([16, 24, 32]),
        "max_position_embeddings": random.choice([128, 4096]),
        "rms_norm_eps": random.choice([1e-5, 1e-3]),
        "tie_word_embeddings": _flip(random),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


def _flip(random: Random) -> bool:
    return random.random() < 0.5


def _rope(random: Random, context: int) -> Fields:
    theta, original = random.choice([300.0, 10000.0]), random.choice([16, 32, context])
    yarn = {"rope_type": "yarn", "rope_theta": theta, "original_max_position_embeddings": original}
    llama = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original}
    rope = random.choice(
        [
            {"rope_type": "default", "rope_theta": theta},
            {"rope_type": "linear", "rope_theta": theta, "factor": 8.0},
            {"rope_type": "llama3", "rope_theta": theta, "factor": 8.0, **llama},
            {**yarn, "factor": 4.0},
            {**yarn, "factor": 16.0, "attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0},
        ]
    )
    return {"rope_parameters": rope}


def _partial(random: Random, *shares: float) -> Fields:
    return {
        "rope_parameters": {"rope_theta": 700.0, "rope_type": "default", "partial_rotary_factor": random.choice(shares)}
    }


def _window(random: Random, context: int) -> int:
    return random.choice([1, 2, 5, 16, context - 1, context, context + 1])


def _kinds(random: Random, sizes: Fields, kinds: tuple[str, ...] = KINDS) -> list[str]:
    return [random.choice(kinds) for _ in range(sizes["num_hidden_layers"])]


def _windows(random: Random, sizes: Fields, context: int) -> Fields:
    return {"sliding_window": _window(random, context), "layer_types": _kinds(random, sizes)}


def _plain_heads(sizes: Fields) -> Fields:
    """Return heads that share the width of the model, for families without a width of heads."""
    heads = sizes["num_attention_heads"]
    return {"head_dim": None, "hidden_size": heads * (16 if heads > 3 else 64)}


def _experts(random: Random, name: str = "num_experts") -> Fields:
    count = random.choice([2, 5, 8])
    return {name: count, "num_experts_per_tok": random.choice([1, 2, count])}


MULTIPLIERS = {
    "embedding_multiplier": 2.0,
    "attention_multiplier": 0.0625,
    "residual_multiplier": 0.25,
    "logits_scaling": 8.0,
}


def _llama(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    return "llama", _rope(random, context) | {"attention_bias": _flip(random), "mlp_bias": _flip(random)}


def _plain(name: str) -> Callable[[Random, Fields, int], tuple[str, Fields]]:
    return lambda random, sizes, context: (name, _rope(random, context))


def _qwen3_moe(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    own = _rope(random, context) | _experts(random)
    own |= {"moe_intermediate_size": random.choice([32, 20]), "norm_topk_prob": _flip(random)}
    own |= {"decoder_sparse_step": random.choice([1, 2]), "mlp_only_layers": random.choice([[], [0]])}
    if _flip(random):
        own |= {"use_sliding_window": True, "sliding_window": _window(random, context), "max_window_layers": 1}
    return "qwen3_moe", own | {"attention_bias": _flip(random)}


def _mixtral(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    return "mixtral", _rope(random, context) | _experts(random, "num_local_experts")


def _olmoe(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    own = _rope(random, context) | _experts(random) | _plain_heads(sizes)
    return "olmoe", own | {"norm_topk_prob": _flip(random), "attention_bias": _flip(random)}


def _granite4(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    heads = sizes["num_attention_heads"]
    width = {"head_dim": None, "hidden_size": heads * (64 if heads % 4 else 16)}  # divided by the heads of Mamba layers
    none = {"num_local_experts": 0, "num_experts_per_tok": 0}
    experts = _experts(random, "num_local_experts") if _flip(random) else none
    own = _rope(random, context) | width | MULTIPLIERS | experts
    own |= {"shared_intermediate_size": random.choice([64, 100]), "attention_bias": _flip(random)}
    own |= {"layer_types": ["full_attention"] * sizes["num_hidden_layers"]}
    return "granitemoehybrid", own | {"position_embedding_type": random.choice(["rope", "nope"])}


def _gpt_oss(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    own = _rope(random, context) | _experts(random, "num_local_experts") | _windows(random, sizes, context)
    return "gpt_oss", own | {"intermediate_size": random.choice([32, 64, 36]), "attention_bias": _flip(random)}


def _gemma_sizes(random: Random) -> Fields:
    """Return a width whose root, the factor of embeddings, is a power of two."""
    return {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": random.choice([1, 2, 4])}


def _gemma4(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    own, shared = random.choice([1, 2]), random.choice([0, 1, 2])
    kinds = [*_kinds(random, {"num_hidden_layers": own - 1}), "full_attention"]
    kinds += [random.choice(kinds) for _ in range(max(shared - 1, 0))] + ["full_attention"] * (shared > 0)
    return "gemma4_text", {
        **_gemma_sizes(random),
        "num_hidden_layers": own + shared,
        "layer_types": kinds,
        "num_kv_shared_layers": shared,
        "global_head_dim": random.choice([sizes["head_dim"], 32]),
        "sliding_window": _window(random, context),
        "hidden_size_per_layer_input": random.choice([0, 32]),  # half of it has such a root, too
        "vocab_size_per_layer_input": VOCABULARY,
        "use_double_wide_mlp": _flip(random),
        "final_logit_softcapping": random.choice([None, 30.0]),
    }


def _gemma3(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    own = _windows(random, sizes, context) | {"query_pre_attn_scalar": random.choice([11, 256])}
    return "gemma3_text", own | _gemma_sizes(random) | {"attention_bias": _flip(random)}


def _gemma2(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    own = _windows(random, sizes, context) | {"query_pre_attn_scalar": sizes["head_dim"] * random.choice([1, 4])}
    own |= _gemma_sizes(random) | {"attn_logit_softcapping": random.choice([None, 5.0])}
    return "gemma2", own


def _lfm2(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    own = _rope(random, context) | _plain_heads(sizes) | {"rms_norm_eps": None, "norm_eps": 1e-4}
    own |= {"layer_types": _kinds(random, sizes, ("conv", "full_attention")), "conv_L_cache": random.choice([2, 3, 7])}
    if _flip(random):
        return "lfm2", own | {"block_auto_adjust_ff_dim": False}
    own |= _experts(random) | {
        "num_dense_layers": random.choice([0, 1]),
        "moe_intermediate_size": random.choice([32, 20]),
    }
    own |= {"norm_topk_prob": _flip(random), "use_expert_bias": _flip(random)}
    return "lfm2_moe", own | {"routed_scaling_factor": random.choice([1.0, 1.7])}


def _qwen3_5(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    keys, layers = random.choice([1, 2, 3]), max(sizes["num_hidden_layers"], 2)
    kinds = ["linear_attention", *_kinds(random, {"num_hidden_layers": layers - 1}, ("linear_attention", KINDS[1]))]
    own = _partial(random, 0.25, 0.5, 1.0) | {
        "num_hidden_layers": layers,
        "layer_types": kinds,
        "linear_num_key_heads": keys,
        "linear_num_value_heads": keys * random.choice([1, 2, 3]),
        "linear_key_head_dim": random.choice([8, 16]),
        "linear_value_head_dim": random.choice([8, 16]),
        "linear_conv_kernel_dim": random.choice([2, 4]),
        "attention_bias": _flip(random),
    }
    if _flip(random):
        return "qwen3_5_text", own
    own |= _experts(random) | {"moe_intermediate_size": 32, "shared_expert_intermediate_size": random.choice([32, 68])}
    return "qwen3_5_moe_text", own


def _exaone4(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    if _flip(random):
        full = ["full_attention"] * sizes["num_hidden_layers"]
        return "exaone4", _rope(random, context) | {"sliding_window": None, "layer_types": full}
    return "exaone4", _rope(random, context) | _windows(random, sizes, context)


def _smollm3(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    rotated = [random.choice([0, 1]) for _ in range(sizes["num_hidden_layers"])]
    own = _rope(random, context) | _plain_heads(sizes) | {"no_rope_layers": rotated}
    if _flip(random):
        own |= {"use_sliding_window": True, "sliding_window": _window(random, context)}
    return "smollm3", own | {"attention_bias": _flip(random), "mlp_bias": _flip(random)}


def _olmo(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    own = _rope(random, context) | _plain_heads(sizes)
    if _flip(random):
        return "olmo2", own
    by_kind = {
        "full_attention": own["rope_parameters"],
        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
    }
    return "olmo3", own | _windows(random, sizes, context) | {"rope_parameters": by_kind}


def _phi3(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    heads, share = _plain_heads(sizes), random.choice([1.0, 0.5])
    pairs = range(int(heads["hidden_size"] // sizes["num_attention_heads"] * share) // 2)
    rope = {"rope_type": "longrope", "rope_theta": 500.0, "partial_rotary_factor": share}
    rope |= {"short_factor": [1.0 + pair / 10 for pair in pairs], "long_factor": [1.0 + pair for pair in pairs]}
    return "phi3", {
        **heads,
        "rope_parameters": rope,
        "original_max_position_embeddings": random.choice([16, context * 2]),
        "sliding_window": random.choice([None, _window(random, context)]),
    }


def _glm(random: Random, sizes: Fields, context: int) -> tuple[str, Fields]:
    return random.choice(["glm", "glm4"]), _partial(random, 0.5) | {"attention_bias": _flip(random)}


FAMILIES: dict[str, Callable[[Random, Fields, int], tuple[str, Fields]]] = {
    "llama": _llama,
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "olmoe": _olmoe,
    "granite4": _granite4,
    "gpt_oss": _gpt_oss,
    "gemma4": _gemma4,
    "gemma3": _gemma3,
    "gemma2": _gemma2,
    "lfm2": _lfm2,
    "qwen3_5": _qwen3_5,
    "exaone4": _exaone4,
    "smollm3": _smollm3,
    "olmo": _olmo,
    "phi3": _phi3,
    "glm": _glm,
    **{name: _plain(name) for name in ("qwen3", "seed_oss", "hunyuan_v1_dense", "ernie4_5", "arcee", "apertus")},
}

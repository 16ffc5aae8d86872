"""Tiny checkpoints of the families as GGUF files, with the keys and in the order of rows that converters write."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .gguf_blocks import dequantize, quantize
from .gguf_talker import add, fields

IN_PAIRS = (
    "llama",
    "mistral",
    "granite",
    "smollm3",
    "arcee",
    "ministral3",
    "granitemoehybrid",
    "granitemoe",
)  # converters reorder the rows of their queries and keys
ARCHITECTURES = {
    "mistral": "llama",
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "hunyuan_v1_dense": "hunyuan-dense",
    "olmo3": "olmo2",
    "ministral3": "mistral3",
    "qwen3_5_text": "qwen35",
    "granitemoehybrid": "granite",
    "qwen3_moe": "qwen3moe",
    "lfm2_moe": "lfm2moe",
    "gpt_oss": "gpt-oss",
}  # where converters do not write model_type
# Variants that the format can say, by family.
VARIANTS = {
    "llama": ("scaled RoPE", "plain", "linear RoPE", "YaRN"),
    "qwen2": ("tied", "untied"),
    "qwen3": ("heads of another size",),
    "phi3": ("partial LongRoPE, short", "partial LongRoPE, long", "partial"),
    "granite": ("tied",),
    "granite4": ("RoPE",),
    "smollm3": ("every fourth layer",),
    "arcee": ("plain",),
    "ernie4_5": ("tied",),
    "exaone4": ("no window", "windows", "scaled RoPE"),
    "hunyuan_v1_dense": ("plain", "alpha"),
    "olmo2": ("grouped heads",),
    "olmo3": ("windows, scaled RoPE",),
    "mistral": ("no window",),  # without a window it is a Llama to converters
    "ministral3": ("YaRN",),
    "lfm2": ("three taps", "five taps, untied"),
    "seed_oss": ("biases",),
    "glm4": ("half of a head",),
    "gemma": ("heads of another size",),
    "gemma2": ("as GGUF can say it",),
    "gemma3": ("as GGUF can say it",),
    "gemma4": ("shared keys, wide feed-forwards",),
    "qwen3_5": ("shared keys", "tied"),
    "qwen3_moe": ("experts in all layers",),
    "lfm2_moe": ("a bias of the choice",),
    "granite_moe": ("experts",),
    "olmoe": ("scores as they are",),
    "gpt_oss": ("every second layer",),
}
QUANTIZED = {family: variants[0] for family, variants in VARIANTS.items()}  # the variant that is quantized


def write_gguf(folder: Path, path: Path, quantization: str | None = None) -> Path:
    """Write the checkpoint of a folder that transformers saved; matrices are quantized as `quantization`."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    names = tensor_names(config)
    writer = gguf.GGUFWriter(path, architecture(config))
    for key, value in keys(config).items():
        add(writer, f"{architecture(config)}.{key}", value)
    for key, value in fields().items():
        if key.startswith("tokenizer."):
            add(writer, key, value)
    for name, weight in unfused(load_file(folder / "model.safetensors")).items():
        theirs = names(name)
        stored = np.ascontiguousarray(permuted(name, weight, config) + norm_offset(name, config))
        if name.endswith("A_log"):
            stored = -np.exp(stored)
        if "conv" in name and weight.ndim == 3:
            stored = stored.squeeze(1)
        matrix = (weight.ndim == 2 or ".experts." in name) and not name.endswith("bias")
        if quantization is not None and matrix and not theirs.endswith("ffn_gate_inp.weight"):
            kind = gguf.GGMLQuantizationType[quantization]
            blocks = quantize(stored.reshape(-1, stored.shape[-1]), quantization)
            writer.add_tensor(theirs, blocks.reshape(*stored.shape[:-1], -1), raw_dtype=kind)
        else:
            writer.add_tensor(theirs, stored)
    for name, weight in rotary_tensors(config).items():
        writer.add_tensor(name, weight.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read_back(path: Path, folder: Path) -> dict[str, np.ndarray]:
    """Return the weights of a file that `write_gguf` wrote, read by the package gguf, as transformers names them."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    names = tensor_names(config)
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    weights = {}
    saved = load_file(folder / "model.safetensors")
    for name, weight in unfused(saved).items():
        tensor = stored[names(name)]
        values = dequantize(tensor.data, tensor.tensor_type.name).reshape(weight.shape)
        if name.endswith("A_log"):
            values = np.log(-values)
        weights[name] = permuted(name, values, config, back=True) - norm_offset(name, config)
    for name in saved.keys() - weights.keys():
        expert = EXPERT.fullmatch(name)
        if expert is not None:
            weights[name] = weights[stack_name(expert)][int(expert[2])]
            continue
        parts = [weights[part] for part in unfused({name: saved[name]})]
        if OF_GPT_OSS.fullmatch(name):
            weights[name] = interleaved(parts)
            continue
        weights[name] = np.concatenate(parts, axis=1 if saved[name].ndim == 3 else 0)
    return weights


EXPERT = re.compile(r"(.*)\.(?:mlp|feed_forward)\.experts\.(\d+)\.(\w+)\.weight")


OF_GPT_OSS = re.compile(r"(.*\.mlp\.experts)\.(gate_up_proj|down_proj)(_bias)?")


def apart(match: re.Match[str], weight: np.ndarray) -> dict[str, np.ndarray]:
    """Return the gates and values of all experts, whose columns alternate, as matrices (E, N, K) and biases (E, N)."""
    ends = ("gate_proj", "up_proj") if match[2] == "gate_up_proj" else ("down_proj",)
    kind = "bias" if match[3] else "weight"
    columns = (weight[..., number :: len(ends)] for number in range(len(ends)))
    return {f"{match[1]}.{end}.{kind}": np.swapaxes(part, 1, -1) for end, part in zip(ends, columns, strict=True)}


def interleaved(parts: list[np.ndarray]) -> np.ndarray:
    """Return what `apart` has taken apart."""
    rows = np.stack(parts, axis=2).reshape(len(parts[0]), -1, *parts[0].shape[2:])  # (E, N, K) or (E, N)
    return np.ascontiguousarray(np.swapaxes(rows, 1, -1))


def stack_name(expert: re.Match[str]) -> str:
    part = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}.get(expert[3], expert[3])
    return f"{expert[1]}.mlp.experts.{part}.weight"


def unfused(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights as converters write them.

    The feed-forward of Granite 4 is as that of other models, and the matrices of all experts are a stack.
    """
    stacks: dict[str, list[np.ndarray]] = {}
    for name in sorted(weights, key=lambda name: int(match[2]) if (match := EXPERT.fullmatch(name)) else 0):
        if expert := EXPERT.fullmatch(name):
            stacks.setdefault(stack_name(expert), []).append(weights[name])
    weights = {name: weight for name, weight in weights.items() if not EXPERT.fullmatch(name)}
    weights |= {name: np.stack(matrices) for name, matrices in stacks.items()}
    parts = {
        ".shared_mlp.input_linear.": (".mlp.gate_proj.", ".mlp.up_proj."),
        ".shared_mlp.output_linear.": (".mlp.down_proj.",),
        ".block_sparse_moe.input_linear.": (".mlp.experts.gate_proj.", ".mlp.experts.up_proj."),
        ".block_sparse_moe.output_linear.": (".mlp.experts.down_proj.",),
    }
    result: dict[str, np.ndarray] = {}
    for name, weight in weights.items():
        if match := OF_GPT_OSS.fullmatch(name):
            result |= apart(match, weight)
            continue
        fused = next((part for part in parts if part in name), None)
        names = [name] if fused is None else [name.replace(fused, part) for part in parts[fused]]
        result |= zip(names, np.split(weight, len(names), axis=weight.ndim - 2 if len(names) > 1 else 0), strict=True)
    return result


def architecture(config: Mapping[str, Any]) -> str:
    kind: str = config["model_type"]
    return ARCHITECTURES.get(kind, kind)


def tensor_names(config: Mapping[str, Any]) -> Callable[[str], str]:
    """Return the function from names of transformers to those of GGUF."""
    import gguf

    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture(config))
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])

    def named(name: str) -> str:
        name = name.replace(".dt_bias", ".dt_proj.bias").replace(".expert_bias", ".expert_bias.bias")
        name = f"{name}.weight" if name.endswith(("layer_scalar", "sinks")) else name
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs is not None, name
        return str(theirs)

    return named


def norm_offset(name: str, config: Mapping[str, Any]) -> np.float32:
    """Return what converters add to the norms of Gemma and Qwen3.5, so that readers do not."""
    kinds = ("gemma", "gemma2", "gemma3_text", "qwen3_5_text")
    around_one = config["model_type"] in kinds and "linear_attn.norm" not in name
    return np.float32("norm" in name and around_one)


def keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Under the name of the architecture."""
    size = head_dim(config)
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    metadata = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps") or config["norm_eps"]),
        "rope.freq_base": float(rope["rope_theta"] * (rope.get("alpha") or 1) ** (size / (size - 2))),
        "rope.dimension_count": int(size * rope.get("partial_rotary_factor", 1)),
    }
    if "head_dim" in config:
        metadata |= {"attention.key_length": size, "attention.value_length": size}
    if rope["rope_type"] in ("linear", "yarn"):
        metadata |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    if rope["rope_type"] == "yarn":
        metadata["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        names = {"attention_factor": "attn_factor", "beta_fast": "beta_fast", "beta_slow": "beta_slow"}
        metadata |= {f"rope.scaling.yarn_{key}": float(rope[name]) for name, key in names.items() if rope.get(name)}
    return metadata | expert_keys(config) | own_keys(config)


def expert_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a mixture."""
    count = config.get("num_local_experts") or config.get("num_experts")
    if not count:
        return {}
    values = {"expert_count": count, "expert_used_count": config["num_experts_per_tok"]}
    if config["model_type"] == "gpt_oss":
        values["expert_feed_forward_length"] = config["intermediate_size"]
    if "moe_intermediate_size" in config:
        values["expert_feed_forward_length"] = config["moe_intermediate_size"]
    if "num_dense_layers" in config:
        values |= {"leading_dense_block_count": config["num_dense_layers"], "expert_gating_func": 2}
    return values


def own_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of one family."""
    if config["model_type"].startswith("granite"):
        names = {
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        }
        factors = {key: float(config[name]) for key, name in names.items()}
        return factors | (granite_4_keys(config) if config["model_type"] == "granitemoehybrid" else {})
    if config["model_type"] in ("exaone4", "gpt_oss") and config["sliding_window"] is not None:
        return {"attention.sliding_window": config["sliding_window"]}
    if config["model_type"] in ("lfm2", "lfm2_moe"):
        count = config["num_key_value_heads"]
        heads = [count if kind == "full_attention" else 0 for kind in config["layer_types"]]
        return {"attention.head_count_kv": heads, "shortconv.l_cache": config["conv_L_cache"]}
    if config["model_type"] == "ministral3":
        rope = config["rope_parameters"]
        return {
            "rope.scaling.yarn_log_multiplier": float(rope["mscale_all_dim"]),
            "attention.temperature_scale": float(rope["llama_4_scaling_beta"]),
        }
    if config["model_type"] == "qwen3_5_text":
        values, size = config["linear_num_value_heads"], config["linear_value_head_dim"]
        return {
            "ssm.conv_kernel": config["linear_conv_kernel_dim"],
            "ssm.state_size": config["linear_key_head_dim"],
            "ssm.group_count": config["linear_num_key_heads"],
            "ssm.time_step_rank": values,
            "ssm.inner_size": values * size,
            "full_attention_interval": config["layer_types"].index("full_attention") + 1,
            "rope.dimension_sections": [11, 11, 10, 0],
        }
    if config["model_type"] == "olmo3":
        sliding = [kind == "sliding_attention" for kind in config["layer_types"]]
        return {"attention.sliding_window": config["sliding_window"], "attention.sliding_window_pattern": sliding}
    if config["model_type"] in ("gemma2", "gemma3_text"):
        caps = ("attn_logit_softcapping", "final_logit_softcapping")
        limits = {key: float(config[key]) for key in caps if config.get(key) is not None}
        return {**limits, "attention.sliding_window": config["sliding_window"]}
    if config["model_type"] == "gemma4_text":
        return gemma_4_keys(config)
    if config["model_type"] != "phi3":
        return {}
    original = config["original_max_position_embeddings"]
    metadata = {"attention.sliding_window": 0, "rope.scaling.original_context_length": original}
    if config["rope_parameters"]["rope_type"] == "longrope":
        grown = config["max_position_embeddings"] / original
        loud = math.sqrt(1 + math.log(grown) / math.log(original)) if grown > 1 else 1.0
        return metadata | {"rope.scaling.attn_factor": loud}
    return metadata


def gemma_4_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """With the width of heads of layers without a window, as of all others in transformers."""
    sliding = [kind == "sliding_attention" for kind in config["layer_types"]]
    own = len(sliding) - config["num_kv_shared_layers"]
    wide, narrow = config["per_layer_config"][str(sliding.index(False))]["head_dim"], config["head_dim"]
    hidden = [config["intermediate_size"] * (1 + (number >= own)) for number in range(len(sliding))]
    return {
        "attention.key_length": wide,
        "attention.value_length": wide,
        "attention.key_length_swa": narrow,
        "attention.value_length_swa": narrow,
        "attention.shared_kv_layers": config["num_kv_shared_layers"],
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": sliding,
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "feed_forward_length": hidden if config["use_double_wide_mlp"] else config["intermediate_size"],
        "final_logit_softcapping": float(config["final_logit_softcapping"]),
        "rope.dimension_count": wide,
        "rope.dimension_count_swa": narrow,
        "rope.freq_base_swa": float(config["rope_parameters"]["sliding_attention"]["rope_theta"]),
    }


def granite_4_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """With those of Mamba layers and experts, which the model does not have."""
    return {
        "feed_forward_length": config["shared_intermediate_size"],
        "expert_shared_feed_forward_length": config["shared_intermediate_size"],
        "attention.head_count_kv": [config["num_key_value_heads"]] * config["num_hidden_layers"],
        "rope.scaling.finetuned": True,
        "ssm.conv_kernel": config["mamba_d_conv"],
        "ssm.state_size": config["mamba_d_state"],
        "ssm.group_count": config["mamba_n_groups"],
        "ssm.inner_size": config["mamba_expand"] * config["hidden_size"],
        "ssm.time_step_rank": config["mamba_n_heads"],
    }


def rotary_tensors(config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Divisors of frequencies."""
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    if rope["rope_type"] == "longrope":
        return {f"rope_factors_{name}.weight": np.array(rope[f"{name}_factor"]) for name in ("long", "short")}
    if rope["rope_type"] == "proportional":
        half = config["per_layer_config"][max(config["per_layer_config"])]["head_dim"] // 2
        turning = int(half * rope["partial_rotary_factor"])
        return {"rope_freqs.weight": np.array([1.0] * turning + [1e30] * (half - turning))}
    if rope["rope_type"] != "llama3":
        return {}
    size = head_dim(config)
    waves = 2 * math.pi * rope["rope_theta"] ** (np.arange(0, size, 2) / size)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = (rope["original_max_position_embeddings"] / waves - low) / (high - low)
    smooth = np.clip(smooth, 0, 1)
    return {"rope_freqs.weight": 1 / ((1 - smooth) / rope["factor"] + smooth)}


def head_dim(config: Mapping[str, Any]) -> int:
    size: int = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return size


def permuted(name: str, weight: np.ndarray, config: Mapping[str, Any], back: bool = False) -> np.ndarray:
    """Return queries and keys with elements that rotate together beside each other, or `back` half a head apart.

    The value heads of linear attention that share a key head are apart in GGUF.
    """
    if "linear_attn." in name and "linear_attn.norm" not in name:
        return tiled(name, weight, config, back)
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    if heads is None or config["model_type"] not in IN_PAIRS:
        return weight
    count = config[heads]
    split = (count, -1, 2) if back else (count, 2, -1)
    return weight.reshape(*split, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def tiled(name: str, weight: np.ndarray, config: Mapping[str, Any], back: bool) -> np.ndarray:
    """Return a weight of linear attention with its value heads in GGUF's order, or `back` in that of transformers."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    part = name.rpartition("linear_attn.")[2].split(".")[0]
    before = 2 * keys * config["linear_key_head_dim"] if part in ("in_proj_qkv", "conv1d") else 0
    wide = part in ("in_proj_qkv", "conv1d", "in_proj_z", "out_proj")
    axis = int(part == "out_proj")
    rows = np.moveaxis(weight, axis, 0)
    heads = rows[before:]
    split = (values // keys, keys) if back else (keys, values // keys)
    size = config["linear_value_head_dim"] if wide else 1
    moved = heads.reshape(*split, size, *heads.shape[1:]).swapaxes(0, 1).reshape(heads.shape)
    return np.moveaxis(np.concatenate([rows[:before], moved]), 0, axis)

"""Qwen3 with mixtures of experts in place of most feed-forwards."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture, LayerSpec
from ..config import Fields, attention_windows, decoder_config, decoder_gguf
from ..family import Family
from ..mixtures import GGUF_EXPERT_NAMES, expert_names, read_experts, read_gguf_experts, with_experts
from ..weights import GGUF, HUGGING_FACE, TensorNames
from . import qwen3


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, kv_heads=4)
    biases = fields.boolean("attention_bias")
    fields.get("max_window_layers")  # of Qwen2 and Qwen3; here transformers lets all layers have the window
    windows = attention_windows(fields, model.n_layers, [True] * model.n_layers, default=4096)
    layers = tuple(LayerSpec(window=window) for window in windows)
    model = replace(model, layers=layers, qk_norm=True, qkv_bias=biases, out_bias=biases)
    experts = read_experts(fields, "moe_intermediate_size", normalized=fields.boolean("norm_topk_prob"))
    every, dense = fields.integer("decoder_sparse_step", 1), fields.list_of("mlp_only_layers", int)
    mixed = {number for number in range(model.n_layers) if (number + 1) % every == 0} - {*dense}
    return with_experts(model, experts, mixed)


def read_gguf(fields: Fields) -> Architecture:
    return with_experts(replace(decoder_gguf(fields), qk_norm=True), read_gguf_experts(fields))


FAMILY = Family(
    name="Qwen3 MoE",
    models="Qwen3 30B-A3B and 235B-A22B, Qwen3-Coder 30B-A3B",
    special="mixtures of experts, norms of queries and keys",
    model_types=("qwen3_moe",),
    classes=("Qwen3MoeForCausalLM",),
    config=read_config,
    rules=qwen3.FAMILY.rules,
    gguf_types=("qwen3moe",),
    gguf=read_gguf,
    names=TensorNames(
        {**HUGGING_FACE.parts, **expert_names("model.layers.{}.mlp", "gate", ("gate_proj", "down_proj", "up_proj"))}
    ),
    gguf_names=TensorNames({**GGUF.parts, **GGUF_EXPERT_NAMES}),
    end_tokens=qwen3.FAMILY.end_tokens,
    tool_formats=qwen3.FAMILY.tool_formats,
)

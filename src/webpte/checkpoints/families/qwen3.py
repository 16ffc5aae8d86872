"""Qwen3: queries and keys are normalized by head, and heads have a size of their own."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import FieldRule, Fields, decoder_config, decoder_gguf
from ..family import IN_TAGS, PARAMETERS_IN_TAGS, Family
from .qwen2 import window_layers


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, head_dim=128, kv_heads=32)
    biases = fields.boolean("attention_bias")
    return replace(model, layers=window_layers(fields, model.n_layers), qk_norm=True, qkv_bias=biases, out_bias=biases)


def read_gguf(fields: Fields) -> Architecture:
    return replace(decoder_gguf(fields), qk_norm=True)


FAMILY = Family(
    name="Qwen3",
    models="Qwen3 0.6B to 32B",
    special="norms of queries and keys, heads of a size of their own",
    model_types=("qwen3",),
    classes=("Qwen3ForCausalLM",),
    config=read_config,
    rules=dict.fromkeys(
        ("qk_norm", "use_qk_norm", "qk_layernorm"), FieldRule((True,), "queries and keys are normalized here")
    ),
    gguf_types=("qwen3",),
    gguf=read_gguf,
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    tool_formats={"<function=": PARAMETERS_IN_TAGS, "<tool_call>": IN_TAGS},
)

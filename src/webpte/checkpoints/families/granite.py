"""Granite: a Llama with four multipliers, which are multiplied into its weights."""

from __future__ import annotations

from dataclasses import replace

from ...llm.tools import ToolFormat
from ..architecture import Architecture
from ..config import Fields, decoder_config, decoder_gguf
from ..family import IN_TAGS, Family
from ..weights import GGUF_IN_PAIRS


def read_config(fields: Fields, hidden_dim: int | None = None) -> Architecture:
    """Return the architecture; `hidden_dim` replaces intermediate_size."""
    biases = fields.boolean("attention_bias")
    return replace(
        decoder_config(fields, hidden_dim=hidden_dim),
        qkv_bias=biases,
        out_bias=biases,
        mlp_bias=fields.boolean("mlp_bias"),
        attention_scale=fields.number("attention_multiplier", 1.0),
        embedding_factor=fields.number("embedding_multiplier", 1.0),
        residual_factor=fields.number("residual_multiplier", 1.0),
        logits_factor=1 / fields.number("logits_scaling", 1.0),
    )


def read_gguf(fields: Fields) -> Architecture:
    def factor(name: str) -> float | None:  # 0 means that the key is unset
        return fields.number(name) if fields.get(name) else None

    return replace(
        decoder_gguf(fields),
        attention_scale=factor("attention.scale"),
        embedding_factor=factor("embedding_scale") or 1.0,
        residual_factor=factor("residual_scale") or 1.0,
        logits_factor=1 / (factor("logit_scale") or 1.0),
    )


FAMILY = Family(
    name="Granite",
    models="Granite 3.0 to 3.3",
    special="multipliers of embeddings, attention, residuals and logits",
    model_types=("granite",),
    classes=("GraniteForCausalLM",),
    config=read_config,
    gguf_types=("granite",),
    gguf=read_gguf,
    gguf_names=GGUF_IN_PAIRS,
    end_tokens=("<|end_of_text|>",),
    tool_formats={"<|tool_call|>": ToolFormat("list", "<|tool_call|>"), "<tool_call>": IN_TAGS},
)

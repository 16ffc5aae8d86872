"""Ministral 3: a Llama with YaRN. Queries beyond the original context are scaled, so programs end there."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import MAX_CONTEXT_TOKENS, Fields, decoder_config, decoder_gguf
from ..family import NAMED_IN_BRACKETS, Family
from ..weights import GGUF_IN_PAIRS

_IGNORED = ("max_position_embeddings", "llama_4_scaling_beta")  # the second has an effect beyond `max_positions`


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, head_dim=128, kv_heads=8, theta=1000000.0, rope_ignored=_IGNORED)
    if fields.get("sliding_window") is not None:
        fields.refuse("sliding_window", "attention to a window")
    settings = fields.get("rope_parameters")
    limit = None
    if isinstance(settings, dict) and settings.get("llama_4_scaling_beta"):
        inner = Fields(f"{fields.where}: rope_parameters", settings)
        limit = inner.integer("original_max_position_embeddings", maximum=MAX_CONTEXT_TOKENS)
    return replace(model, max_positions=limit)


def read_gguf(fields: Fields) -> Architecture:
    model = decoder_gguf(fields)
    limit = None
    if fields.get("attention.temperature_scale"):
        limit = fields.integer("rope.scaling.original_context_length", maximum=MAX_CONTEXT_TOKENS)
    return replace(model, max_positions=limit)


FAMILY = Family(
    name="Ministral 3",
    models="Ministral 3 3B, 8B and 14B, without their image encoder; contexts up to 16,384 tokens",
    special="YaRN",
    model_types=("ministral3",),
    classes=("Ministral3ForCausalLM",),
    config=read_config,
    gguf_types=("mistral3",),
    gguf=read_gguf,
    gguf_names=GGUF_IN_PAIRS,
    end_tokens=("</s>",),
    tool_formats={"[CALL_ID]": None, "[ARGS]": NAMED_IN_BRACKETS},
)

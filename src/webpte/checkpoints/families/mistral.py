"""Mistral: a Llama with an optional sliding window. GGUF calls it a Llama."""

from __future__ import annotations

from dataclasses import replace

from ...llm.tool_shapes import ToolFormat
from ..architecture import Architecture, LayerSpec
from ..config import Fields, decoder_config
from ..family import NAMED_IN_BRACKETS, Family

_WINDOW = 4096  # what transformers takes where config.json leaves it out


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, kv_heads=8)
    window = fields.get("sliding_window") if "sliding_window" in fields.values else _WINDOW
    layer = LayerSpec(window=None if window is None else fields.integer("sliding_window", _WINDOW))
    return replace(model, layers=(layer,) * model.n_layers)


FAMILY = Family(
    name="Mistral",
    models="Mistral 7B, Mistral Nemo, Ministral",
    special="a sliding window",
    model_types=("mistral",),
    classes=("MistralForCausalLM",),
    config=read_config,
    end_tokens=("</s>",),
    tool_formats={
        "[CALL_ID]": None,
        "[ARGS]": NAMED_IN_BRACKETS,
        "[TOOL_CALLS]": ToolFormat("list", "[TOOL_CALLS]"),
    },
)

"""Qwen2 and Qwen2.5: biases of queries, keys and values, and a window in the last layers, if it is switched on."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture, LayerSpec
from ..config import FieldRule, Fields, attention_windows, decoder_config, decoder_gguf
from ..family import IN_TAGS, Family

_WINDOW_LAYERS = 28  # what transformers takes where config.json leaves it out


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, kv_heads=32)
    return replace(model, layers=window_layers(fields, model.n_layers), qkv_bias=True)


def window_layers(fields: Fields, count: int) -> tuple[LayerSpec, ...]:
    """Return the layers of Qwen2 and Qwen3: those from max_window_layers on have a sliding window."""
    first = fields.get("max_window_layers", _WINDOW_LAYERS)
    if isinstance(first, bool) or not isinstance(first, int) or first < 0:
        raise fields.invalid("max_window_layers", first, "an integer")
    windows = attention_windows(fields, count, [number >= first for number in range(count)], default=4096)
    return tuple(LayerSpec(window=window) for window in windows)


def read_gguf(fields: Fields) -> Architecture:
    return replace(decoder_gguf(fields), qkv_bias=True)


FAMILY = Family(
    name="Qwen2.5",
    models="Qwen2, Qwen2.5, Qwen2.5-Coder, DeepSeek-R1-Distill-Qwen",
    special="biases of queries, keys and values",
    model_types=("qwen2",),
    classes=("Qwen2ForCausalLM",),
    config=read_config,
    rules=dict.fromkeys(
        ("attention_bias", "qkv_bias", "attention_qkv_bias"),
        FieldRule((True,), "queries, keys and values have biases here"),
    ),
    gguf_types=("qwen2",),
    gguf=read_gguf,
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    tool_formats={"<tool_call>": IN_TAGS},
)

"""SmolLM3: a Llama some of whose layers do not turn queries and keys."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture, LayerSpec
from ..config import Fields, attention_windows, decoder_config, decoder_gguf
from ..family import IN_TAGS, Family
from ..weights import GGUF_IN_PAIRS

_INTERVAL = 4  # what transformers takes where config.json leaves it out, and GGUF does not name


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, tied=True, kv_heads=4, theta=2000000.0)
    turning = _turning(fields, model.n_layers)
    fields.get("max_window_layers")  # Qwen's; transformers does not read it here
    # transformers slides the window of layers that do not turn.
    windows = attention_windows(fields, model.n_layers, [not turns for turns in turning])
    biases = fields.boolean("attention_bias")
    return replace(
        model,
        layers=_layers(turning, windows),
        qkv_bias=biases,
        out_bias=biases,
        mlp_bias=fields.boolean("mlp_bias"),
    )


def _turning(fields: Fields, count: int) -> list[bool]:
    interval = fields.integer("no_rope_layer_interval", _INTERVAL)
    listed = fields.get("no_rope_layers", [int((number + 1) % interval != 0) for number in range(count)])
    if not isinstance(listed, list) or len(listed) < count or any(value not in (0, 1) for value in listed):
        raise fields.invalid("no_rope_layers", listed, f"a list of {count} ones and zeros")
    return [bool(value) for value in listed[:count]]


def _layers(turning: list[bool], windows: list[int | None]) -> tuple[LayerSpec, ...]:
    pairs = zip(turning, windows, strict=True)
    return tuple(LayerSpec("rope" if turns else None, window) for turns, window in pairs)


def read_gguf(fields: Fields) -> Architecture:
    model = decoder_gguf(fields)
    turning = [(number + 1) % _INTERVAL != 0 for number in range(model.n_layers)]
    return replace(model, layers=_layers(turning, [layer.window for layer in model.layers]))


FAMILY = Family(
    name="SmolLM3",
    models="SmolLM3 3B",
    special="layers without RoPE",
    model_types=("smollm3",),
    classes=("SmolLM3ForCausalLM",),
    config=read_config,
    gguf_types=("smollm3",),
    gguf=read_gguf,
    gguf_names=GGUF_IN_PAIRS,
    end_tokens=("<|im_end|>",),
    tool_formats={"<tool_call>": IN_TAGS},
)

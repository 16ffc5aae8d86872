"""Llama 2 to 3.2, and the many that are one by another name: SmolLM2, TinyLlama, Yi, DeepSeek's small distillations."""

from __future__ import annotations

from dataclasses import replace

from ...llm.tool_shapes import ToolFormat
from ..architecture import Architecture, LayerSpec
from ..config import Fields, decoder_config, decoder_gguf
from ..family import IN_TAGS, Family
from ..weights import GGUF_IN_PAIRS

# Llama 3.1 and 3.2: an object that is all of the answer, after a mark or without it.
_JSON = ToolFormat("object", "<|python_tag|>", bare=True, arguments="parameters")


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields)
    window = fields.integer("sliding_window") if fields.get("sliding_window") is not None else None
    biases = fields.boolean("attention_bias")
    return replace(
        model,
        layers=(LayerSpec(window=window),) * model.n_layers,
        qkv_bias=biases,
        out_bias=biases,
        mlp_bias=fields.boolean("mlp_bias"),
    )


FAMILY = Family(
    name="Llama",
    models="Llama 2, 3, 3.1, 3.2; SmolLM2, TinyLlama",
    special="RoPE scaled for long contexts",
    model_types=("llama",),
    classes=("LlamaForCausalLM",),
    config=read_config,
    gguf_types=("llama",),
    gguf=decoder_gguf,
    gguf_names=GGUF_IN_PAIRS,
    end_tokens=("<|eot_id|>", "<|eom_id|>", "<|im_end|>"),
    tool_formats={'"parameters": ': _JSON, "<tool_call>": IN_TAGS},
)

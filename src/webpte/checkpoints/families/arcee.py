"""Arcee: a Llama whose feed-forward has no gate: two layers, and the square of relu between them."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import Fields, decoder_config, decoder_gguf
from ..family import IN_TAGS, Family
from ..weights import GGUF_IN_PAIRS


def read_config(fields: Fields) -> Architecture:
    biases = fields.boolean("attention_bias")
    return replace(
        decoder_config(fields, activation="relu2"),
        qkv_bias=biases,
        out_bias=biases,
        mlp_bias=fields.boolean("mlp_bias"),
        gated_mlp=False,
    )


def read_gguf(fields: Fields) -> Architecture:
    return replace(decoder_gguf(fields), activation="relu2", gated_mlp=False)


FAMILY = Family(
    name="Arcee",
    models="AFM 4.5B",
    special="a feed-forward without a gate, the square of relu",
    model_types=("arcee",),
    classes=("ArceeForCausalLM",),
    config=read_config,
    gguf_types=("arcee",),
    gguf=read_gguf,
    gguf_names=GGUF_IN_PAIRS,
    end_tokens=("<|im_end|>", "<|end_of_text|>", "<|eot_id|>"),
    tool_formats={"<tool_call>": IN_TAGS},
)

"""Gemma: a Llama with scaled embeddings, norms around 1 and another activation."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import Fields, decoder_config, decoder_gguf
from ..family import Family
from .gemma2 import embedding_scale, gguf_embedding_scale


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, tied=True, head_dim=256, kv_heads=16, activation="gelu_tanh")
    biases = fields.boolean("attention_bias")
    scale = embedding_scale(fields, model)
    return replace(model, qkv_bias=biases, out_bias=biases, norm_offset=1.0, embedding_factor=scale)


def read_gguf(fields: Fields) -> Architecture:
    """Return the architecture. Converters add 1 to norms."""
    model = decoder_gguf(fields)
    return replace(model, activation="gelu_tanh", embedding_factor=gguf_embedding_scale(model))


FAMILY = Family(
    name="Gemma",
    models="Gemma 2B and 7B, CodeGemma",
    special="scaled embeddings, norms around 1, GELU",
    model_types=("gemma",),
    classes=("GemmaForCausalLM",),
    config=read_config,
    gguf_types=("gemma",),
    gguf=read_gguf,
    end_tokens=("<end_of_turn>",),
)

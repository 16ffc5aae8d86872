"""Seed-OSS: a Llama with biases of queries, keys and values, and heads of a size of their own."""

from __future__ import annotations

from dataclasses import replace

from ...llm.tool_shapes import ToolFormat
from ..architecture import Architecture
from ..config import Fields, decoder_config, decoder_gguf
from ..family import Family
from ..weights import GGUF, TensorNames


def read_config(fields: Fields) -> Architecture:
    fields.get("residual_dropout")  # of training
    return replace(
        decoder_config(fields, head_dim=128, kv_heads=8),
        qkv_bias=fields.boolean("attention_bias", True),
        out_bias=fields.boolean("attention_out_bias"),
        mlp_bias=fields.boolean("mlp_bias"),
    )


def read_gguf(fields: Fields) -> Architecture:
    return replace(decoder_gguf(fields), qkv_bias=True)


FAMILY = Family(
    name="Seed-OSS",
    models="Seed-OSS 36B",
    special="biases of queries, keys and values, heads of a size of their own",
    model_types=("seed_oss",),
    classes=("SeedOssForCausalLM",),
    config=read_config,
    gguf_types=("seed_oss",),
    gguf=read_gguf,
    gguf_names=TensorNames({**GGUF.parts, "layers.{}.ffn_norm": "blk.{}.post_attention_norm"}),
    end_tokens=("<seed:eos>",),
    tool_formats={"<seed:tool_call>": ToolFormat("parameters", "<seed:tool_call>", "</seed:tool_call>", padding="")},
)

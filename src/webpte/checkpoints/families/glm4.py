"""GLM-4 of 2025: a GLM-4 with norms after each part too."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import Fields, decoder_gguf
from ..family import Family
from ..weights import GGUF, TensorNames
from . import glm

_NAMES = {
    "layers.{}.post_attention_norm": "model.layers.{}.post_self_attn_layernorm",
    "layers.{}.post_ffn_norm": "model.layers.{}.post_mlp_layernorm",
}
_GGUF_NAMES = {
    **dict.fromkeys(("layers.{}.feed_forward.w1", "layers.{}.feed_forward.w3"), "blk.{}.ffn_up"),
    "layers.{}.post_attention_norm": "blk.{}.post_attention_norm",
    "layers.{}.post_ffn_norm": "blk.{}.post_ffw_norm",
}


def read_config(fields: Fields) -> Architecture:
    return replace(glm.read_config(fields), post_norms=True)


def read_gguf(fields: Fields) -> Architecture:
    return replace(decoder_gguf(fields), qkv_bias=True, post_norms=True)


FAMILY = Family(
    name="GLM-4-0414",
    models="GLM-4-0414 and GLM-Z1, 9B and 32B",
    special="GLM-4 with norms after each part",
    model_types=("glm4",),
    classes=("Glm4ForCausalLM",),
    config=read_config,
    gguf_types=("glm4",),
    gguf=read_gguf,
    names=TensorNames({**glm.NAMES.parts, **_NAMES}, halves=False),
    gguf_names=TensorNames({**GGUF.parts, **_GGUF_NAMES}, halves=False),
    end_tokens=glm.END_TOKENS,
)

"""GLM-4 9B: half of each head rotates, as neighbors, and the feed-forward has fused linears."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import Fields, decoder_config
from ..family import Family
from ..weights import HUGGING_FACE, TensorNames

_FUSED = dict.fromkeys(("layers.{}.feed_forward.w1", "layers.{}.feed_forward.w3"), "model.layers.{}.mlp.gate_up_proj")
NAMES = TensorNames({**HUGGING_FACE.parts, **_FUSED}, halves=False)
END_TOKENS = ("<|endoftext|>", "<|user|>", "<|observation|>")


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, head_dim=128, kv_heads=2, partial=True, share=0.5)
    return replace(model, qkv_bias=fields.boolean("attention_bias", True))


FAMILY = Family(
    name="GLM-4",
    models="GLM-4 9B, GLM-Edge",
    special="rotation of neighboring elements in half of each head, a fused feed-forward",
    model_types=("glm",),
    classes=("GlmForCausalLM",),
    config=read_config,
    names=NAMES,
    end_tokens=END_TOKENS,
)

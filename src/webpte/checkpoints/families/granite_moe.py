"""Granite with mixtures of experts in place of its feed-forwards."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import Fields
from ..mixtures import GGUF_EXPERT_NAMES, read_experts, read_gguf_experts, with_experts
from ..weights import HUGGING_FACE, TensorNames
from . import granite

# The matrices of all experts are one tensor; gate and up are the rows of one.
EXPERT_NAMES = {
    "layers.{}.router": "model.layers.{}.block_sparse_moe.router.layer",
    "layers.{}.experts.{}.w1": "model.layers.{}.block_sparse_moe.input_linear",
    "layers.{}.experts.{}.w3": "model.layers.{}.block_sparse_moe.input_linear",
    "layers.{}.experts.{}.w2": "model.layers.{}.block_sparse_moe.output_linear",
}


def read_config(fields: Fields) -> Architecture:
    return with_experts(granite.read_config(fields), read_experts(fields, "intermediate_size"))


def read_gguf(fields: Fields) -> Architecture:
    return with_experts(granite.read_gguf(fields), read_gguf_experts(fields, "feed_forward_length"))


FAMILY = replace(
    granite.FAMILY,
    name="Granite MoE",
    models="Granite 3.0 and 3.1 1B-A400M and 3B-A800M",
    special="the multipliers of Granite, mixtures of experts",
    model_types=("granitemoe",),
    classes=("GraniteMoeForCausalLM",),
    config=read_config,
    gguf_types=("granitemoe",),
    gguf=read_gguf,
    names=TensorNames({**HUGGING_FACE.parts, **EXPERT_NAMES}),
    gguf_names=replace(granite.FAMILY.gguf_names, parts={**granite.FAMILY.gguf_names.parts, **GGUF_EXPERT_NAMES}),
)

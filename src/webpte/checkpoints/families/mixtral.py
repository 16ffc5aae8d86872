"""Mixtral: a Mistral with mixtures of experts in place of its feed-forwards."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import FieldRule, Fields, decoder_config
from ..mixtures import expert_names, read_experts, with_experts
from ..weights import HUGGING_FACE, TensorNames
from . import mistral


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, kv_heads=8)
    return with_experts(model, read_experts(fields, "intermediate_size"))


FAMILY = replace(
    mistral.FAMILY,
    name="Mixtral",
    models="Mixtral 8x7B and 8x22B",
    special="mixtures of experts",
    model_types=("mixtral",),
    classes=("MixtralForCausalLM",),
    config=read_config,
    rules={"sliding_window": FieldRule((), "layers have windows")},
    gguf_types=(),
    gguf=None,
    names=TensorNames(
        {**HUGGING_FACE.parts, **expert_names("model.layers.{}.block_sparse_moe", "gate", ("w1", "w2", "w3"))}
    ),
)

"""Qwen3.5 with mixtures of experts, beside which a feed-forward has a gate for each token."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import Fields
from ..mixtures import expert_names, read_experts, with_experts
from . import qwen3_5

_MLP = "model.layers.{}.mlp"
_NAMES = {
    **expert_names(_MLP, "gate", ("gate_proj", "down_proj", "up_proj")),
    "layers.{}.shared_gate": f"{_MLP}.shared_expert_gate",
    "layers.{}.feed_forward.w1": f"{_MLP}.shared_expert.gate_proj",
    "layers.{}.feed_forward.w2": f"{_MLP}.shared_expert.down_proj",
    "layers.{}.feed_forward.w3": f"{_MLP}.shared_expert.up_proj",
}
_STACKED = {
    "layers.{}.experts.{}.w1.weight": f"{_MLP}.experts.gate_up_proj",
    "layers.{}.experts.{}.w3.weight": f"{_MLP}.experts.gate_up_proj",
    "layers.{}.experts.{}.w2.weight": f"{_MLP}.experts.down_proj",
}


def read_config(fields: Fields) -> Architecture:
    fields.get("intermediate_size")  # of no layer
    model = qwen3_5.read_config(fields, fields.integer("shared_expert_intermediate_size", 512), kv_heads=2)
    return with_experts(model, read_experts(fields, "moe_intermediate_size", shared=True, shared_gate=True))


FAMILY = replace(
    qwen3_5.FAMILY,
    name="Qwen3.5 MoE",
    models="Qwen3.5 35B-A3B and larger, without the image encoder",
    special="as Qwen3.5, with mixtures of experts beside a gated feed-forward",
    model_types=("qwen3_5_moe_text",),
    classes=("Qwen3_5MoeForCausalLM",),
    config=read_config,
    gguf_types=(),
    gguf=None,
    names=replace(qwen3_5.FAMILY.names, parts={**qwen3_5.FAMILY.names.parts, **_NAMES}),
    stacked_names=replace(qwen3_5.FAMILY.names, parts={**qwen3_5.FAMILY.names.parts, **_NAMES, **_STACKED}),
)

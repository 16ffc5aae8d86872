"""Read the fields and the names of tensors that mixtures of experts share."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Any

from .architecture import Architecture, Experts
from .config import Fields

_TRAINING = ("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")


def read_experts(fields: Fields, hidden_dim: str, **properties: Any) -> Experts:
    """Return the experts of a layer; `hidden_dim` is the family's name of the width of an expert."""
    for name in _TRAINING:
        fields.get(name)
    count = "num_local_experts" if fields.get("num_local_experts") is not None else "num_experts"
    fields.require(count, "num_experts_per_tok", hidden_dim)
    return Experts(
        fields.integer(count), fields.integer("num_experts_per_tok"), fields.integer(hidden_dim), **properties
    )


def read_gguf_experts(fields: Fields, hidden_dim: str = "expert_feed_forward_length", **properties: Any) -> Experts:
    """Return the experts of a layer; `hidden_dim` is the key of the width of an expert."""
    names = ("expert_count", "expert_used_count", hidden_dim)
    fields.require(*names)
    count, chosen, width = (fields.integer(name) for name in names)
    return Experts(count, chosen, width, **properties)


def with_experts(model: Architecture, experts: Experts, layers: Container[int] | None = None) -> Architecture:
    """Return the architecture with experts in the layers of these numbers, or in all."""
    mixed = range(model.n_layers) if layers is None else layers
    return replace(
        model,
        layers=tuple(
            replace(layer, experts=experts) if number in mixed else layer for number, layer in enumerate(model.layers)
        ),
    )


def expert_names(block: str, router: str, parts: tuple[str, str, str]) -> dict[str, str]:
    """Return the names of tensors in a block of layer {}: its router, and gate, down and up of expert {}."""
    names = {
        f"layers.{{}}.experts.{{}}.{part}": f"{block}.experts.{{}}.{own}"
        for part, own in zip(("w1", "w2", "w3"), parts, strict=True)
    }
    return {"layers.{}.router": f"{block}.{router}", **names}


GGUF_EXPERT_NAMES = {
    "layers.{}.router": "blk.{}.ffn_gate_inp",
    "layers.{}.router.expert_bias": "blk.{}.exp_probs_b.bias",
    "layers.{}.shared_gate.weight": "blk.{}.ffn_gate_inp_shexp.weight",
    "layers.{}.experts.{}.w1": "blk.{}.ffn_gate_exps",
    "layers.{}.experts.{}.w2": "blk.{}.ffn_down_exps",
    "layers.{}.experts.{}.w3": "blk.{}.ffn_up_exps",
}

"""Granite 4 without Mamba layers: a Granite whose feed-forward has fused linears, with RoPE or without.

It may have experts beside the feed-forward.
"""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture, LayerSpec
from ..config import FieldRule, Fields
from ..family import Family
from ..mixtures import read_experts, with_experts
from ..weights import HUGGING_FACE, TensorNames
from . import granite
from .granite_moe import EXPERT_NAMES

# Fields of layers that the model does not have.
_MAMBA = (
    *("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand"),
    *("mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias", "time_step_limit"),
)
_EXPERTS = ("num_experts_per_tok", "output_router_logits", "router_aux_loss_coef", "intermediate_size")
_FUSED = dict.fromkeys(
    ("layers.{}.feed_forward.w1", "layers.{}.feed_forward.w3"), "model.layers.{}.shared_mlp.input_linear"
)


def read_config(fields: Fields) -> Architecture:
    model = granite.read_config(fields, hidden_dim=fields.integer("shared_intermediate_size", 1024))
    kinds = fields.get("layer_types", fields.get("layers_block_type", ["linear_attention"] * model.n_layers))
    if not isinstance(kinds, list) or any(kind not in ("attention", "full_attention") for kind in kinds):
        fields.refuse("layer_types", "layers of Mamba-2, which are not supported")
    for name in (*_MAMBA, *_EXPERTS):
        fields.get(name)
    rotates = fields.get("position_embedding_type") == "rope"
    model = replace(model, layers=(LayerSpec("rope" if rotates else None),) * model.n_layers)
    if fields.get("num_local_experts", 8) == 0:
        return model
    return with_experts(model, read_experts(fields, "intermediate_size", shared=True))


FAMILY = Family(
    name="Granite 4",
    models="Granite 4.0 350M and 1B; those with Mamba layers are not supported",
    special="the multipliers of Granite, a fused feed-forward, experts beside it; some without RoPE",
    model_types=("granitemoehybrid",),
    classes=("GraniteMoeHybridForCausalLM",),
    config=read_config,
    rules={"position_embedding_type": FieldRule(("rope", "nope"), "other positions than rope")},
    names=TensorNames(
        {
            **HUGGING_FACE.parts,
            **EXPERT_NAMES,
            **_FUSED,
            "layers.{}.feed_forward.w2": "model.layers.{}.shared_mlp.output_linear",
        }
    ),
    end_tokens=granite.FAMILY.end_tokens,
    tool_formats=granite.FAMILY.tool_formats,
)

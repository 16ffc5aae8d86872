"""LFM2 with mixtures of experts in all layers but the first ones."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import FieldRule, Fields, decoder_config
from ..mixtures import GGUF_EXPERT_NAMES, expert_names, read_experts, read_gguf_experts, with_experts
from . import lfm2

_EPS = 1e-6  # of the sum of scores
_SIGMOID = 2  # the number of the scoring in GGUF
_NAMES = {
    **expert_names("model.layers.{}.feed_forward", "gate", ("w1", "w2", "w3")),
    "layers.{}.router.expert_bias": "model.layers.{}.feed_forward.expert_bias",
}


def read_config(fields: Fields) -> Architecture:
    tied = fields.boolean("tie_embedding", True)
    model = decoder_config(fields, tied=tied, kv_heads=8, theta=1000000.0, norm_eps="norm_eps")
    kinds = lfm2.layer_types(fields, model.n_layers)
    model = lfm2.as_lfm(model, [kind == "full_attention" for kind in kinds], lfm2.read_taps(fields, "conv_L_cache"))
    experts = read_experts(
        fields,
        "moe_intermediate_size",
        scoring="sigmoid",
        normalized=fields.boolean("norm_topk_prob", True),
        eps=_EPS,
        factor=fields.number("routed_scaling_factor", 1.0),
        biased=fields.boolean("use_expert_bias", True),
    )
    return with_experts(model, experts, range(_dense(fields, "num_dense_layers", model), model.n_layers))


def read_gguf(fields: Fields) -> Architecture:
    model = lfm2.read_gguf(fields)
    if fields.get("expert_gating_func", _SIGMOID) != _SIGMOID:
        fields.refuse("expert_gating_func", "scores other than the sigmoid")
    experts = read_gguf_experts(fields, scoring="sigmoid", eps=_EPS, biased=True)
    return with_experts(model, experts, range(_dense(fields, "leading_dense_block_count", model), model.n_layers))


def _dense(fields: Fields, name: str, model: Architecture) -> int:
    """Return the number of layers before those with experts."""
    count = fields.get(name, 2)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= model.n_layers:
        raise fields.invalid(name, count, f"an integer from 0 to {model.n_layers}")
    return count


FAMILY = replace(
    lfm2.FAMILY,
    name="LFM2 MoE",
    models="LFM2 8B-A1B",
    special="as LFM2, with mixtures of experts",
    model_types=("lfm2_moe",),
    classes=("Lfm2MoeForCausalLM",),
    config=read_config,
    gguf_types=("lfm2moe",),
    gguf=read_gguf,
    rules={"conv_bias": FieldRule((False,), "biases, which are not supported")},
    names=replace(lfm2.FAMILY.names, parts={**lfm2.FAMILY.names.parts, **_NAMES}),
    gguf_names=replace(lfm2.FAMILY.gguf_names, parts={**lfm2.FAMILY.gguf_names.parts, **GGUF_EXPERT_NAMES}),
)

"""OLMoE: mixtures of experts, and norms of all queries and all keys."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import Fields, decoder_config, decoder_gguf
from ..family import Family
from ..mixtures import GGUF_EXPERT_NAMES, expert_names, read_experts, read_gguf_experts, with_experts
from ..weights import GGUF, HUGGING_FACE, TensorNames


def read_config(fields: Fields) -> Architecture:
    biases = fields.boolean("attention_bias")
    model = replace(_as_olmoe(decoder_config(fields)), qkv_bias=biases, out_bias=biases)
    experts = read_experts(fields, "intermediate_size", normalized=fields.boolean("norm_topk_prob"))
    return with_experts(model, experts)


def read_gguf(fields: Fields) -> Architecture:
    experts = read_gguf_experts(fields, "feed_forward_length", normalized=False)
    return with_experts(_as_olmoe(decoder_gguf(fields)), experts)


def _as_olmoe(model: Architecture) -> Architecture:
    return replace(model, qk_norm=True, qk_norm_by_head=False)


FAMILY = Family(
    name="OLMoE",
    models="OLMoE 1B-7B",
    special="mixtures of experts, norms of all queries and all keys",
    model_types=("olmoe",),
    classes=("OlmoeForCausalLM",),
    config=read_config,
    gguf_types=("olmoe",),
    gguf=read_gguf,
    names=TensorNames(
        {**HUGGING_FACE.parts, **expert_names("model.layers.{}.mlp", "gate", ("gate_proj", "down_proj", "up_proj"))}
    ),
    gguf_names=TensorNames({**GGUF.parts, **GGUF_EXPERT_NAMES}),
    end_tokens=("<|endoftext|>",),
)

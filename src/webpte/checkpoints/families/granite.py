"""Granite: a Llama with four multipliers, which are multiplied into its weights."""

from __future__ import annotations

from dataclasses import replace

from ...llm.tool_shapes import ToolFormat
from ..architecture import Architecture, LayerSpec
from ..config import Fields, decoder_config, decoder_gguf
from ..family import IN_TAGS, Family
from ..weights import GGUF_IN_PAIRS


def read_config(fields: Fields, hidden_dim: int | None = None) -> Architecture:
    """Return the architecture; `hidden_dim` replaces intermediate_size."""
    biases = fields.boolean("attention_bias")
    return replace(
        decoder_config(fields, hidden_dim=hidden_dim),
        qkv_bias=biases,
        out_bias=biases,
        mlp_bias=fields.boolean("mlp_bias"),
        attention_scale=fields.number("attention_multiplier", 1.0),
        embedding_factor=fields.number("embedding_multiplier", 1.0),
        residual_factor=fields.number("residual_multiplier", 1.0),
        logits_factor=1 / fields.number("logits_scaling", 1.0),
    )


# Keys of layers that the dense models of Granite 4 do not have. Converters write them.
_OTHER_LAYERS = (
    *("expert_shared_feed_forward_length", "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.inner_size"),
    "ssm.time_step_rank",
)


def read_gguf(fields: Fields) -> Architecture:
    """Return the architecture of a Granite, or of a Granite 4 without experts and Mamba layers."""

    def factor(name: str) -> float | None:  # 0 means that the key is unset
        return fields.number(name) if fields.get(name) else None

    heads = fields.get("attention.head_count_kv")
    if isinstance(heads, list):  # of each layer
        kinds = {*fields.list_of("attention.head_count_kv", int)}
        if len(kinds) != 1 or min(kinds) < 1:
            raise fields.invalid("attention.head_count_kv", heads, "the same number of heads for each layer")
    for name in _OTHER_LAYERS:
        fields.get(name)
    model = decoder_gguf(fields, kv_heads=heads[0] if isinstance(heads, list) else None)
    rotates = fields.get("rope.scaling.finetuned", True) is True  # Granite's key for it
    return replace(
        model,
        layers=(LayerSpec("rope" if rotates else None),) * model.n_layers,
        attention_scale=factor("attention.scale"),
        embedding_factor=factor("embedding_scale") or 1.0,
        residual_factor=factor("residual_scale") or 1.0,
        logits_factor=1 / (factor("logit_scale") or 1.0),
    )


FAMILY = Family(
    name="Granite",
    models="Granite 3.0 to 3.3",
    special="multipliers of embeddings, attention, residuals and logits",
    model_types=("granite",),
    classes=("GraniteForCausalLM",),
    config=read_config,
    gguf_types=("granite",),
    gguf=read_gguf,
    gguf_names=GGUF_IN_PAIRS,
    end_tokens=("<|end_of_text|>",),
    tool_formats={"<|tool_call|>": ToolFormat("list", "<|tool_call|>"), "<tool_call>": IN_TAGS},
)

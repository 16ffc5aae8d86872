"""Qwen3.5: three of four layers have linear attention, by the gated delta rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...errors import FormatError
from ..architecture import Architecture, Delta, LayerSpec
from ..config import FieldRule, Fields, decoder_config, decoder_gguf
from ..family import IN_TAGS, PARAMETERS_IN_TAGS, Family
from ..weights import GGUF, HUGGING_FACE, TensorNames

_NAMES = {
    "layers.{}.attention": "model.layers.{}.linear_attn",
    "layers.{}.attention.qkv": "model.layers.{}.linear_attn.in_proj_qkv",
    "layers.{}.attention.gate": "model.layers.{}.linear_attn.in_proj_z",
    "layers.{}.attention.strength": "model.layers.{}.linear_attn.in_proj_b",
    "layers.{}.attention.decay": "model.layers.{}.linear_attn.in_proj_a",
    "layers.{}.attention.conv": "model.layers.{}.linear_attn.conv1d",
    "layers.{}.attention.head_norm": "model.layers.{}.linear_attn.norm",
    "layers.{}.attention.out": "model.layers.{}.linear_attn.out_proj",
}
_GGUF_NAMES = {
    "layers.{}.ffn_norm": "blk.{}.post_attention_norm",
    "layers.{}.attention.A_log": "blk.{}.ssm_a",
    "layers.{}.attention.dt_bias": "blk.{}.ssm_dt.bias",
    "layers.{}.attention.qkv": "blk.{}.attn_qkv",
    "layers.{}.attention.gate": "blk.{}.attn_gate",
    "layers.{}.attention.strength": "blk.{}.ssm_beta",
    "layers.{}.attention.decay": "blk.{}.ssm_alpha",
    "layers.{}.attention.conv": "blk.{}.ssm_conv1d",
    "layers.{}.attention.head_norm": "blk.{}.ssm_norm",
    "layers.{}.attention.out": "blk.{}.ssm_out",
}
# Images have positions of three interleaved axes. Positions of text are equal along all axes.
_AXES = ("mrope_section", "mrope_interleaved")


def read_config(fields: Fields, hidden_dim: int | None = None, kv_heads: int = 4) -> Architecture:
    """Return the architecture; `hidden_dim` replaces intermediate_size."""
    model = decoder_config(
        fields,
        head_dim=256,
        kv_heads=kv_heads,
        partial=True,
        share=0.25,
        rope_ignored=_AXES,
        hidden_dim=hidden_dim,
    )
    biases = fields.boolean("attention_bias")
    delta = Delta(
        key_heads=fields.integer("linear_num_key_heads", 16),
        value_heads=fields.integer("linear_num_value_heads", 32),
        key_dim=fields.integer("linear_key_head_dim", 128),
        value_dim=fields.integer("linear_value_head_dim", 128),
        taps=fields.integer("linear_conv_kernel_dim", 4),
    )
    _check(fields, delta, "linear_num_value_heads", "linear_num_key_heads", "linear_conv_kernel_dim")
    attends = [kind == "full_attention" for kind in _layer_types(fields, model.n_layers)]
    return replace(_as_qwen(model, attends, delta), norm_offset=1.0, qkv_bias=biases, out_bias=biases)


def read_gguf(fields: Fields) -> Architecture:
    """Return the architecture. The layers that draft further tokens are not read."""
    model = decoder_gguf(fields)
    drafts = fields.get("nextn_predict_layers", 0)
    if not isinstance(drafts, int) or not 0 <= drafts < model.n_layers:
        raise fields.invalid("nextn_predict_layers", drafts, f"an integer from 0 to {model.n_layers - 1}")
    fields.list_of("rope.dimension_sections", int)  # of the axes of positions
    fields.require("ssm.group_count", "ssm.time_step_rank", "ssm.state_size", "ssm.inner_size", "ssm.conv_kernel")
    heads = fields.integer("ssm.time_step_rank")
    delta = Delta(
        key_heads=fields.integer("ssm.group_count"),
        value_heads=heads,
        key_dim=fields.integer("ssm.state_size"),
        value_dim=fields.integer("ssm.inner_size") // heads,
        taps=fields.integer("ssm.conv_kernel"),
    )
    _check(fields, delta, "ssm.time_step_rank", "ssm.group_count", "ssm.conv_kernel")
    every = fields.integer("full_attention_interval", 4)
    return _as_qwen(model, [not (number + 1) % every for number in range(model.n_layers - drafts)], delta)


def _check(fields: Fields, delta: Delta, values: str, keys: str, taps: str) -> None:
    if delta.value_heads % delta.key_heads:
        raise FormatError(
            argument=f"{fields.where}: {fields.prefix}{values}",
            expected=f"a multiple of {fields.prefix}{keys}, {delta.key_heads}",
            got=delta.value_heads,
            code="head_count",
        )
    if delta.taps < 2:
        raise fields.invalid(taps, delta.taps, "an integer above 1")


def _as_qwen(model: Architecture, attends: Sequence[bool], delta: Delta) -> Architecture:
    layers = tuple(LayerSpec() if attending else LayerSpec(rope=None, delta=delta) for attending in attends)
    return replace(model, layers=layers, qk_norm=True, query_gate=True)


def _layer_types(fields: Fields, count: int) -> list[str]:
    every = fields.integer("full_attention_interval", 4)
    usual = ["linear_attention" if (number + 1) % every else "full_attention" for number in range(count)]
    kinds = fields.get("layer_types", usual)
    if not isinstance(kinds, list) or len(kinds) != count:
        raise fields.invalid("layer_types", kinds, f"a list of {count} names")
    if any(kind not in ("full_attention", "linear_attention") for kind in kinds):
        fields.refuse("layer_types", "layers other than full_attention and linear_attention")
    return kinds


FAMILY = Family(
    name="Qwen3.5",
    models="Qwen3.5",
    special="linear attention in three of four layers, gated attention in the others",
    model_types=("qwen3_5_text",),
    classes=("Qwen3_5ForCausalLM",),
    config=read_config,
    gguf_types=("qwen35",),
    gguf=read_gguf,
    rules={"mamba_ssm_dtype": FieldRule(("float32",), "the state is rounded")},
    names=TensorNames({**HUGGING_FACE.parts, **_NAMES}),
    gguf_names=TensorNames({**GGUF.parts, **_GGUF_NAMES}, conv_dims=2, tiled=True),
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    tool_formats={"<function=": PARAMETERS_IN_TAGS, "<tool_call>": IN_TAGS},
)

"""Qwen3.5: three of four layers have linear attention, by the gated delta rule."""

from __future__ import annotations

from dataclasses import replace

from ...errors import FormatError
from ..architecture import Architecture, Delta, LayerSpec
from ..config import FieldRule, Fields, decoder_config
from ..family import IN_TAGS, PARAMETERS_IN_TAGS, Family
from ..weights import HUGGING_FACE, TensorNames

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
# Images have positions of three interleaved axes. Positions of text are equal along all axes.
_AXES = ("mrope_section", "mrope_interleaved")


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, head_dim=256, kv_heads=4, partial=True, share=0.25, rope_ignored=_AXES)
    biases = fields.boolean("attention_bias")
    delta = Delta(
        key_heads=fields.integer("linear_num_key_heads", 16),
        value_heads=fields.integer("linear_num_value_heads", 32),
        key_dim=fields.integer("linear_key_head_dim", 128),
        value_dim=fields.integer("linear_value_head_dim", 128),
        taps=fields.integer("linear_conv_kernel_dim", 4),
    )
    if delta.value_heads % delta.key_heads:
        raise FormatError(
            argument=f"{fields.where}: linear_num_value_heads",
            expected=f"a multiple of linear_num_key_heads, {delta.key_heads}",
            got=delta.value_heads,
            code="head_count",
        )
    if delta.taps < 2:
        raise fields.invalid("linear_conv_kernel_dim", delta.taps, "an integer above 1")
    layers = tuple(
        LayerSpec() if kind == "full_attention" else LayerSpec(rope=None, delta=delta)
        for kind in _layer_types(fields, model.n_layers)
    )
    return replace(model, layers=layers, qk_norm=True, norm_offset=1.0, qkv_bias=biases, out_bias=biases)


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
    models="Qwen3.5, without its image encoder",
    special="linear attention in three of four layers, gated attention in the others",
    model_types=("qwen3_5_text",),
    classes=("Qwen3_5ForCausalLM",),
    config=read_config,
    rules={"mamba_ssm_dtype": FieldRule(("float32",), "the state is rounded")},
    names=TensorNames({**HUGGING_FACE.parts, **_NAMES}),
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    tool_formats={"<function=": PARAMETERS_IN_TAGS, "<tool_call>": IN_TAGS},
)

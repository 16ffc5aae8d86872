"""LFM2: most layers are convolutions over the latest tokens instead of attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...llm.tool_shapes import ToolFormat
from ..architecture import Architecture, LayerSpec
from ..config import Fields, decoder_config, decoder_gguf
from ..family import Family
from ..weights import GGUF, HUGGING_FACE, TensorNames

_PYTHON = ToolFormat("python", "<|tool_call_start|>", "<|tool_call_end|>")
_NAMES = {
    "norm": "model.embedding_norm",
    "layers.{}.attention.wo": "model.layers.{}.self_attn.out_proj",
    "layers.{}.attention.q_norm": "model.layers.{}.self_attn.q_layernorm",
    "layers.{}.attention.k_norm": "model.layers.{}.self_attn.k_layernorm",
    "layers.{}.conv.gate_in": "model.layers.{}.conv.in_proj",
    "layers.{}.conv.gate_out": "model.layers.{}.conv.in_proj",
    "layers.{}.conv.value": "model.layers.{}.conv.in_proj",
    "layers.{}.conv.conv": "model.layers.{}.conv.conv",
    "layers.{}.conv.out": "model.layers.{}.conv.out_proj",
    "layers.{}.feed_forward.w1": "model.layers.{}.feed_forward.w1",
    "layers.{}.feed_forward.w2": "model.layers.{}.feed_forward.w2",
    "layers.{}.feed_forward.w3": "model.layers.{}.feed_forward.w3",
    "layers.{}.attention_norm": "model.layers.{}.operator_norm",
    "layers.{}.ffn_norm": "model.layers.{}.ffn_norm",
}


_GGUF_NAMES = {
    "norm": "token_embd_norm",
    "layers.{}.conv.gate_in": "blk.{}.shortconv.in_proj",
    "layers.{}.conv.gate_out": "blk.{}.shortconv.in_proj",
    "layers.{}.conv.value": "blk.{}.shortconv.in_proj",
    "layers.{}.conv.conv": "blk.{}.shortconv.conv",
    "layers.{}.conv.out": "blk.{}.shortconv.out_proj",
}


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(
        fields,
        tied=fields.boolean("tie_embedding", True),
        kv_heads=8,
        theta=1000000.0,
        norm_eps="norm_eps",
        hidden_dim=_hidden_dim(fields),
    )
    if fields.boolean("conv_bias"):
        fields.refuse("conv_bias", "biases, which are not supported")
    kinds = layer_types(fields, model.n_layers)
    return as_lfm(model, [kind == "full_attention" for kind in kinds], read_taps(fields, "conv_L_cache"))


def read_gguf(fields: Fields) -> Architecture:
    """Return the architecture. Layers without key and value heads are convolutions."""
    heads = fields.list_of("attention.head_count_kv", int)
    kinds = sorted({count for count in heads if count})
    if len(kinds) != 1 or len(heads) != fields.integer("block_count") or kinds[0] < 0:
        raise fields.invalid("attention.head_count_kv", heads, "a number of heads, or 0, for each layer")
    model = decoder_gguf(fields, theta=1000000.0, kv_heads=kinds[0])
    return as_lfm(model, [count > 0 for count in heads], read_taps(fields, "shortconv.l_cache"))


def as_lfm(model: Architecture, attends: Sequence[bool], taps: int) -> Architecture:
    layers = tuple(LayerSpec() if attending else LayerSpec(rope=None, taps=taps) for attending in attends)
    return replace(model, layers=layers, qk_norm=True)


def read_taps(fields: Fields, name: str) -> int:
    taps = fields.integer(name, 3)
    if taps < 2:
        raise fields.invalid(name, taps, "an integer above 1")
    return taps


def layer_types(fields: Fields, count: int) -> list[str]:
    attending = fields.get("full_attn_idxs", list(range(count)))
    if not isinstance(attending, list):
        raise fields.invalid("full_attn_idxs", attending, "a list of layers")
    kinds = fields.get("layer_types", ["full_attention" if number in attending else "conv" for number in range(count)])
    if not isinstance(kinds, list) or len(kinds) != count:
        raise fields.invalid("layer_types", kinds, f"a list of {count} names")
    if any(kind not in ("full_attention", "conv") for kind in kinds):
        fields.refuse("layer_types", "layers other than full_attention and conv")
    return kinds


def _hidden_dim(fields: Fields) -> int:
    """Return block_ff_dim, or by default two thirds of it rounded up to block_multiple_of."""
    size_field = fields.integer("block_ff_dim", fields.integer("intermediate_size", 12288))
    multiple, factor = fields.integer("block_multiple_of", 256), fields.get("block_ffn_dim_multiplier")
    if not fields.boolean("block_auto_adjust_ff_dim", True):
        return size_field
    size = int(2 * size_field / 3)
    if "block_ffn_dim_multiplier" in fields.values and factor is None:
        return size
    size = int(fields.number("block_ffn_dim_multiplier", 1.0) * size)
    return max(1, -(-size // multiple)) * multiple


FAMILY = Family(
    name="LFM2",
    models="LFM2 350M to 2.6B, LFM2.5",
    special="short convolutions in most layers, QK norm",
    model_types=("lfm2",),
    classes=("Lfm2ForCausalLM",),
    config=read_config,
    gguf_types=("lfm2",),
    gguf=read_gguf,
    names=TensorNames({**HUGGING_FACE.parts, **_NAMES}),
    gguf_names=TensorNames({**GGUF.parts, **_GGUF_NAMES}, conv_dims=2),
    end_tokens=("<|im_end|>",),
    tool_formats={"<|tool_list_start|>": _PYTHON, "<|tool_call_start|>": _PYTHON},
)

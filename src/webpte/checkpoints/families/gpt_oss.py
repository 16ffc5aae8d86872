"""gpt-oss: mixtures of experts with biases, attention with sinks, a window in every other layer, harmony's channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..architecture import Architecture, Experts, LayerSpec
from ..config import FieldRule, Fields, decoder_config, decoder_gguf
from ..family import Family
from ..mixtures import GGUF_EXPERT_NAMES, read_experts, read_gguf_experts, with_experts
from ..weights import GGUF, HUGGING_FACE, TensorNames
from .gemma2 import windows_of

_BASE, _WINDOW = 150000.0, 128  # what transformers takes where config.json leaves them out
_MLP = "model.layers.{}.mlp"
_NAMES = {
    **HUGGING_FACE.parts,
    "layers.{}.attention.sinks": "model.layers.{}.self_attn.sinks",
    "layers.{}.router": f"{_MLP}.router",
    "layers.{}.experts.{}.w1.bias": f"{_MLP}.experts.gate_up_proj_bias",
    "layers.{}.experts.{}.w3.bias": f"{_MLP}.experts.gate_up_proj_bias",
    "layers.{}.experts.{}.w2.bias": f"{_MLP}.experts.down_proj_bias",
}


def _matrices(end: str) -> dict[str, str]:
    stored = {"w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"}
    return {f"layers.{{}}.experts.{{}}.{part}.weight": f"{_MLP}.experts.{name}{end}" for part, name in stored.items()}


def _is_mxfp4(config: Any) -> bool:
    return isinstance(config, dict) and config.get("quant_method") == "mxfp4"


def read_config(fields: Fields) -> Architecture:
    if fields.get("rope_parameters") is None:
        fields.require("rope_scaling")
    fields.get("initial_context_length")  # that of the rotary settings, and
    fields.get("experts_per_token")  # num_experts_per_tok, to the code that the model was published with
    model = decoder_config(fields, kv_heads=8, head_dim=64, theta=_BASE)
    windows = windows_of(fields, [number % 2 == 0 for number in range(model.n_layers)], _WINDOW)
    biases = fields.boolean("attention_bias", True)
    model = replace(model, qkv_bias=biases, out_bias=biases)
    return _completed(model, windows, read_experts(fields, "intermediate_size", linear_bias=True))


def read_gguf(fields: Fields) -> Architecture:
    model = decoder_gguf(fields, theta=_BASE, truncate=False)
    window = fields.integer("attention.sliding_window", _WINDOW)
    windows = [None if number % 2 else window for number in range(model.n_layers)]
    model = replace(model, qkv_bias=True, out_bias=True)
    return _completed(model, windows, read_gguf_experts(fields, linear_bias=True))


def _completed(model: Architecture, windows: Sequence[int | None], experts: Experts) -> Architecture:
    layers = tuple(LayerSpec(window=window) for window in windows)
    return with_experts(replace(model, layers=layers, sinks=True, activation="clamped_silu"), experts)


FAMILY = Family(
    name="gpt-oss",
    models="gpt-oss 20B and 120B",
    special="mixtures of experts with biases, in MXFP4; sinks of attention, sliding windows, YaRN",
    model_types=("gpt_oss",),
    classes=("GptOssForCausalLM",),
    config=read_config,
    rules={
        "quantization_config": FieldRule(_is_mxfp4, "weights in another format than floats and MXFP4"),
        "swiglu_alpha": FieldRule((1.702,), "gates have another slope"),
        "swiglu_limit": FieldRule((7,), "gates have another limit"),
    },
    gguf_types=("gpt-oss",),
    gguf=read_gguf,
    names=TensorNames({**_NAMES, **_matrices("_blocks")}, interleaved=True),
    stacked_names=TensorNames({**_NAMES, **_matrices("")}, interleaved=True, transposed=True),
    gguf_names=TensorNames(
        {
            **GGUF.parts,
            **GGUF_EXPERT_NAMES,
            "layers.{}.attention.sinks": "blk.{}.attn_sinks.weight",
            "layers.{}.ffn_norm": "blk.{}.post_attention_norm",
        }
    ),
    end_tokens=("<|return|>", "<|call|>"),
)

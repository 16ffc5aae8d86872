"""Hunyuan: queries and keys are normalized after they have rotated, by a base that was enlarged once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..architecture import Architecture, Rope
from ..config import FieldRule, Fields, decoder_config, decoder_gguf, read_rope
from ..family import Family
from ..weights import HUGGING_FACE, TensorNames

_NAMES = TensorNames(
    {
        **HUGGING_FACE.parts,
        "layers.{}.attention.q_norm": "model.layers.{}.self_attn.query_layernorm",
        "layers.{}.attention.k_norm": "model.layers.{}.self_attn.key_layernorm",
    }
)


def read_config(fields: Fields) -> Architecture:
    fields.get("eod_token_id")  # of training
    biases = fields.boolean("attention_bias")
    model = decoder_config(fields, ropes=_ropes)
    return replace(_as_hunyuan(model), qkv_bias=biases, out_bias=biases)


def read_gguf(fields: Fields) -> Architecture:
    return _as_hunyuan(decoder_gguf(fields))


def _as_hunyuan(model: Architecture) -> Architecture:
    return replace(model, qk_norm=True, qk_norm_rotated=True)


def _ropes(fields: Fields, size: int) -> Mapping[str, Rope]:
    """Return the RoPE settings. Its type "dynamic" has a fixed factor of the base, alpha, and none of the context."""
    name = next((name for name in ("rope_parameters", "rope_scaling") if fields.get(name)), None)
    settings = fields.get(name) if name is not None else None
    if not isinstance(settings, dict) or not settings.get("alpha"):
        return {"rope": read_rope(fields, size)}
    inner = Fields(f"{fields.where}: {name}", settings)
    if settings.get("rope_type", settings.get("type")) != "dynamic":
        fields.refuse(str(name), "a factor of the base without the type dynamic")
    theta = inner.number("rope_theta", fields.number("rope_theta", 10000.0))
    return {"rope": Rope(theta * inner.number("alpha") ** (size / (size - 2)), size)}


FAMILY = Family(
    name="Hunyuan",
    models="Hunyuan 0.5B to 7B Instruct",
    special="norms of queries and keys after rotation",
    model_types=("hunyuan_v1_dense",),
    classes=("HunYuanDenseV1ForCausalLM",),
    config=read_config,
    rules=dict.fromkeys(("use_qk_norm", "qk_norm"), FieldRule((True,), "queries and keys are normalized here")),
    gguf_types=("hunyuan-dense",),
    gguf=read_gguf,
    names=_NAMES,
    end_tokens=("<|eos|>", "<｜hy_place▁holder▁no▁2｜>", "<｜hy_end▁of▁sentence｜>"),
)

"""Gemma 2: every second layer has a sliding window, scores and logits are capped, and each part has two norms."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace

from ..architecture import Architecture, LayerSpec
from ..config import Fields, decoder_config, decoder_gguf
from ..family import Family
from ..weights import GGUF, HUGGING_FACE, TensorNames

_WINDOW = 4096  # these are the defaults of transformers
_SCALAR = 256.0
_ATTENTION_CAP, _LOGITS_CAP = 50.0, 30.0
_LAYERS_OF_27B = 46

NAMES = TensorNames(
    {
        **HUGGING_FACE.parts,
        "layers.{}.post_attention_norm": "model.layers.{}.post_attention_layernorm",
        "layers.{}.ffn_norm": "model.layers.{}.pre_feedforward_layernorm",
        "layers.{}.post_ffn_norm": "model.layers.{}.post_feedforward_layernorm",
    }
)
GGUF_NAMES = TensorNames(
    {
        **GGUF.parts,
        "layers.{}.post_attention_norm": "blk.{}.post_attention_norm",
        "layers.{}.post_ffn_norm": "blk.{}.post_ffw_norm",
    }
)


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, tied=True, head_dim=256, kv_heads=4, activation="gelu_tanh")
    sliding = [number % 2 == 0 for number in range(model.n_layers)]
    return replace(
        as_gemma(fields, model),
        layers=tuple(LayerSpec(window=window) for window in windows_of(fields, sliding)),
        attention_cap=cap(fields, "attn_logit_softcapping", _ATTENTION_CAP),
        logits_cap=cap(fields, "final_logit_softcapping", _LOGITS_CAP),
    )


def read_gguf(fields: Fields) -> Architecture:
    model = decoder_gguf(fields)
    window = fields.integer("attention.sliding_window", _WINDOW)
    return replace(
        gguf_as_gemma(model, _LAYERS_OF_27B),
        layers=tuple(LayerSpec(window=window if number % 2 == 0 else None) for number in range(model.n_layers)),
        attention_cap=cap(fields, "attn_logit_softcapping", _ATTENTION_CAP),
        logits_cap=cap(fields, "final_logit_softcapping", _LOGITS_CAP),
    )


def gguf_as_gemma(model: Architecture, layers_of_27b: int) -> Architecture:
    """Set what GGUF has no keys for. Converters add 1 to norms. The 27B models have their own attention scale."""
    width = model.dim / model.n_heads if model.n_layers == layers_of_27b else model.head_dim
    model = replace(model, post_norms=True, attention_scale=width**-0.5)
    return replace(model, activation="gelu_tanh", embedding_factor=gguf_embedding_scale(model))


def gguf_embedding_scale(model: Architecture) -> float:
    """Return the factor of embeddings, rounded to f32."""
    (factor,) = struct.unpack("<f", struct.pack("<f", math.sqrt(model.dim)))
    return float(factor)


def as_gemma(fields: Fields, model: Architecture) -> Architecture:
    """Set what all Gemma models share."""
    biases = fields.boolean("attention_bias")
    return replace(
        model,
        qkv_bias=biases,
        out_bias=biases,
        post_norms=True,
        norm_offset=1.0,
        attention_scale=fields.number("query_pre_attn_scalar", _SCALAR) ** -0.5,
        embedding_factor=embedding_scale(fields, model),
    )


def windows_of(fields: Fields, sliding: list[bool], default: int = _WINDOW) -> list[int | None]:
    """Return the window of each layer; `sliding` is the default of `layer_types`, `default` of the window."""
    names = {True: "sliding_attention", False: "full_attention"}
    kinds = fields.get("layer_types", [names[slides] for slides in sliding])
    if not isinstance(kinds, list) or len(kinds) != len(sliding):
        raise fields.invalid("layer_types", kinds, f"a list of {len(sliding)} names")
    if any(kind not in names.values() for kind in kinds):
        fields.refuse("layer_types", "layers other than full_attention and sliding_attention")
    window = fields.integer("sliding_window", default)
    return [window if kind == names[True] else None for kind in kinds]


def windows_of_gguf(fields: Fields, window: int | None, sliding: Sequence[bool]) -> list[int | None]:
    """Return the window of each layer; `sliding` is the default of attention.sliding_window_pattern."""
    listed = fields.get("attention.sliding_window_pattern")
    sliding = listed if isinstance(listed, list) and len(listed) == len(sliding) else sliding
    return [window if slides else None for slides in sliding]


def cap(fields: Fields, name: str, default: float | None) -> float | None:
    """Return a cap: None if the field is null, the default if it is absent."""
    if name in fields.values and fields.get(name) is None:
        return None
    return fields.number(name, default) if fields.get(name, default) is not None else None


def embedding_scale(fields: Fields, model: Architecture) -> float:
    """Return the factor of embeddings, rounded to the dtype of the model as in transformers."""
    factor = math.sqrt(model.dim)
    kinds = [fields.get(name) for name in ("dtype", "torch_dtype") if fields.get(name) is not None]
    kind = str(kinds[0]).removeprefix("torch.") if kinds else "float32"
    (bits,) = struct.unpack("<I", struct.pack("<f", factor))
    if kind == "bfloat16":  # the upper half of a float32, rounded to nearest even
        bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    elif kind == "float16":
        return float(struct.unpack("<e", struct.pack("<e", factor))[0])
    elif kind not in ("float32", "float64"):
        fields.refuse("dtype" if fields.get("dtype") else "torch_dtype", "embeddings are scaled by a rounded number")
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


FAMILY = Family(
    name="Gemma 2",
    models="Gemma 2 2B, 9B, 27B",
    special="sliding windows, capped scores and logits, norms after each part",
    model_types=("gemma2",),
    classes=("Gemma2ForCausalLM",),
    config=read_config,
    gguf_types=("gemma2",),
    gguf=read_gguf,
    names=NAMES,
    gguf_names=GGUF_NAMES,
    end_tokens=("<end_of_turn>",),
)

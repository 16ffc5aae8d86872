"""Phi-3 and Phi-4-mini: fused linears, a part of each head that turns, and LongRoPE."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...llm.tool_shapes import ToolFormat
from ..architecture import Architecture, LayerSpec
from ..config import FieldRule, Fields, decoder_config, decoder_gguf
from ..family import Family
from ..weights import GGUF, HUGGING_FACE, TensorNames

# Older files call LongRoPE by the names of what it grew out of.
_ALIASES = {"su": "longrope", "yarn": "longrope"}


def _its_own_code(classes: Any) -> bool:
    """Return whether `auto_map` names the code of Phi-3, which transformers includes."""
    return isinstance(classes, dict) and classes.get("AutoModelForCausalLM") in (None, "modeling_phi3.Phi3ForCausalLM")


_RULES = {
    "auto_map": FieldRule(_its_own_code, "the model is code of its own, which is not run"),
    "full_attn_mod": FieldRule((1,), "some layers do not attend to all tokens"),
    "interpolate_factor": FieldRule((1,), "positions are scaled"),
}


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, partial=True, rope_aliases=_ALIASES)
    fields.get("original_max_position_embeddings")  # LongRoPE reads it, and to other ropes it is nothing
    window = fields.integer("sliding_window") if fields.get("sliding_window") is not None else None
    return replace(model, layers=(LayerSpec(window=window),) * model.n_layers)


def read_gguf(fields: Fields) -> Architecture:
    """Return the architecture; LongRoPE is present if the file has its two tensors and a factor."""
    model = decoder_gguf(fields)
    rope, tensors = model.ropes["rope"], fields.with_prefix("")
    amplitude = fields.number("rope.scaling.attn_factor", 1.0)
    original = fields.get("rope.scaling.original_context_length")
    short, long = tensors.get("rope_factors_short.weight"), tensors.get("rope_factors_long.weight")
    if short is not None or long is not None:
        rope = replace(
            rope,
            divisors=None if short is None else tensors.numbers("rope_factors_short.weight"),
            long_divisors=(1.0,) * (rope.width // 2) if long is None else tensors.numbers("rope_factors_long.weight"),
            original=fields.integer("rope.scaling.original_context_length", original),
        )
    return replace(model, ropes={"rope": replace(rope, amplitude=amplitude)})


def _fused(names: TensorNames, attention: str, gates: str) -> TensorNames:
    parts = dict(names.parts)
    parts |= {f"layers.{{}}.attention.{part}": attention for part in ("wq", "wk", "wv")}
    parts |= {f"layers.{{}}.feed_forward.{part}": gates for part in ("w1", "w3")}
    return TensorNames(parts)


FAMILY = Family(
    name="Phi-3",
    models="Phi-3-mini, Phi-3.5-mini, Phi-4-mini",
    special="partial RoPE, LongRoPE",
    model_types=("phi3",),
    classes=("Phi3ForCausalLM",),
    config=read_config,
    rules=_RULES,
    gguf_types=("phi3",),
    gguf=read_gguf,
    names=_fused(HUGGING_FACE, "model.layers.{}.self_attn.qkv_proj", "model.layers.{}.mlp.gate_up_proj"),
    gguf_names=_fused(GGUF, "blk.{}.attn_qkv", "blk.{}.ffn_up"),
    end_tokens=("<|end|>", "<|endoftext|>"),
    tool_formats={"<|tool|>": ToolFormat("list", "<|tool_call|>", "<|/tool_call|>")},
)

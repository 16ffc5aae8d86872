"""Gemma 3: five layers with a window to one without, which turns by another base; queries and keys have norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..architecture import Architecture, LayerSpec, Rope
from ..config import Fields, decoder_config, decoder_gguf, read_rope
from ..family import Family
from .gemma2 import GGUF_NAMES, NAMES, as_gemma, cap, gguf_as_gemma, windows_of

_PATTERN = 6  # default: every sixth layer has full attention
_GLOBAL, _LOCAL = 1000000.0, 10000.0  # bases of turning
_LAYERS_OF_27B = 62


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, tied=True, head_dim=256, kv_heads=4, activation="gelu_tanh", ropes=_ropes)
    pattern = fields.get("_sliding_window_pattern", _PATTERN)  # the name in newer versions of transformers
    every = fields.integer("sliding_window_pattern", pattern)
    windows = windows_of(fields, [(number + 1) % every != 0 for number in range(model.n_layers)])
    return replace(
        as_gemma(fields, model),
        layers=layers_of_kinds(windows),
        qk_norm=True,
        logits_cap=cap(fields, "final_logit_softcapping", None),
    )


def read_gguf(fields: Fields) -> Architecture:
    model = decoder_gguf(fields, theta=_GLOBAL)
    window = fields.integer("attention.sliding_window")
    every = fields.integer("attention.sliding_window_pattern", _PATTERN)
    local = Rope(fields.number("rope.freq_base_swa", _LOCAL), model.head_dim)
    return replace(
        gguf_as_gemma(model, _LAYERS_OF_27B),
        layers=layers_of_kinds([window if (number + 1) % every else None for number in range(model.n_layers)]),
        ropes={"full_attention": model.ropes["rope"], "sliding_attention": local},
        qk_norm=True,
        logits_cap=cap(fields, "final_logit_softcapping", None),
    )


def layers_of_kinds(windows: Sequence[int | None]) -> tuple[LayerSpec, ...]:
    """Return layers with a window or without one, each kind with its own rope."""
    return tuple(LayerSpec("full_attention" if window is None else "sliding_attention", window) for window in windows)


def _ropes(fields: Fields, size: int) -> Mapping[str, Rope]:
    return ropes_of_kinds(fields, size, (_GLOBAL, _LOCAL), "rope_local_base_freq")


def ropes_of_kinds(fields: Fields, size: int, bases: tuple[float, float], local_base: str) -> Mapping[str, Rope]:
    """Return the RoPE settings of full and sliding layers; `bases` are the defaults of their bases.

    Newer files have settings for each kind of layer. Older files have fields with the base of full layers, rope_theta,
    and that of sliding ones, `local_base`, and scale full layers only.
    """
    parameters = fields.get("rope_parameters", {})
    kinds = ("full_attention", "sliding_attention")
    base, local, scaling = (fields.get(name) for name in ("rope_theta", local_base, "rope_scaling"))
    if not isinstance(parameters, dict) or any(kind not in kinds for kind in parameters):
        fields.refuse("rope_parameters", f"other layers turn than {' and '.join(kinds)}")
        parameters = {}
    old = {kinds[0]: {"rope_theta": base, "rope_scaling": scaling}, kinds[1]: {"rope_theta": local}}
    defaults = dict(zip(kinds, bases, strict=True))
    return {kind: kind_of_rope(fields, kind, parameters.get(kind), old[kind], size, defaults[kind]) for kind in kinds}


def kind_of_rope(fields: Fields, kind: str, new: Any, old: Mapping[str, Any], size: int, theta: float) -> Rope:
    """Return the RoPE of a kind of layers from its settings in newer files, or from `old` fields."""
    settings = {**old, "rope_parameters": new, "max_position_embeddings": fields.get("max_position_embeddings")}
    inner = Fields(f"{fields.where}: {kind}", settings)
    rope = read_rope(inner, size, theta=theta)
    inner.refuse_unread(lambda name: True, {})  # those that reading it refused
    return rope


FAMILY = Family(
    name="Gemma 3",
    models="Gemma 3 270M to 27B",
    special="sliding windows, two bases of RoPE, norms of queries and keys and after each part",
    model_types=("gemma3_text",),
    classes=("Gemma3ForCausalLM",),
    config=read_config,
    gguf_types=("gemma3",),
    gguf=read_gguf,
    names=NAMES,
    gguf_names=GGUF_NAMES,
    end_tokens=("<end_of_turn>",),
)

"""EXAONE 4: norms after each part only. The larger model has windows, and full layers without RoPE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..architecture import Architecture, LayerSpec
from ..config import Fields, decoder_config, decoder_gguf
from ..family import IN_TAGS, Family
from .gemma2 import windows_of, windows_of_gguf
from .olmo2 import GGUF_NAMES, NAMES

_PATTERN = 4  # every fourth layer attends to all tokens


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, kv_heads=32)
    pattern = fields.get("sliding_window_pattern", _PATTERN)
    if fields.get("layer_types") is None and not isinstance(pattern, int):
        fields.refuse("sliding_window_pattern", "a pattern of letters, without layer_types")
        pattern = _PATTERN
    windows: list[int | None] = [None] * model.n_layers
    if fields.get("sliding_window") is not None:
        every = pattern if isinstance(pattern, int) and pattern > 0 else _PATTERN
        windows = windows_of(fields, [bool((number + 1) % every) for number in range(model.n_layers)])
    elif any(kind != "full_attention" for kind in fields.list_of("layer_types", str)):
        fields.refuse("layer_types", "layers with a window, without sliding_window")
    return _as_exaone(model, windows, fields.get("sliding_window") is not None)


def read_gguf(fields: Fields) -> Architecture:
    model = decoder_gguf(fields)
    window = model.layers[0].window
    sliding = [bool((number + 1) % _PATTERN) for number in range(model.n_layers)]
    return _as_exaone(model, windows_of_gguf(fields, window, sliding), window is not None)


def _as_exaone(model: Architecture, windows: Sequence[int | None], hybrid: bool) -> Architecture:
    """Set the layers: in a model with windows, those without one are not rotated."""
    layers = tuple(LayerSpec(None if hybrid and window is None else "rope", window) for window in windows)
    return replace(model, layers=layers, qk_norm=True, pre_norms=False, post_norms=True)


FAMILY = Family(
    name="EXAONE 4",
    models="EXAONE 4.0 1.2B and 32B",
    special="norms after each part only, norms of queries and keys; windows, and full layers without RoPE, in the 32B",
    model_types=("exaone4",),
    classes=("Exaone4ForCausalLM",),
    config=read_config,
    gguf_types=("exaone4",),
    gguf=read_gguf,
    names=NAMES,
    gguf_names=GGUF_NAMES,
    end_tokens=("[|endofturn|]",),
    tool_formats={"<tool_call>": IN_TAGS},
)

"""Gemma 4: later layers attend to the keys and values of earlier ones, and each layer adds an embedding of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...llm.tool_shapes import ToolFormat
from ..architecture import Architecture, LayerSpec, Rope
from ..config import FieldRule, Fields, decoder_config, decoder_gguf
from ..family import Family
from ..weights import TensorNames
from .gemma2 import GGUF_NAMES as GEMMA_2_GGUF_NAMES
from .gemma2 import NAMES as GEMMA_2_NAMES
from .gemma2 import cap, embedding_scale, gguf_embedding_scale, windows_of, windows_of_gguf
from .gemma3 import kind_of_rope

_HEAD_DIM, _FULL_HEAD_DIM, _PER_LAYER, _PATTERN, _WINDOW = 256, 512, 256, 6, 512  # defaults of transformers
_GLOBAL, _LOCAL, _SHARE = 1000000.0, 10000.0, 0.25  # bases of RoPE, and the share of pairs that rotate in full layers

NAMES = TensorNames(
    {
        **GEMMA_2_NAMES.parts,
        "per_layer_embeddings": "model.embed_tokens_per_layer",
        "per_layer_projection": "model.per_layer_model_projection",
        "per_layer_norm": "model.per_layer_projection_norm",
        "layers.{}.per_layer_gate": "model.layers.{}.per_layer_input_gate",
        "layers.{}.per_layer_out": "model.layers.{}.per_layer_projection",
        "layers.{}.per_layer_out_norm": "model.layers.{}.post_per_layer_input_norm",
        "layers.{}.scale.weight": "model.layers.{}.layer_scalar",
    }
)
GGUF_NAMES = TensorNames(
    {
        **GEMMA_2_GGUF_NAMES.parts,
        "per_layer_embeddings": "per_layer_token_embd",
        "per_layer_projection": "per_layer_model_proj",
        "per_layer_norm": "per_layer_proj_norm",
        "layers.{}.per_layer_gate": "blk.{}.inp_gate",
        "layers.{}.per_layer_out": "blk.{}.proj",
        "layers.{}.per_layer_out_norm": "blk.{}.post_norm",
        "layers.{}.scale": "blk.{}.layer_output_scale",
    }
)


def read_config(fields: Fields) -> Architecture:
    if fields.boolean("enable_moe_block"):
        fields.refuse("enable_moe_block", "a mixture of experts beside the feed-forward")
    if fields.boolean("attention_k_eq_v"):
        fields.refuse("attention_k_eq_v", "layers without a window have keys for values")
    fields.get("num_global_key_value_heads")  # read with attention_k_eq_v only
    model = decoder_config(
        fields, tied=True, head_dim=_HEAD_DIM, kv_heads=4, activation="gelu_tanh", ropes=lambda fields, size: {}
    )
    windows = windows_of(fields, [(number + 1) % _PATTERN != 0 for number in range(model.n_layers)], _WINDOW)
    windows[-1] = None  # transformers does the same
    widths = _head_widths(fields, model.head_dim, windows)
    wide = 2 if fields.boolean("use_double_wide_mlp") else 1
    own = _own_layers(fields, "num_kv_shared_layers", windows)
    hidden_dims = [model.hidden_dim * (wide if number >= own else 1) for number in range(model.n_layers)]
    return replace(
        _as_gemma_4(model, windows, widths, hidden_dims, own),
        ropes=_ropes(fields, model.head_dim, widths[-1]),
        embedding_factor=embedding_scale(fields, model),
        logits_cap=cap(fields, "final_logit_softcapping", None),
        per_layer_dim=_per_layer_dim(fields, model),
    )


def read_gguf(fields: Fields) -> Architecture:
    hidden_dims = fields.get("feed_forward_length")
    listed = hidden_dims if isinstance(hidden_dims, list) else None
    if listed is not None and (len(listed) != fields.get("block_count") or not all(map(_is_width, listed))):
        raise fields.invalid("feed_forward_length", hidden_dims, "a width, or one for each layer")
    if fields.get("expert_count"):
        fields.refuse("expert_count", "a mixture of experts beside the feed-forward")
    model = decoder_gguf(fields, theta=_GLOBAL, hidden_dim=None if listed is None else listed[0])
    width = fields.integer("attention.key_length_swa", model.head_dim)
    if fields.integer("attention.value_length_swa", width) != width:
        fields.refuse("attention.value_length_swa", f"values of another size than keys, {width}")
    window = fields.integer("attention.sliding_window", _WINDOW)
    usual = [(number + 1) % _PATTERN != 0 for number in range(model.n_layers)]
    windows = windows_of_gguf(fields, window, usual)
    name = "embedding_length_per_layer_input"
    local = Rope(fields.number("rope.freq_base_swa", _LOCAL), fields.integer("rope.dimension_count_swa", width))
    return replace(
        _as_gemma_4(
            model,
            windows,
            [model.head_dim if each is None else width for each in windows],
            listed or [model.hidden_dim] * model.n_layers,
            _own_layers(fields, "attention.shared_kv_layers", windows),
        ),
        ropes={"full_attention": model.ropes["rope"], "sliding_attention": local},
        activation="gelu_tanh",
        embedding_factor=gguf_embedding_scale(model),
        logits_cap=cap(fields, "final_logit_softcapping", None),
        per_layer_dim=fields.integer(name) if fields.get(name) else 0,
    )


def _is_width(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _as_gemma_4(
    model: Architecture, windows: Sequence[int | None], widths: Sequence[int], hidden_dims: Sequence[int], own: int
) -> Architecture:
    """Return the model with its layers, of which those after the first `own` have the keys and values of others.

    Those are of the last layer before them of their kind.
    """
    layers = tuple(
        LayerSpec(
            "full_attention" if window is None else "sliding_attention",
            window,
            head_dim=widths[number],
            hidden_dim=hidden_dims[number],
            shares=own - 1 - windows[:own][::-1].index(window) if number >= own else None,
        )
        for number, window in enumerate(windows)
    )
    return replace(
        model,
        layers=layers,
        qk_norm=True,
        value_norm=True,
        post_norms=True,
        attention_scale=1.0,
        layer_scales=True,
    )


def _head_widths(fields: Fields, width: int, windows: Sequence[int | None]) -> list[int]:
    """Return the width of the heads of each layer; newer files list the layers of another width."""
    wide = fields.integer("global_head_dim", _FULL_HEAD_DIM)
    usual = {str(n): {"head_dim": wide} for n, window in enumerate(windows) if window is None}
    listed = fields.get("per_layer_config", usual)
    if not isinstance(listed, dict) or any(not isinstance(each, dict) for each in listed.values()):
        raise fields.invalid("per_layer_config", listed, "an object with an object for each layer")
    if any(name != "head_dim" for each in listed.values() for name in each):
        fields.refuse("per_layer_config", "layers differ by more than the width of their heads")
    widths = []
    for number, window in enumerate(windows):
        own = Fields(f"{fields.where}: per_layer_config", listed.get(str(number), {}))
        widths.append(own.integer("head_dim", width))
        if widths[-1] != (width if window is not None else widths[windows.index(None)]):
            fields.refuse("per_layer_config", "layers with one RoPE have heads of several widths")
    return widths


def _own_layers(fields: Fields, name: str, windows: Sequence[int | None]) -> int:
    """Return the number of layers with keys and values of their own. The field has the number of those without."""
    shared, count = fields.get(name, 0), len(windows)
    own = count - shared if isinstance(shared, int) and not isinstance(shared, bool) else 0
    if not 1 <= own <= count or any(window not in windows[:own] for window in windows[own:]):
        expected = "the number of layers at the end that share, with layers of their kinds before them"
        raise fields.invalid(name, shared, expected)
    return own


def _ropes(fields: Fields, width: int, full_width: int) -> Mapping[str, Rope]:
    parameters = fields.get("rope_parameters", {})
    if not isinstance(parameters, dict) or any(kind not in _KINDS for kind in parameters):
        fields.refuse("rope_parameters", f"other layers rotate than {' and '.join(_KINDS)}")
        parameters = {}
    full = parameters.get("full_attention") or {"rope_type": "proportional", "partial_rotary_factor": _SHARE}
    local = parameters.get("sliding_attention")
    return {
        "full_attention": _full_rope(fields, full, full_width),
        "sliding_attention": kind_of_rope(fields, "sliding_attention", local, {}, width, _LOCAL),
    }


_KINDS = ("full_attention", "sliding_attention")


def _full_rope(fields: Fields, settings: Any, width: int) -> Rope:
    """Return a RoPE of which a share of the pairs rotates, with the frequencies of a RoPE of all pairs."""
    if not isinstance(settings, dict) or settings.get("rope_type") != "proportional":
        return kind_of_rope(fields, "full_attention", settings, {}, width, _GLOBAL)
    inner = Fields(f"{fields.where}: full_attention", settings)
    inner.get("rope_type")
    turning = int(inner.number("partial_rotary_factor", 1.0) * width // 2)
    if turning > width // 2:
        raise inner.invalid("partial_rotary_factor", settings["partial_rotary_factor"], "a number of at most 1")
    rope = proportional(inner.number("rope_theta", _GLOBAL), width, turning, inner.number("factor", 1.0))
    inner.refuse_unread(lambda name: False, {})
    return rope


def proportional(theta: float, width: int, turning: int, factor: float = 1.0) -> Rope:
    """Return a RoPE whose first `turning` pairs rotate."""
    return Rope(theta, width, (factor,) * turning + (math.inf,) * (width // 2 - turning))


def _per_layer_dim(fields: Fields, model: Architecture) -> int:
    """Return the width of the embeddings of layers; 0 if the model has none."""
    name = "hidden_size_per_layer_input"
    fields.get("vocab_size_per_layer_input")
    if name in fields.values and fields.get(name) in (None, 0):
        return 0
    if fields.integer("vocab_size_per_layer_input", model.vocab_size) != model.vocab_size:
        fields.refuse("vocab_size_per_layer_input", f"another number than vocab_size, {model.vocab_size}")
    return fields.integer(name, _PER_LAYER)


FAMILY = Family(
    name="Gemma 4",
    models="Gemma 4 E2B and E4B, without their encoders of images and audio",
    special="keys and values shared between layers, embeddings of each layer, wider heads in layers without a window",
    model_types=("gemma4_text",),
    classes=("Gemma4ForCausalLM",),
    config=read_config,
    gguf_types=("gemma4",),
    gguf=read_gguf,
    rules={"use_bidirectional_attention": FieldRule((False, "vision"), "attention is not causal")},
    names=NAMES,
    gguf_names=GGUF_NAMES,
    end_tokens=("<turn|>", "<|tool_response>"),  # the second one follows calls
    tool_formats={"<|tool_call>call:": ToolFormat("unquoted", "<|tool_call>", "<tool_call|>")},
)

"""OLMo 3: an OLMo 2 with windows in three of four layers, whose RoPE is not scaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...llm.tool_shapes import ToolFormat
from ..architecture import Architecture, Rope
from ..config import Fields, decoder_config
from ..family import Family
from .gemma2 import windows_of
from .gemma3 import layers_of_kinds, ropes_of_kinds
from .olmo2 import NAMES, PATTERN, as_olmo

_BASE = 500000.0


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, ropes=_ropes)
    biases = fields.boolean("attention_bias")
    windows = windows_of(fields, [bool((number + 1) % PATTERN) for number in range(model.n_layers)])
    return replace(as_olmo(model), layers=layers_of_kinds(windows), qkv_bias=biases, out_bias=biases)


def _ropes(fields: Fields, size: int) -> Mapping[str, Rope]:
    return ropes_of_kinds(fields, size, (_BASE, _BASE), "rope_theta")


FAMILY = Family(
    name="OLMo 3",
    models="OLMo 3 and 3.1, 7B and 32B",
    special="the norms of OLMo 2; sliding windows, YaRN in full layers only",
    model_types=("olmo3",),
    classes=("Olmo3ForCausalLM",),
    config=read_config,
    names=NAMES,
    end_tokens=("<|im_end|>", "<|endoftext|>"),
    tool_formats={"<function_calls>": ToolFormat("lines", "<function_calls>", "</function_calls>")},
)

"""A few layers of published models, in their width: a step of a program costs what their layers cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.models.families import first
from webpte.builder import build_program

WIDE: dict[str, dict[str, Any]] = {
    "gemma3": {  # Gemma 3 1B
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "num_hidden_layers": 4,
        "layer_types": [*["sliding_attention"] * 3, "full_attention"],
        "sliding_window": 64,
    },
    "lfm2": {  # LFM2 1.2B
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 3,
        "layer_types": ["conv", "conv", "full_attention"],
    },
}
CONTEXT, MAX_TOKENS = 128, 64


def built(family: str, folder: str) -> str:
    """Write the program of random weights of 4 bits into a folder."""
    tiny = first(family)
    wide = replace(tiny, fields={**tiny.fields, **WIDE[family]})
    checkpoint = Path(folder) / "checkpoint"
    wide.save(checkpoint)
    path = checkpoint / "model.pte"
    return str(build_program(checkpoint, path, quantize="4w", max_context=CONTEXT, max_tokens=MAX_TOKENS))

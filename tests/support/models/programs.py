"""The small programs our export-tier tests run, by name; named.py has the larger ones.

No torch here: a name must be resolvable with a warm cache.
A name stands for a builder function in a file beside this one, and parameters for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# (tokens, query heads, key heads, head size): decode is one token; tokens at prefill are mostly prime.
ROTARY_SHAPES = (
    (1, 4, 2, 16),
    (1, 9, 3, 64),
    (1, 8, 8, 32),
    (1, 32, 8, 128),
    (3, 4, 2, 16),
    (5, 2, 2, 48),
    (7, 4, 1, 32),
    (13, 9, 3, 64),
    (29, 8, 2, 128),
    (31, 5, 5, 96),
    (64, 32, 8, 64),
    (127, 6, 2, 80),
)


@dataclass(frozen=True)
class Entry:
    """`function` in `file`, called with `params`."""

    file: str
    function: str
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return Path(__file__).with_name(f"{self.file}.py")


def rotary_name(seq: int, heads: int, kv_heads: int, head_dim: int) -> str:
    return f"rotary_{seq}x{heads}x{kv_heads}x{head_dim}"


def entries() -> dict[str, Entry]:
    small = [
        "add", "add_tied", "add_equal_bytes", "add_external",
        "mixed_kernels", "two_methods",
        "dynamic_broadcast", "dynamic_size_output", "integers", "doubles", "half",
    ]  # fmt: skip
    named = {name: Entry("small", name) for name in small}
    named |= {name: Entry("control", name) for name in ("branch", "branch_delegated", "branch_on_data")}
    named |= {
        rotary_name(*shape): Entry(
            "attention", "rotary", dict(zip(("seq", "heads", "kv_heads", "head_dim"), shape, strict=True))
        )
        for shape in ROTARY_SHAPES
    }
    named["rotary_dynamic"] = Entry("attention", "rotary_dynamic")
    named["rotary_dynamic_gqa"] = Entry(
        "attention", "rotary_dynamic", {"heads": 9, "kv_heads": 3, "head_dim": 64, "bound": 127}
    )
    named["sdpa_cache_inputs"] = Entry("attention", "sdpa_cache_inputs")
    named["sdpa_cache_inputs_live"] = Entry("attention", "sdpa_cache_inputs", {"live_position": True})
    llamas: dict[str, dict[str, Any]] = {
        "llama": {},
        "llama_nokv": {"kv_cache": False},
        "llama_static1": {"static": True},
        "llama_4w": {"quantize": "4w"},
        "llama_4w_emb4": {"quantize": "4w", "embedding": "4,32"},
        "llama_8da4w": {"quantize": "8da4w"},
        "llama_8da4w_emb4": {"quantize": "8da4w", "embedding": "4,32"},
        "llama_4w_fp16": {"quantize": "4w", "force_fp16": True},
        "llama_hfrope_4w": {"quantize": "4w", "hf_rope": True},
    }
    named |= {name: Entry("llama", "llama", params) for name, params in llamas.items()}
    return named


PROGRAMS = entries()

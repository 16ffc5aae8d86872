"""Language models of two layers and real vocabularies by ExecuTorch's own exporter, `export_llama`. No torch here."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from ..export.exporting import SUPPORT, Exported, cache_root, kept, key_of
from ..export.sources import definitions_hash

_BASE: dict[str, Any] = {
    "backend": "xnnpack",
    "vocabulary": 32_000,
    "dtype": "fp32",
    "custom_sdpa": True,
    "dynamic": True,
    "quantize": "",
    "embedding": None,
}
EXPORTS: dict[str, dict[str, Any]] = {
    "xnnpack": _BASE,
    "xnnpack_8da4w": {**_BASE, "vocabulary": 128_256, "quantize": "8da4w", "embedding": "8,0"},
    "xnnpack_bf16": {**_BASE, "dtype": "bf16"},
    "xnnpack_plain_attention": {**_BASE, "custom_sdpa": False},
    "xnnpack_static": {**_BASE, "custom_sdpa": False, "dynamic": False},
    "portable": {**_BASE, "backend": "portable"},
    "vulkan": {**_BASE, "backend": "vulkan"},
    "vulkan_4w": {**_BASE, "backend": "vulkan", "vocabulary": 128_256, "quantize": "4w", "embedding": "4,32"},
}


def export_llama(name: str) -> Exported:
    """Return one of EXPORTS."""
    params = EXPORTS[name]
    sources = definitions_hash((SUPPORT / "export" / "export_llama.py", "write"))

    def write(folder: Path) -> None:
        import_module("tests.support.export.export_llama").write(params, folder)

    return kept(cache_root() / key_of(sources, name, params), f"export_llama_{name}", params, write)


def answer_of(exported: Exported) -> tuple[list[int], list[int], float]:
    """Return a prompt, the tokens of its greedy answer, and the smallest gap of the two best logits on the way."""
    data = json.loads((exported.folder / "tokens.json").read_text())
    return data["prompt"], data["tokens"], data["gap"]

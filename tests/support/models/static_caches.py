"""Tiny random language models of `transformers` with its own static cache, exported as it traces them. No torch here.

Where a token goes, the cache counts itself, in a buffer for each layer, and the exporter refuses to delegate the update
of such a buffer. So nothing is delegated here: kernel calls that have an op of ours run on the GPU all the same.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

from ..export.exporting import SUPPORT, Exported, cache_root, kept, key_of
from ..export.sources import definitions_hash

MODELS = ("llama", "qwen3")


def export_static_cache(name: str) -> Exported:
    """Return one token at a time, and what transformers generates."""
    sources = definitions_hash((SUPPORT / "export" / "static_cache.py", "write"))

    def write(folder: Path) -> None:
        import_module("tests.support.export.static_cache").write(name, folder)

    return kept(cache_root() / key_of(sources, name, {}), f"static_{name}", {}, write)


def tokens_of(exported: Exported) -> tuple[list[int], list[int]]:
    """Return the prompt, and the prompt with all that transformers' own greedy search made of it."""
    data = json.loads((exported.folder / "tokens.json").read_text())
    return data["prompt"], data["generated"]

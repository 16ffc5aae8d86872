"""A file for each family of models, found by looking here: there is no list to edit."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ...errors import UnsupportedError
from ..family import Family

# Why some are not exported -> how config.json or GGUF calls them.
_REFUSED: dict[str, tuple[str, ...]] = {
    "whose layers choose among experts: ExecuTorch gathers those of each token as float weights, or has them computed "
    "on the CPU": (
        "mixtral", "qwen2_moe", "qwen3_moe", "granitemoe", "granitemoehybrid", "olmoe", "phimoe", "deepseek_v2",
        "deepseek_v3", "gpt_oss", "llama4", "llama4_text", "qwen2moe", "qwen3moe", "granitehybrid", "deepseek2",
        "gpt-oss",
    ),
    "which sees images: export one of text alone, whose model_type is gemma3_text": ("gemma3",),
    "which shares caches between layers and has embeddings of each": ("gemma3n", "gemma3n_text", "gemma4"),
    "the first Gemma: Gemma 2 and 3 are exported": ("gemma",),
}  # fmt: skip


@cache
def families() -> dict[str, Family]:
    """By the name of the file that describes it."""
    return {found.name: import_module(f"{__name__}.{found.name}").FAMILY for found in iter_modules(__path__)}


def family_of_config(where: str, model_type: object) -> Family:
    return _find(where, "model_type", model_type, {t: f for f in families().values() for t in f.model_types})


def family_of_gguf(where: str, architecture: object) -> Family:
    known = {t: f for f in families().values() for t in f.gguf_types}
    return _find(where, "general.architecture", architecture, known)


def _find(where: str, field: str, found: object, known: dict[str, Family]) -> Family:
    if isinstance(found, str) and found in known:
        return known[found]
    reason = next((reason for reason, names in _REFUSED.items() if found in names), None)
    raise UnsupportedError(
        f"{where} holds a {found} model{'' if reason is None else f', {reason}'}; supported are those whose {field} is "
        f"one of {', '.join(sorted(known))}",
        [field],
        code="unknown_family",
    )

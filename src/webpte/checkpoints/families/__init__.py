"""One file for each family of models. Families are found by listing this package."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ...errors import UnsupportedError
from ..family import Family

# The reason why models are not supported -> their names in config.json or GGUF. It must hold for every model of a name.
UNSUPPORTED: dict[str, tuple[str, ...]] = {
    "which is a mixture of experts of a kind that is not supported": (
        "qwen2_moe", "qwen3_next", "phimoe", "ernie4_5_moe", "ernie4_5-moe", "hunyuan_v1_moe", "hunyuan-moe",
        "deepseek_v2", "deepseek_v3", "llama4", "llama4_text", "qwen2moe", "qwen3next", "qwen35moe", "deepseek2",
    ),
    "which is Granite 4 with layers of Mamba-2, which are not supported": ("granitehybrid",),
    "whose layers have Mamba-2 beside attention, which is not supported": ("falcon_h1", "falcon-h1"),
    "whose attention has a gate for each head, which is not supported: LFM2 is": ("lfm3",),
    "which shares caches between layers and has embeddings of each": ("gemma3n", "gemma3n_text"),
    "which is Gemma 4 without encoders for images and audio; the text of Gemma 4 E2B and E4B is supported": (
        "gemma4_unified", "gemma4_unified_text",
    ),
}  # fmt: skip


@cache
def families() -> dict[str, Family]:
    """Return the families by the names of their files."""
    return {file.name: import_module(f"{__name__}.{file.name}").FAMILY for file in iter_modules(__path__)}


def family_of_config(where: str, model_type: object) -> Family:
    return _find(where, "model_type", model_type, {t: f for f in families().values() for t in f.model_types})


def family_of_gguf(where: str, architecture: object) -> Family:
    known = {t: f for f in families().values() for t in f.gguf_types}
    return _find(where, "general.architecture", architecture, known)


def _find(where: str, field: str, name: object, known: dict[str, Family]) -> Family:
    if isinstance(name, str) and name in known:
        return known[name]
    reason = next((reason for reason, names in UNSUPPORTED.items() if name in names), None)
    raise UnsupportedError(
        f"{where} holds a {name} model{'' if reason is None else f', {reason}'}",
        [field],
        code="unknown_family",
        hint=f"Supported values of {field} are {', '.join(sorted(known))}.",
    )

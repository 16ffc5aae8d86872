"""Numbers and names for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..text import plain, size

__all__ = ["plain", "short_name", "size", "type_text"]


def short_name(name: str) -> str:
    """What one calls an op: ``add.Tensor`` for ``aten.add.Tensor``, ``cat`` for ``aten::cat.out``."""
    _, kernel, rest = name.rpartition("::")
    if not kernel and (rest.count(".") > 1 or rest.startswith("webpte.")):
        rest = rest.split(".", 1)[1]
    return rest.removesuffix(".default").removesuffix(".out") or name


def type_text(value: Mapping[str, Any]) -> str:
    """The type of a value of a report, ``f32[1, ≤255, 576]``. A dim with a mark may be smaller."""
    if value["dims"] is None:
        return str(value["dtype"])
    marks = zip(value["dims"], value["dynamic"], strict=True)
    return f"{value['dtype']}[{', '.join(f'≤{dim}' if may else str(dim) for dim, may in marks)}]"

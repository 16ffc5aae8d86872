"""Numbers and names for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Control characters but tab and newline; marks that turn the direction of writing; invisible ones; halves of pairs.
_UNSAFE = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def plain(text: str) -> str:
    """The text with a mark in the place of each character that a terminal would obey or hide."""
    return _UNSAFE.sub("\ufffd", text)


def size(count: float) -> str:
    """Bytes, with three digits and a decimal unit."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB"):
        count /= 1000
        if count < 999.5:  # what three digits would round up belongs to the next unit
            return f"{count:.3g} {unit}"
    return f"{count / 1000:.3g} GB"


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

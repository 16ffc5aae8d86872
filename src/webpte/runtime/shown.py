"""What programs, methods and their memory look like at a prompt and in a notebook. Nothing is computed for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..device import MemoryNeeds
from ..text import sanitize_line
from .arguments import ArgumentInfo

MOST_METHODS = 20  # in a line each


def signature(name: str, inputs: Sequence[ArgumentInfo], outputs: Sequence[ArgumentInfo]) -> str:
    """A method as one would write it."""
    return f"{sanitize_line(name)}({arguments(inputs)}) -> {arguments(outputs) or 'nothing'}"


def arguments(infos: Sequence[ArgumentInfo]) -> str:
    return ", ".join(f"{sanitize_line(info.name)}: {info}" for info in infos)


def memory_line(needs: MemoryNeeds) -> str:
    """Kinds that take something, and the sum."""
    return ", ".join(f"{kind} {text}" for kind, text in needs.rows().items())


def some(rows: Mapping[str, str]) -> dict[str, str]:
    """The first of many methods, and how many more there are."""
    kept = dict(list(rows.items())[:MOST_METHODS])
    return kept | ({"...": f"and {len(rows) - len(kept)} more"} if len(rows) > len(kept) else {})

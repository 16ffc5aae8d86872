"""Rows that are reduced to a number or two: how many invocations share one."""

from __future__ import annotations

from .context import Context
from .variants import ANYWHERE, Variant

FEW_ROWS = 4  # as in decoding: a CPU, which runs eight invocations at once, then shares a row among them
LONG_ROW = 64  # elements that are worth sharing
ALONE, BY_8, BY_64 = (Variant(name, ANYWHERE, lanes) for name, lanes in (("alone", 1), ("by 8", 8), ("by 64", 64)))


def lanes_per_row(cx: Context, family: str, rows: int, columns: int) -> int:
    """Invocations that share a row of `columns` elements for this number of rows: 1, or a workgroup of them."""
    return _lanes(cx, family, columns, few=rows <= FEW_ROWS, key=("few rows" if rows <= FEW_ROWS else "many rows",))


def lanes_per_any_row(cx: Context, family: str, columns: int) -> int:
    """The same however many rows there are: they add up in one order, and a row's bits do not depend on the others."""
    return _lanes(cx, family, columns, few=True, key=())


def _lanes(cx: Context, family: str, columns: int, few: bool, key: tuple[str, ...]) -> int:
    long = columns >= LONG_ROW
    cpu = (BY_8, ALONE) if few and long else (ALONE, BY_8)
    gpu = (BY_64, BY_8, ALONE) if long else (ALONE, BY_8, BY_64)
    return cx.variant(family, (columns, *key), cpu=cpu, gpu=gpu).config


def workgroup_for(lanes: int) -> int:
    """A workgroup is the invocations of a row, or of eight rows."""
    return lanes if lanes > 1 else 8

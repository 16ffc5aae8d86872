"""Rows that are reduced to a number or two: how many invocations share one."""

from __future__ import annotations

from .context import Context

FEW_ROWS = 4  # as in decoding: a CPU, which runs eight invocations at once, then shares a row among them
LONG_ROW = 64  # elements that are worth sharing
_LANES = {"alone": 1, "by 8": 8, "by 64": 64}


def lanes_per_row(cx: Context, family: str, rows: int, columns: int) -> int:
    """Invocations that share a row of `columns` elements where there are so many rows: 1, or a workgroup of them."""
    few, long = rows <= FEW_ROWS, columns >= LONG_ROW
    cpu = ("by 8", "alone") if few and long else ("alone", "by 8")
    gpu = ("by 64", "by 8", "alone") if long else ("alone", "by 8", "by 64")
    return _LANES[cx.variant(family, (columns, "few rows" if few else "many rows"), cpu=cpu, gpu=gpu)]


def workgroup_for(lanes: int) -> int:
    """A workgroup is the invocations of a row, or of eight rows."""
    return lanes if lanes > 1 else 8

"""Rules for the work of a call, as traits of its op: its arithmetic, and the share of each bound tensor it accesses.

    @op("aten.linear.default", traits=OpTraits(work=sums_over("input")))
    @op("aten.embedding.default", traits=OpTraits(memory_traffic=rows_of("weight")))

Arithmetic counts the multiplications and additions of products, which a device's peak is compared with. A tensor that
`memory_traffic` does not name counts in full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..graph import numel

Dims = tuple[int, ...]


class CallSizes(Protocol):
    """What was live in a call, by the names of its op's arguments."""

    @property
    def out(self) -> Dims:
        """The dims of the first output."""

    def dims(self, argument: str) -> Dims:
        """The dims of a tensor."""

    def each(self, argument: str) -> list[Dims]:
        """The dims of every tensor of a list."""

    def number(self, argument: str) -> Any:
        """A number."""

    def numbers(self, argument: str) -> list[int]:
        """The numbers of a list."""


Flops = Callable[[CallSizes], int]  # multiplications and additions
Share = Callable[[CallSizes, Dims, bool], float]  # of a tensor with these dims, which is written or read


def sums_over(rows: str) -> Flops:
    """A product of matrices: every element of the output is a sum over the last dim of an argument."""
    return lambda sizes: 2 * numel(sizes.out) * sizes.dims(rows)[-1]


def rows_of(*tables: str) -> dict[str, Share]:
    """Tables, of each of which every row of the output takes one row."""

    def share(sizes: CallSizes, dims: Dims, written: bool) -> float:
        return numel(sizes.out[:-1]) / max(1, dims[0]) if len(dims) > 1 else 1.0

    return dict.fromkeys(tables, share)


def part_taken(sizes: CallSizes, dims: Dims, written: bool) -> float:
    """A tensor, of which the output is a part."""
    return numel(sizes.out) / max(1, numel(dims))


def filled(tokens: str, start: str) -> Share:
    """A cache (B, C, H, D) of which `start` positions are filled, and those of the tokens (B, S, H, D) behind them."""

    def share(sizes: CallSizes, dims: Dims, written: bool) -> float:
        fresh = sizes.dims(tokens)[1]
        return (fresh if written else sizes.number(start) + fresh) / max(1, dims[1])

    return share

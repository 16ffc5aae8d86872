"""Buffers: what each tensor is stored in, and who shares with whom.

The exporter's own plan is ignored. Liveness counts calls in execution order, inclusive at both ends, over the roots of
aliases; tensors with disjoint lifetimes share a whole buffer, because WebGPU forbids one buffer being bound read-only
and read-write in the same dispatch even at disjoint ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..graph import Constant, DType

PADDING = 16  # vec4 tails stay inside the buffer


def padded(nbytes: int) -> int:
    return max(PADDING, -(-nbytes // PADDING) * PADDING)


@dataclass(frozen=True, slots=True)
class Fill:
    """The file data a buffer starts with."""

    constant: Constant
    dtype: DType  # as stored on the device


@dataclass(frozen=True, slots=True)
class Buffer:
    """One GPU buffer. `kind` is constant (never written), state (outlives a call) or activation (shared)."""

    nbytes: int
    kind: str
    tensors: tuple[int, ...]
    fill: Fill | None = None


@dataclass(frozen=True, slots=True)
class Root:
    """A tensor that needs storage of its own; others may be aliases of it."""

    id: int
    nbytes: int
    first: int
    last: int


def share(roots: Iterable[Root]) -> list[tuple[int, list[Root]]]:
    """Pack roots into buffers, largest first, each into the buffer it wastes least of."""
    buffers: list[tuple[int, list[Root]]] = []
    for root in sorted(roots, key=lambda r: (-r.nbytes, r.first, r.id)):
        fitting = [
            tenants
            for _, tenants in buffers
            if all(root.last < other.first or other.last < root.first for other in tenants)
        ]
        if fitting:
            # Buffers were opened in descending size, so the last that fits is the tightest.
            fitting[-1].append(root)
        else:
            buffers.append((root.nbytes, [root]))
    return buffers


def resolve(aliases: Mapping[int, int]) -> dict[int, int]:
    """Alias -> root, chains followed."""
    roots: dict[int, int] = {}
    for alias in aliases:
        root = alias
        while root in aliases:
            root = aliases[root]
        roots[alias] = root
    return roots

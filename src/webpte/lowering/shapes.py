"""Shape arithmetic of ops: strides, broadcasting, and walking several operands at once."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ShapeError
from ..graph import normalize_dim
from .context import Tensor

Dims = tuple[int, ...]
MAX_RANK = 8  # that a kernel walks, after merging


def strides(dims: Dims) -> Dims:
    """Return the strides of a contiguous tensor, in elements."""
    result = [1] * len(dims)
    for d in range(len(dims) - 2, -1, -1):
        result[d] = result[d + 1] * dims[d + 1]
    return tuple(result)


def broadcast(*shapes: Dims) -> Dims:
    """Return the common shape by NumPy's and PyTorch's broadcasting rule."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        wide = {s for s in sizes if s != 1}
        if len(wide) > 1:
            raise ShapeError(
                f"shapes {', '.join(str(list(s)) for s in shapes)} cannot be broadcast together", code="broadcast"
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def broadcast_strides(dims: Dims, out: Dims) -> Dims:
    """Return strides that read a tensor of shape `dims` as shape `out`: 0 where it repeats."""
    own = strides(dims)
    missing = len(out) - len(dims)
    return (0,) * missing + tuple(
        0 if d == 1 and o != 1 else s for d, s, o in zip(dims, own, out[missing:], strict=True)
    )


def coalesce(dims: Dims, *layouts: Dims) -> tuple[Dims, tuple[Dims, ...]]:
    """Drop dims of size 1 and merge neighbors that every layout walks contiguously: fewer divisions per element."""
    kept: list[tuple[int, list[int]]] = []
    for d, size in enumerate(dims):
        if size == 1:
            continue
        steps = [layout[d] for layout in layouts]
        if kept and all(before == step * size for before, step in zip(kept[-1][1], steps, strict=True)):
            kept[-1] = (kept[-1][0] * size, steps)
        else:
            kept.append((size, steps))
    merged = tuple(size for size, _ in kept)
    return merged, tuple(tuple(steps[i] for _, steps in kept) for i in range(len(layouts)))


def reduced(dims: Dims, axes: set[int], keepdim: bool) -> Dims:
    """Return the shape after reducing over `axes`."""
    if keepdim:
        return tuple(1 if d in axes else size for d, size in enumerate(dims))
    return tuple(size for d, size in enumerate(dims) if d not in axes)


def axes_of(dim: list[int] | None, rank: int) -> set[int]:
    """Return normalized reduction axes; without `dim`, all."""
    if not dim:
        return set(range(rank))
    return {normalize_dim(d, rank) for d in dim}


def check_rank(dims: Dims) -> None:
    """Raise ShapeError if a walk has more dims than a parameter block has room for."""
    if len(dims) > MAX_RANK:
        raise ShapeError(f"shape {list(dims)}: expected at most {MAX_RANK} strided dims, got {len(dims)}", code="rank")


@dataclass(frozen=True, slots=True)
class Walk:
    """An output's dims, merged as far as the operands allow, and each operand's strides along them."""

    dims: Dims
    layouts: tuple[Dims, ...]
    flat: bool  # every operand is read in the order the output is written

    @property
    def rank(self) -> int:
        return len(self.dims)


def walk(out: Tensor, *operands: Tensor) -> Walk:
    """Return how to read the operands for each element of `out`, whose dims are set."""
    dims, layouts = coalesce(out.dims, *(broadcast_strides(t.dims, out.dims) for t in operands))
    check_rank(dims)
    return Walk(dims, layouts, all(layout == strides(dims) for layout in layouts))

"""Parts of a tensor: slice, select, permute, expand."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..graph import normalize_dim
from .context import Context, LiveScalar, Tensor
from .copy import copy_into
from .registry import Unused, op
from .shapes import broadcast, broadcast_strides, strides
from .strided import gather


def _clamped(position: int, size: int) -> int:
    """A slice end as Python counts it: negative from the end, then inside the dim."""
    return min(max(position + size if position < 0 else position, 0), size)


@op("aten.slice_copy.Tensor")
def slice_copy(
    cx: Context, self: Tensor, dim: int, start: int | None, end: int | None, step: int, *, out: Tensor
) -> None:
    axis = normalize_dim(dim, self.rank)
    size = self.dims[axis]
    if step < 1:
        raise ShapeError(f"step {step} is not positive")
    first = _clamped(0 if start is None else start, size)
    last = max(first, _clamped(size if end is None else end, size))
    length = -(-(last - first) // step)
    out.dims = (*self.dims[:axis], length, *self.dims[axis + 1 :])
    if out.dims == self.dims and self.dims == self.bound and not cx.volatile:
        copy_into(cx, self, out)
        return
    own = strides(self.dims)
    steps = (*own[:axis], own[axis] * step, *own[axis + 1 :])
    gather(cx, self, out, steps, start=cx.live("start", first), step=own[axis])


@slice_copy.reference
def _(self: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    index = [slice(None)] * self.ndim
    index[dim] = slice(start, end, step)
    return self[tuple(index)]


@op("aten.select_copy.int")
def select_copy(cx: Context, self: Tensor, dim: int, index: LiveScalar, *, out: Tensor) -> None:
    axis = normalize_dim(dim, self.rank)
    size, at = self.dims[axis], int(index.value)
    if not -size <= at < size:
        raise ShapeError(f"index {at} is outside dim {dim} of {list(self.dims)}")
    out.dims = self.dims[:axis] + self.dims[axis + 1 :]
    own = strides(self.dims)
    gather(cx, self, out, own[:axis] + own[axis + 1 :], start=cx.live("index", at % size), step=own[axis])


@select_copy.reference
def _(self: Any, dim: int, index: int) -> Any:
    return np.take(self, index, axis=dim)


@op("aten.permute_copy.default", "aten.permute.default")
def permute(cx: Context, self: Tensor, dims: list[int], *, out: Tensor) -> None:
    order = [normalize_dim(d, self.rank) for d in dims]
    if sorted(order) != list(range(self.rank)):
        raise ShapeError(f"{dims} is no order of the {self.rank} dims of {list(self.dims)}")
    out.dims = tuple(self.dims[d] for d in order)
    own = strides(self.dims)
    gather(cx, self, out, tuple(own[d] for d in order))


@permute.reference
def _(self: Any, dims: list[int]) -> Any:
    return self.transpose(dims)


@op("aten.expand_copy.default")
def expand_copy(cx: Context, self: Tensor, size: list[int], implicit: Unused, *, out: Tensor) -> None:
    missing = len(size) - self.rank
    if missing < 0:
        raise ShapeError(f"{list(self.dims)} cannot be expanded to the shorter {size}")
    wanted = tuple(self.dims[d - missing] if s == -1 and d >= missing else s for d, s in enumerate(size))
    if broadcast(self.dims, wanted) != wanted:
        raise ShapeError(f"{list(self.dims)} cannot be expanded to {list(wanted)}")
    out.dims = wanted
    if self.bound == out.bound:
        copy_into(cx, self, out)  # exporters emit many expands that expand nothing, at any live shape
    else:
        gather(cx, self, out, broadcast_strides(self.dims, wanted))


@expand_copy.reference
def _(self: Any, size: list[int], implicit: object) -> Any:
    missing = len(size) - self.ndim
    return np.broadcast_to(self, [self.shape[d - missing] if s == -1 else s for d, s in enumerate(size)])

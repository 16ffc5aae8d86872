"""A tensor with a part of it replaced: slice_scatter and select_scatter, which assignments to slices become."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import GraphError, ShapeError
from ..graph import normalize_dim
from ..wgsl import Live, LiveInt, Uniforms, dims8, u32
from .context import Context, LiveScalar, Tensor
from .registry import op
from .shapes import Dims, coalesce, strides
from .slicing import clamped
from .strided import check_rank, gather, word


class Scatter(Uniforms):
    rank: u32
    step: u32  # elements per unit of `start`
    start: Live
    dims: dims8
    strides: dims8


def _replace(cx: Context, self: Tensor, src: Tensor, out: Tensor, steps: Dims, start: LiveInt, step: int) -> None:
    """out = self, but out.flat[start * step + i * steps[0] + ...] = src[i, ...]."""
    if src.dtype is not self.dtype:
        raise GraphError(f"{src!r} cannot be put into {self!r}")
    out.dims = self.dims
    gather(cx, self, out, strides(self.dims))
    dims, (walked,) = coalesce(src.dims, steps)
    check_rank(dims)
    params = Scatter(rank=len(dims), step=step, start=start, dims=dims, strides=walked)
    cx.dispatch("scatter.wgsl", reads=(src,), writes=(out,), params=params, threads=src.numel, word=word(src))


@op("aten.slice_scatter.default")
def slice_scatter(
    cx: Context,
    self: Tensor,
    src: Tensor,
    dim: int,
    start: LiveScalar | None,
    end: LiveScalar | None,
    step: int,
    *,
    out: Tensor,
) -> None:
    axis = normalize_dim(dim, self.rank)
    if step < 1:
        raise ShapeError(f"step {step} is not positive")
    size = self.dims[axis]
    first = clamped(0 if start is None else int(start.value), size)
    last = max(first, clamped(size if end is None else int(end.value), size))
    wanted = (*self.dims[:axis], -(-(last - first) // step), *self.dims[axis + 1 :])
    if src.dims != wanted and not (cx.building and cx.volatile):  # at build, data is zero and slices are empty
        raise ShapeError(f"{list(src.dims)} cannot replace a slice of {list(wanted)}")
    own = strides(self.dims)
    steps = (*own[:axis], own[axis] * step, *own[axis + 1 :])
    _replace(cx, self, src, out, steps, cx.live("start", first), own[axis])


@slice_scatter.reference
def _(self: Any, src: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    result = np.array(self)
    where = [slice(None)] * self.ndim
    where[dim] = slice(start, end, step)
    if result[tuple(where)].shape != src.shape:
        raise ShapeError(f"{list(src.shape)} cannot replace a slice of {list(result[tuple(where)].shape)}")
    result[tuple(where)] = src
    return result


@op("aten.select_scatter.default")
def select_scatter(cx: Context, self: Tensor, src: Tensor, dim: int, index: LiveScalar, *, out: Tensor) -> None:
    axis = normalize_dim(dim, self.rank)
    size, at = self.dims[axis], int(index.value)
    if not -size <= at < size:
        raise ShapeError(f"index {at} is outside dim {dim} of {list(self.dims)}")
    own = strides(self.dims)
    steps, wanted = own[:axis] + own[axis + 1 :], self.dims[:axis] + self.dims[axis + 1 :]
    if src.dims != wanted:
        raise ShapeError(f"{list(src.dims)} cannot replace a part of {list(wanted)}")
    _replace(cx, self, src, out, steps, cx.live("index", at % size), own[axis])


@select_scatter.reference
def _(self: Any, src: Any, dim: int, index: int) -> Any:
    result = np.array(self)
    where: list[Any] = [slice(None)] * self.ndim
    where[dim] = index
    result[tuple(where)] = src
    return result

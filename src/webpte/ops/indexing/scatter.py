"""A tensor with a part of it replaced: slice_scatter and select_scatter, which assignments to slices become."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import normalize_dim
from ...graph.expressions import EXPRESSIONS, Term, apply
from ...lowering.context import Context, LiveScalar, Tensor
from ...lowering.registry import op
from ...lowering.shapes import Dims, check_rank, coalesce, strides
from ...wgsl import Live, LiveInt, Uniforms, dims8, u32
from ..layout.slicing import selected, taken_range
from ..layout.strided import gather, word


class ScatterParams(Uniforms):
    rank: u32
    step: u32  # elements per unit of `start`
    start: Live
    dims: dims8
    strides: dims8


def _replace(cx: Context, self: Tensor, src: Tensor, out: Tensor, steps: Dims, start: LiveInt, step: int) -> None:
    """Copy self to out, then write out.flat[start * step + i * steps[0] + ...] = src[i, ...]."""
    if src.dtype is not self.dtype:
        raise GraphError(f"src {src!r} and self {self!r} have different dtypes", code="dtype")
    out.dims = self.dims
    gather(cx, self, out, strides(self.dims))
    dims, (walked,) = coalesce(src.dims, steps)
    check_rank(dims)
    params = ScatterParams(rank=len(dims), step=step, start=start, dims=dims, strides=walked)
    cx.dispatch(
        "indexing/scatter.wgsl", reads={"x": src}, writes={"y": out}, params=params, threads=src.numel, word=word(src)
    )


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
        raise ShapeError(argument="step", expected="at least 1", got=step, code="invalid_step")
    first = _first(cx, self, src=src, axis=axis, start=start, end=end, step=step)
    own = strides(self.dims)
    steps = (*own[:axis], own[axis] * step, *own[axis + 1 :])
    _replace(cx, self, src=src, out=out, steps=steps, start=cx.dynamic(first), step=own[axis])


def _first(
    cx: Context, self: Tensor, src: Tensor, axis: int, start: LiveScalar | None, end: LiveScalar | None, step: int
) -> Term:
    """Return the start of the slice that `src` replaces, or raise if their sizes along `axis` differ."""
    size, count = self.dims[axis], src.dims[axis]
    first: Term = 0 if start is None else start.term
    last: Term = size if end is None else end.term
    span = apply("sub", last, first) if isinstance(first, EXPRESSIONS) else 0
    unknown = isinstance(span, EXPRESSIONS) and count > 0
    if unknown and cx.specialize(apply("ge", first, 0)) and cx.specialize(apply("le", last, size)):
        # The distance between start and end is known only in a call.
        refusal = f"{count} elements along dim {axis} cannot replace a slice that reaches over {{0}}"
        cx.guard(span, (count - 1) * step + 1, count * step + 1, refusal)
        length = count
    else:
        first, reach = taken_range(cx, first, last, size)
        length = -(-reach // step)
    expected = (*self.dims[:axis], length, *self.dims[axis + 1 :])
    if src.dims != expected:
        raise ShapeError(
            argument="src",
            expected=f"the shape of the slice, {list(expected)}",
            got=list(src.dims),
            code="operand_mismatch",
        )
    return first


@slice_scatter.reference
def _(self: Any, src: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    result = np.array(self)
    where = [slice(None)] * self.ndim
    where[dim] = slice(start, end, step)
    if result[tuple(where)].shape != src.shape:
        raise ShapeError(
            argument="src",
            expected=f"the shape of the slice, {list(result[tuple(where)].shape)}",
            got=list(src.shape),
            code="operand_mismatch",
        )
    result[tuple(where)] = src
    return result


@op("aten.select_scatter.default")
def select_scatter(cx: Context, self: Tensor, src: Tensor, dim: int, index: LiveScalar, *, out: Tensor) -> None:
    axis = normalize_dim(dim, self.rank)
    at = selected(cx, self, axis, index)
    own = strides(self.dims)
    steps, expected = own[:axis] + own[axis + 1 :], self.dims[:axis] + self.dims[axis + 1 :]
    if src.dims != expected:
        raise ShapeError(
            argument="src",
            expected=f"the shape of the selection, {list(expected)}",
            got=list(src.dims),
            code="operand_mismatch",
        )
    _replace(cx, self, src=src, out=out, steps=steps, start=cx.dynamic(at), step=own[axis])


@select_scatter.reference
def _(self: Any, src: Any, dim: int, index: int) -> Any:
    result = np.array(self)
    where: list[Any] = [slice(None)] * self.ndim
    where[dim] = index
    result[tuple(where)] = src
    return result

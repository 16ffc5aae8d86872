"""Matrix products: linear, mm, bmm, addmm, baddbmm; convolutions with a 1 x 1 kernel are products too."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..graph import numel
from ..wgsl import Uniforms, f32, u32
from .context import Context, Dims, Tensor
from .registry import FLOATS, op
from .shapes import broadcast, broadcast_strides

ROWS = 4  # output rows one invocation computes when there are several; columns are always 4
F32_MAX = float(np.finfo(np.float32).max)  # WGSL need not have infinities


class Limits(NamedTuple):
    """Results are clamped to these."""

    lowest: float = -F32_MAX
    highest: float = F32_MAX

    @staticmethod
    def of(lowest: float | None, highest: float | None) -> Limits:
        """None and infinity do not limit."""
        least = -F32_MAX if lowest is None else max(float(lowest), -F32_MAX)
        return Limits(least, F32_MAX if highest is None else min(float(highest), F32_MAX))


UNLIMITED = Limits()


class Linear(Uniforms):
    rows: u32
    inner: u32
    columns: u32
    column_tiles: u32
    lowest: f32
    highest: f32


def project(
    cx: Context, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, limits: Limits = UNLIMITED
) -> None:
    """(M, K) x (N, K) -> (M, N). Only `weight` is asked for dims: N is the first of them, K all others together."""
    columns = weight.dims[0]
    inner = numel(weight.dims[1:])
    rows = out.numel // columns if columns else 0
    tile = 1 if rows == 1 else ROWS
    tiles = -(-columns // 4)
    cx.dispatch(
        "linear.wgsl",
        reads=(x, weight) if bias is None else (x, weight, bias),
        writes=(out,),
        params=Linear(rows=rows, inner=inner, columns=columns, column_tiles=tiles, **limits._asdict()),
        threads=tiles * -(-rows // tile),
        type=x.wgsl,
        tile=tile,
        biased=bias is not None,
        clamped=limits != UNLIMITED,
        width=4 if inner % 4 == 0 else 1,
    )


@op("aten.linear.default", dtypes=FLOATS)
def linear(cx: Context, input: Tensor, weight: Tensor, bias: Tensor | None, *, out: Tensor) -> None:
    if weight.rank != 2 or input.dims[-1:] != weight.dims[1:]:
        raise ShapeError(f"input {list(input.dims)} does not fit weight {list(weight.dims)}")
    columns = weight.dims[0]
    if bias is not None and bias.dims != (columns,):
        raise ShapeError(f"bias {list(bias.dims)} does not fit weight {list(weight.dims)}")
    out.dims = (*input.dims[:-1], columns)  # (..., K) x (N, K) -> (..., N)
    project(cx, input, weight, bias, out)


@linear.reference
def _(input: Any, weight: Any, bias: Any) -> Any:
    total = np.einsum("...k,nk->...n", *_wide(input, weight))
    return (total if bias is None else total + bias).astype(input.dtype)


class Matmul(Uniforms):
    rows: u32
    inner: u32
    columns: u32
    row_tiles: u32
    column_tiles: u32
    a_batch: u32  # elements from one matrix of `a` to the next; 0 where all batches share it
    c_batch: u32
    c_row: u32
    c_column: u32
    alpha: f32
    beta: f32
    lowest: f32
    highest: f32


class Addend(NamedTuple):
    """What is added to a product: beta * tensor, read with these strides over (batch, row, column)."""

    tensor: Tensor
    strides: Dims
    beta: float = 1.0


class Shape(NamedTuple):
    """(B, M, K) x (B, K, N) -> (B, M, N)."""

    batch: int
    rows: int
    inner: int
    columns: int


def product(
    cx: Context,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    shape: Shape,
    *,
    shared: bool = False,  # `a` has one matrix for all batches
    addend: Addend | None = None,
    alpha: float = 1.0,
    limits: Limits = UNLIMITED,
) -> None:
    """out = clamp(alpha * a @ b + beta * addend)."""
    tile = 1 if shape.rows == 1 else ROWS
    row_tiles, column_tiles = -(-shape.rows // tile), -(-shape.columns // 4)
    c_batch, c_row, c_column = addend.strides if addend else (0, 0, 0)
    params = Matmul(
        rows=shape.rows,
        inner=shape.inner,
        columns=shape.columns,
        row_tiles=row_tiles,
        column_tiles=column_tiles,
        a_batch=0 if shared else shape.rows * shape.inner,
        c_batch=c_batch,
        c_row=c_row,
        c_column=c_column,
        alpha=alpha,
        beta=addend.beta if addend else 0.0,
        **limits._asdict(),
    )
    flags: dict[str, Any] = {"type": a.wgsl, "tile": tile, "added": addend is not None, "clamped": limits != UNLIMITED}
    reads = (a, b, addend.tensor) if addend else (a, b)
    threads, width = shape.batch * row_tiles * column_tiles, 4 if shape.columns % 4 == 0 else 1
    cx.dispatch("matmul.wgsl", reads=reads, writes=(out,), params=params, threads=threads, width=width, **flags)


def _shape(a: Tensor, b: Tensor) -> Shape:
    *batch, rows, inner = a.dims
    *other, depth, columns = b.dims
    if batch != other or inner != depth:
        raise ShapeError(f"{list(a.dims)} cannot be multiplied by {list(b.dims)}")
    return Shape(numel(tuple(batch)), rows, inner, columns)


@op("aten.mm.default", "aten.bmm.default", dtypes=FLOATS)
def matmul(cx: Context, self: Tensor, mat2: Tensor, *, out: Tensor) -> None:
    shape = _shape(self, mat2)
    out.dims = (*self.dims[:-1], shape.columns)
    product(cx, self, mat2, out, shape)


@matmul.reference
def _(self: Any, mat2: Any) -> Any:
    return np.einsum("...mk,...kn->...mn", *_wide(self, mat2)).astype(self.dtype)


@op("aten.addmm.default", "aten.baddbmm.default", dtypes=FLOATS)
def addmm(
    cx: Context, self: Tensor, mat1: Tensor, mat2: Tensor, beta: int | float, alpha: int | float, *, out: Tensor
) -> None:
    shape = _shape(mat1, mat2)
    out.dims = (*mat1.dims[:-1], shape.columns)
    if broadcast(self.dims, out.dims) != out.dims:
        raise ShapeError(f"{list(self.dims)} cannot be added to a product of shape {list(out.dims)}")
    strides = (0, 0, 0, *broadcast_strides(self.dims, out.dims))[-3:]
    # With beta = 0 PyTorch does not look at self: its NaNs do not count.
    addend = Addend(self, strides, float(beta)) if beta != 0 else None
    product(cx, mat1, mat2, out, shape, addend=addend, alpha=float(alpha))


@addmm.reference
def _(self: Any, mat1: Any, mat2: Any, beta: float, alpha: float) -> Any:
    total = alpha * np.einsum("...mk,...kn->...mn", *_wide(mat1, mat2))
    return (total if beta == 0 else total + beta * self.astype(np.float64)).astype(mat1.dtype)


def _wide(*arrays: Any) -> tuple[Any, ...]:
    return tuple(a.astype(np.float64) for a in arrays)

"""Matrix products: linear, mm, bmm."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..graph import numel
from ..wgsl import Uniforms, u32
from .context import Context, Tensor
from .registry import FLOATS, op


class Linear(Uniforms):
    rows: u32
    inner: u32
    columns: u32
    column_tiles: u32


ROWS = 4  # output rows one invocation computes when there are several


@op("aten.linear.default", dtypes=FLOATS)
def linear(cx: Context, input: Tensor, weight: Tensor, bias: Tensor | None, *, out: Tensor) -> None:
    columns, inner = weight.dims
    if not input.dims or input.dims[-1] != inner:
        raise ShapeError(f"input {list(input.dims)} does not fit weight {list(weight.dims)}")
    out.dims = (*input.dims[:-1], columns)  # (..., K) x (N, K) -> (..., N)
    rows = numel(input.dims[:-1])
    tile = 1 if rows == 1 else ROWS
    params = Linear(rows=rows, inner=inner, columns=columns, column_tiles=-(-columns // 4))
    reads = (input, weight) if bias is None else (input, weight, bias)
    cx.dispatch(
        "linear.wgsl",
        reads=reads,
        writes=(out,),
        params=params,
        threads=params.column_tiles * -(-rows // tile),
        type=input.wgsl,
        tile=tile,
        biased=bias is not None,
        width=4 if inner % 4 == 0 else 1,
    )


@linear.reference
def _(input: Any, weight: Any, bias: Any) -> Any:
    product = input @ weight.T
    return product if bias is None else product + bias


class Matmul(Uniforms):
    rows: u32
    inner: u32
    columns: u32


@op("aten.mm.default", "aten.bmm.default", dtypes=FLOATS)
def matmul(cx: Context, self: Tensor, mat2: Tensor, *, out: Tensor) -> None:
    *batch, rows, inner = self.dims
    *other, depth, columns = mat2.dims
    if batch != other or inner != depth:
        raise ShapeError(f"{list(self.dims)} cannot be multiplied by {list(mat2.dims)}")
    out.dims = (*batch, rows, columns)  # (B, M, K) x (B, K, N) -> (B, M, N)
    params = Matmul(rows=rows, inner=inner, columns=columns)
    cx.dispatch("matmul.wgsl", reads=(self, mat2), writes=(out,), params=params, threads=out.numel, type=self.wgsl)


@matmul.reference
def _(self: Any, mat2: Any) -> Any:
    return np.matmul(self, mat2)

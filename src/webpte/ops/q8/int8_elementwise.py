"""Elementwise ops over int8 codes with the arithmetic of XNNPACK: sums in fixed point, products in f32, tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType
from ...graph.names import INT8_ADD, INT8_MULTIPLY, INT8_TABLE
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.formulas import Formula, Number
from ...lowering.registry import op
from ...lowering.shapes import broadcast, walk
from ...lowering.traits import OpTraits
from ...wgsl import Uniforms, dims8, f32, i32, u32
from .int8_convolution import CodeLimits, FixedPointSum

CODES = frozenset({DType.INT8})


class Int8SumParams(Uniforms):
    count: u32
    rank: u32
    a_factor: i32
    b_factor: i32
    bias: i32
    shift: u32
    zero: i32
    low: i32
    high: i32
    dims: dims8
    a_strides: dims8
    b_strides: dims8


class Int8ProductParams(Uniforms):
    count: u32
    rank: u32
    a_zero: i32
    b_zero: i32
    scale: f32
    zero: f32
    low: f32
    high: f32
    dims: dims8
    a_strides: dims8
    b_strides: dims8


def _dispatch(
    cx: Context, a: Tensor, b: Tensor, out: Tensor, params: type[Uniforms], product: bool, **fields: Any
) -> None:
    out.dims = broadcast(a.dims, b.dims)
    walked = walk(out, a, b)
    a_strides, b_strides = walked.layouts
    layout = {"rank": walked.rank, "dims": walked.dims, "a_strides": a_strides, "b_strides": b_strides}
    cx.dispatch(
        "q8/int8_binary.wgsl",
        reads={"a": a, "b": b},
        writes={"y": out},
        params=params(count=out.numel, **layout, **fields),
        threads=-(-out.numel // 4),
        flat=walked.flat,
        product=product,
    )


def _sum_of_codes(
    a: Tensor,
    b: Tensor,
    a_factor: int,
    b_factor: int,
    bias: int,
    shift: int,
    zero: int,
    low: int,
    high: int,
    *,
    out: Tensor,
) -> Formula:
    numbers = tuple(map(Number, (a_factor, b_factor, bias, shift, zero, low, high)))
    code = "clamp(((e + a * c + b * d) >> u32(f)) + g, h, i)"
    return Formula("int8_add", (a, b), (DType.INT8, DType.INT8), numbers, code)


@op(INT8_ADD, dtypes=CODES, traits=OpTraits(dims=dim_rules.broadcast("a", "b"), elementwise=_sum_of_codes))
def int8_add(cx: Context, a: Tensor, b: Tensor, sums: FixedPointSum, codes: CodeLimits, *, out: Tensor) -> None:
    _dispatch(cx, a, b, out, Int8SumParams, False, **vars(sums), **vars(codes))


@int8_add.reference
def _(a: Any, b: Any, sums: FixedPointSum, codes: CodeLimits) -> Any:
    return codes.numpy(sums.numpy(a, b))


@op(INT8_MULTIPLY, dtypes=CODES, traits=OpTraits(dims=dim_rules.broadcast("a", "b")))
def int8_multiply(
    cx: Context, a: Tensor, b: Tensor, a_zero: int, b_zero: int, scale: float, codes: CodeLimits, *, out: Tensor
) -> None:
    _dispatch(cx, a, b, out, Int8ProductParams, True, a_zero=a_zero, b_zero=b_zero, scale=scale, **vars(codes))


@int8_multiply.reference
def _(a: Any, b: Any, a_zero: int, b_zero: int, scale: float, codes: CodeLimits) -> Any:
    product = (a.astype(np.int64) - a_zero) * (b.astype(np.int64) - b_zero)
    return codes.numpy(np.round(product.astype(np.float32) * np.float32(scale)))


class Int8TableParams(Uniforms):
    count: u32


@op(INT8_TABLE, dtypes=CODES, traits=OpTraits(dims=dim_rules.like("x")))
def int8_table(cx: Context, x: Tensor, table: Tensor, *, out: Tensor) -> None:
    """Replace each code by its entry in a table, which starts with code 0 and ends with code -1."""
    if table.dims != (256,):
        raise ShapeError(argument="table", expected="256 codes", got=list(table.dims), code="operand_mismatch")
    out.dims = x.dims
    params = Int8TableParams(count=x.numel)
    cx.dispatch(
        "q8/int8_table.wgsl", reads={"x": x, "table": table}, writes={"y": out}, params=params, threads=-(-x.numel // 4)
    )


@int8_table.reference
def _(x: Any, table: Any) -> Any:
    return table[x.view(np.uint8)]

"""Elementwise arithmetic on two operands, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..wgsl import Uniforms, dims8, f32, i32, u32
from .context import Context, Tensor
from .registry import NUMBERS, op
from .shapes import broadcast, broadcast_strides, coalesce
from .strided import MAX_RANK


class Binary(Uniforms):
    rank: u32
    alpha: f32
    alpha_int: i32
    other: f32
    other_int: i32
    dims: dims8
    a_strides: dims8
    b_strides: dims8


def elementwise(cx: Context, name: str, a: Tensor, b: Tensor | float, out: Tensor, alpha: float = 1) -> None:
    """out = a <name> alpha * b. A number in place of `b` is a uniform."""
    tensors = (a, b) if isinstance(b, Tensor) else (a,)
    out.dims = broadcast(*(t.dims for t in tensors))
    layouts = tuple(broadcast_strides(t.dims, out.dims) for t in tensors)
    dims, merged = coalesce(out.dims, *layouts)
    if len(dims) > MAX_RANK:
        raise ShapeError(f"shape {list(out.dims)} needs {len(dims)} strided dims; at most {MAX_RANK} are supported")
    number = 0.0 if isinstance(b, Tensor) else float(b)
    params = Binary(
        rank=len(dims),
        alpha=float(alpha),
        alpha_int=int(alpha),
        other=number,
        other_int=int(number) if np.isfinite(number) else 0,
        dims=dims,
        a_strides=merged[0],
        b_strides=merged[-1],
    )
    flat = all(layout == broadcast_strides(out.dims, out.dims) for layout in layouts)
    cx.dispatch(
        "binary.wgsl",
        reads=tensors,
        writes=(out,),
        params=params,
        threads=out.numel,
        name=name,
        type=a.wgsl,
        flat=flat,
        number=not isinstance(b, Tensor),
    )


@op("aten.add.Tensor", "aten.add.Scalar", kernels=("aten::add.out",), dtypes=NUMBERS)
def add(cx: Context, self: Tensor, other: Tensor | int | float, alpha: int | float, *, out: Tensor) -> None:
    elementwise(cx, "add", self, other, out, alpha)


@add.reference
def _(self: Any, other: Any, alpha: float) -> Any:
    return self + alpha * other


@op("aten.sub.Tensor", "aten.sub.Scalar", kernels=("aten::sub.out",), dtypes=NUMBERS)
def sub(cx: Context, self: Tensor, other: Tensor | int | float, alpha: int | float, *, out: Tensor) -> None:
    elementwise(cx, "sub", self, other, out, alpha)


@sub.reference
def _(self: Any, other: Any, alpha: float) -> Any:
    return self - alpha * other


@op("aten.mul.Tensor", "aten.mul.Scalar", kernels=("aten::mul.out",), dtypes=NUMBERS)
def mul(cx: Context, self: Tensor, other: Tensor | int | float, *, out: Tensor) -> None:
    elementwise(cx, "mul", self, other, out)


@mul.reference
def _(self: Any, other: Any) -> Any:
    return self * other

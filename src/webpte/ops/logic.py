"""Comparisons, logic and selection."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..wgsl import Uniforms, dims8, f32, i32, u32
from .context import Context, Tensor
from .registry import op
from .shapes import axes_of, broadcast, broadcast_strides, reduced, strides
from .strided import word


class Compare(Uniforms):
    other: f32
    other_int: i32
    other_bits: u32  # an infinity is compared by its bits: WGSL need not have infinities


@op("aten.eq.Scalar")
def eq_scalar(cx: Context, self: Tensor, other: int | float, *, out: Tensor) -> None:
    out.dims = self.dims
    finite = math.isfinite(other)
    params = Compare(
        other=float(other) if finite else 0.0,
        other_int=int(other) if finite else 0,
        other_bits=int(np.float32(other).view(np.uint32)),
    )
    # No integer equals a fraction, an infinity or NaN; NaN equals nothing.
    never = math.isnan(other) or (self.wgsl != "f32" and (not finite or int(other) != other))
    cx.dispatch(
        "eq_scalar.wgsl",
        reads=(self,),
        writes=(out,),
        params=params,
        threads=out.numel,
        type=self.wgsl,
        how="never" if never else "value" if finite else "bits",
    )


@eq_scalar.reference
def _(self: Any, other: float) -> Any:
    return np.equal(self, other)


@op("aten.logical_not.default")
def logical_not(cx: Context, self: Tensor, *, out: Tensor) -> None:
    out.dims = self.dims
    cx.dispatch("logical_not.wgsl", reads=(self,), writes=(out,), threads=out.numel, type=self.wgsl)


@logical_not.reference
def _(self: Any) -> Any:
    return np.logical_not(self)


class Where(Uniforms):
    rank: u32
    dims: dims8
    c_strides: dims8
    a_strides: dims8
    b_strides: dims8


@op("aten.where.self")
def where(cx: Context, condition: Tensor, self: Tensor, other: Tensor, *, out: Tensor) -> None:
    out.dims = broadcast(condition.dims, self.dims, other.dims)
    params = Where(
        rank=out.rank,
        dims=out.dims,
        c_strides=broadcast_strides(condition.dims, out.dims),
        a_strides=broadcast_strides(self.dims, out.dims),
        b_strides=broadcast_strides(other.dims, out.dims),
    )
    reads = (condition, self, other)
    cx.dispatch("where.wgsl", reads=reads, writes=(out,), params=params, threads=out.numel, word=word(out))


@where.reference
def _(condition: Any, self: Any, other: Any) -> Any:
    return np.where(condition, self, other)


class AnyDim(Uniforms):
    size: u32
    inner: u32  # elements between neighbours along the reduced dim


@op("aten.any.dim", kernels=("aten::any.out",))
def any_dim(cx: Context, self: Tensor, dim: int, keepdim: bool, *, out: Tensor) -> None:
    axes = axes_of([dim], self.rank)
    out.dims = reduced(self.dims, axes, keepdim)
    (axis,) = axes
    params = AnyDim(size=self.dims[axis] if self.rank else 1, inner=strides(self.dims)[axis] if self.rank else 1)
    cx.dispatch("any_dim.wgsl", reads=(self,), writes=(out,), params=params, threads=out.numel, type=self.wgsl)


@any_dim.reference
def _(self: Any, dim: int, keepdim: bool) -> Any:
    return np.any(self, axis=dim, keepdims=keepdim)

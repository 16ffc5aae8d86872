"""Logic and selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..wgsl import Uniforms, dims8, u32
from .binary import elementwise
from .broadcasting import walk
from .context import Context, Tensor
from .numbers import promoted
from .registry import op
from .shapes import axes_of, broadcast, reduced, strides
from .strided import word


def _register(name: str, kernel: str, function: Callable[[Any, Any], Any]) -> None:
    @op(f"aten.{name}.default")
    def lower(cx: Context, self: Tensor, other: Tensor, *, out: Tensor) -> None:
        elementwise(cx, kernel, self, other, out)  # the output is bool, so the operands become truth values first

    @lower.reference
    def _(self: Any, other: Any) -> Any:
        return function(self, other)


_register("logical_and", "and", np.logical_and)
_register("logical_or", "or", np.logical_or)
_register("logical_xor", "xor", np.logical_xor)


class Where(Uniforms):
    rank: u32
    dims: dims8
    c_strides: dims8
    a_strides: dims8
    b_strides: dims8


@op("aten.where.self")
def where(cx: Context, condition: Tensor, self: Tensor, other: Tensor, *, out: Tensor) -> None:
    out.dims = broadcast(condition.dims, self.dims, other.dims)
    walked = walk(out, condition, self, other)
    c_strides, a_strides, b_strides = walked.layouts
    params = Where(rank=walked.rank, dims=walked.dims, c_strides=c_strides, a_strides=a_strides, b_strides=b_strides)
    # Equal dtypes move as bits, whatever they mean: one kernel for all, and NaN survives.
    moved = self.dtype is other.dtype is out.dtype
    cx.dispatch(
        "where.wgsl",
        reads=(condition, self, other),
        writes=(out,),
        params=params,
        threads=out.numel,
        flat=walked.flat,
        word=word(out) if moved else None,
        a=None if moved else self.dtype.short,
        b=None if moved else other.dtype.short,
        out=None if moved else out.dtype.short,
    )


@where.reference
def _(condition: Any, self: Any, other: Any) -> Any:
    return np.where(condition, self, other).astype(promoted(self, other))


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

"""Comparisons, with broadcasting. One kernel finds how a stands to b; which relations count as true is a uniform."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..wgsl import Live, LiveInt, Uniforms, dims8, u32
from .broadcasting import walk
from .context import Context, Tensor
from .numbers import INT32_HIGH, INT32_LOW, bits_of, is_float, promoted, widened
from .registry import op
from .shapes import broadcast

LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8  # the bits of compare.wgsl


class Compare(Uniforms):
    rank: u32
    accepted: u32  # the relations that make the result true
    other: Live  # the bits of a number operand
    dims: dims8
    a_strides: dims8
    b_strides: dims8


def _as_compared(self: Tensor, other: float) -> float:
    """A number as PyTorch compares it with the tensor."""
    if self.dtype.short == "f16":
        with np.errstate(over="ignore"):
            return float(np.float16(other))
    if isinstance(other, int) and not is_float(self) and not INT32_LOW <= other <= INT32_HIGH:
        return math.copysign(math.inf, other)  # beyond every value the tensor can hold
    return other


def compare(cx: Context, accepted: int, self: Tensor, other: Tensor | float, out: Tensor) -> None:
    tensors = (self, other) if isinstance(other, Tensor) else (self,)
    out.dims = broadcast(*(t.dims for t in tensors))
    number = LiveInt(0, -1)
    floating = any(map(is_float, tensors))
    if not isinstance(other, Tensor):
        other = _as_compared(self, other)
        floating = floating or isinstance(other, float)
        number = cx.live("other", bits_of(other, floating))
    walked = walk(out, *tensors)
    params = Compare(
        rank=walked.rank,
        accepted=accepted,
        other=number,
        dims=walked.dims,
        a_strides=walked.layouts[0],
        b_strides=walked.layouts[-1],
    )
    cx.dispatch(
        "compare.wgsl",
        reads=tensors,
        writes=(out,),
        params=params,
        threads=out.numel,
        type="f32" if floating else "i32",
        a=self.dtype.short,
        b=other.dtype.short if isinstance(other, Tensor) else "number",
        flat=walked.flat,
    )


def _register(name: str, accepted: int, function: Callable[[Any, Any], Any]) -> None:
    @op(f"aten.{name}.Tensor", f"aten.{name}.Scalar")
    def lower(cx: Context, self: Tensor, other: Tensor | int | float, *, out: Tensor) -> None:
        compare(cx, accepted, self, other, out)

    @lower.reference
    def _(self: Any, other: Any) -> Any:
        dtype = promoted(self, other)
        if dtype.kind == "f":  # in the common precision: f16(0.1) equals 0.1
            with np.errstate(over="ignore"):
                return function(np.asarray(self).astype(dtype), np.asarray(other).astype(dtype))
        return function(widened(self, dtype), widened(other, dtype))


_register("eq", EQUAL, np.equal)
_register("ne", LESS | GREATER | UNORDERED, np.not_equal)
_register("lt", LESS, np.less)
_register("le", LESS | EQUAL, np.less_equal)
_register("gt", GREATER, np.greater)
_register("ge", GREATER | EQUAL, np.greater_equal)

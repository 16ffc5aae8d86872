"""Comparisons, logic and selection, with broadcasting.

One formula computes the relation of a to b. Which relations count as true is a uniform.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...graph import DType
from ...graph.expressions import Term, is_integer
from ...lowering.context import Context, Tensor
from ...lowering.formulas import Formula, Number
from ...lowering.integers import elements_of
from ...lowering.numbers import HALVES, INT32_HIGH, INT32_LOW, is_float, promoted, rounded, widened
from ...lowering.registry import op
from ...lowering.shapes import axes_of, reduced, strides
from ...wgsl import Uniforms, u32
from .elementwise import elementwise

LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8  # the bits of relation.wgsl


def _as_compared(self: Tensor, other: Term) -> Term:
    """Return a number as PyTorch compares it with the tensor."""
    if self.dtype in HALVES:
        return rounded(other, self.dtype)
    if isinstance(other, int) and not is_float(self) and not INT32_LOW <= other <= INT32_HIGH:
        return math.copysign(math.inf, other)  # beyond every value the tensor can hold
    return other


def _register_comparison(name: str, accepted: int, function: Callable[[Any, Any], Any]) -> None:
    @elementwise(f"aten.{name}.Tensor", f"aten.{name}.Scalar")
    def describe(self: Tensor, other: Tensor | Term, *, out: Tensor) -> Formula:
        if isinstance(other, Tensor):
            floating = is_float(self) or is_float(other)
        else:
            other = _as_compared(self, other)
            floating = is_float(self) or not is_integer(other)
        common = DType.FLOAT32 if floating else DType.INT32
        return Formula("compare", (self, other), (common, common), (Number(accepted),))

    @describe.reference
    def _(self: Any, other: Any) -> Any:
        dtype = promoted(self, other)
        if dtype.kind == "f":  # in the common precision: f16(0.1) equals 0.1
            with np.errstate(over="ignore"):
                return function(np.asarray(self).astype(dtype), np.asarray(other).astype(dtype))
        return function(widened(self, dtype), widened(other, dtype))


_register_comparison("eq", EQUAL, np.equal)
_register_comparison("ne", LESS | GREATER | UNORDERED, np.not_equal)
_register_comparison("lt", LESS, np.less)
_register_comparison("le", LESS | EQUAL, np.less_equal)
_register_comparison("gt", GREATER, np.greater)
_register_comparison("ge", GREATER | EQUAL, np.greater_equal)


def _register(name: str, formula: str, function: Callable[[Any, Any], Any]) -> None:
    @elementwise(f"aten.{name}.default")
    def describe(self: Tensor, other: Tensor, *, out: Tensor) -> Formula:
        return Formula(formula, (self, other))  # the output is bool, so the operands become truth values first

    @describe.reference
    def _(self: Any, other: Any) -> Any:
        return function(self, other)


_register("logical_and", "and", np.logical_and)
_register("logical_or", "or", np.logical_or)
_register("logical_xor", "xor", np.logical_xor)


@elementwise("aten.where.self", numbers=("self", "other"), integers=elements_of("self", "other"))
def where(condition: Tensor, self: Tensor, other: Tensor, *, out: Tensor) -> Formula:
    return Formula("where", (condition, self, other), (DType.BOOL, out.dtype, out.dtype))


@where.reference
def _(condition: Any, self: Any, other: Any) -> Any:
    return np.where(condition, self, other).astype(promoted(self, other))


class AnyDimParams(Uniforms):
    size: u32
    inner: u32  # elements between neighbors along the reduced dim


@op("aten.any.dim", kernels=("aten::any.out",))
def any_dim(cx: Context, self: Tensor, dim: int, keepdim: bool, *, out: Tensor) -> None:
    axes = axes_of([dim], self.rank)
    out.dims = reduced(self.dims, axes, keepdim)
    (axis,) = axes
    params = AnyDimParams(size=self.dims[axis] if self.rank else 1, inner=strides(self.dims)[axis] if self.rank else 1)
    cx.dispatch(
        "elementwise/any_dim.wgsl",
        reads={"x": self},
        writes={"y": out},
        params=params,
        threads=out.numel,
        type=self.wgsl,
    )


@any_dim.reference
def _(self: Any, dim: int, keepdim: bool) -> Any:
    return np.any(self, axis=dim, keepdims=keepdim)

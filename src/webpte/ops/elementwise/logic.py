"""Logic and selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...graph import DType
from ...lowering.context import Context, Tensor
from ...lowering.formulas import Formula
from ...lowering.integers import elements_of
from ...lowering.numbers import promoted
from ...lowering.registry import op
from ...lowering.shapes import axes_of, reduced, strides
from ...wgsl import Uniforms, u32
from .elementwise import elementwise


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
    inner: u32  # elements between neighbours along the reduced dim


@op("aten.any.dim", kernels=("aten::any.out",))
def any_dim(cx: Context, self: Tensor, dim: int, keepdim: bool, *, out: Tensor) -> None:
    axes = axes_of([dim], self.rank)
    out.dims = reduced(self.dims, axes, keepdim)
    (axis,) = axes
    params = AnyDimParams(size=self.dims[axis] if self.rank else 1, inner=strides(self.dims)[axis] if self.rank else 1)
    cx.dispatch(
        "elementwise/any_dim.wgsl", reads=(self,), writes=(out,), params=params, threads=out.numel, type=self.wgsl
    )


@any_dim.reference
def _(self: Any, dim: int, keepdim: bool) -> Any:
    return np.any(self, axis=dim, keepdims=keepdim)

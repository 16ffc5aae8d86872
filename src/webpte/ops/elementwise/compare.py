"""Comparisons, with broadcasting. One formula finds how a stands to b; which relations count as true is a uniform."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...graph import DType
from ...graph.expressions import Term, is_whole
from ...lowering.context import Tensor
from ...lowering.formulas import Formula, Number
from ...lowering.numbers import HALVES, INT32_HIGH, INT32_LOW, is_float, promoted, rounded, widened
from .elementwise import elementwise

LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8  # the bits of relation.wgsl


def _as_compared(self: Tensor, other: Term) -> Term:
    """A number as PyTorch compares it with the tensor."""
    if self.dtype in HALVES:
        return rounded(other, self.dtype)
    if isinstance(other, int) and not is_float(self) and not INT32_LOW <= other <= INT32_HIGH:
        return math.copysign(math.inf, other)  # beyond every value the tensor can hold
    return other


def _register(name: str, accepted: int, function: Callable[[Any, Any], Any]) -> None:
    @elementwise(f"aten.{name}.Tensor", f"aten.{name}.Scalar")
    def describe(self: Tensor, other: Tensor | Term, *, out: Tensor) -> Formula:
        if isinstance(other, Tensor):
            floating = is_float(self) or is_float(other)
        else:
            other = _as_compared(self, other)
            floating = is_float(self) or not is_whole(other)
        common = DType.FLOAT32 if floating else DType.INT32
        return Formula("compare", (self, other), (common, common), (Number(accepted),))

    @describe.reference
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

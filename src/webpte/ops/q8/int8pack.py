"""Linear layers with int8 weights and a scale per output channel; inputs stay floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.traits import OpTraits, sums_over
from ..q4.linear_q4_kernels import project_q4
from ..q4.linear_q4_operands import LinearQ4Operands, PackedWeight
from ..weight_formats import format_named


@op(
    "aten._weight_int8pack_mm.default",
    dtypes=FLOATS | {DType.INT8},
    traits=OpTraits(work=sums_over("self"), dims=dim_rules.linear("self", "mat2")),
)
def weight_int8pack_mm(cx: Context, self: Tensor, mat2: Tensor, scales: Tensor, *, out: Tensor) -> None:
    if mat2.rank != 2 or self.dims[-1:] != mat2.dims[1:] or scales.rank != 1 or scales.numel < mat2.dims[0]:
        raise ShapeError(
            f"input {list(self.dims)} and scales {list(scales.dims)} do not fit weight {list(mat2.dims)}",
            code="operand_mismatch",
        )
    columns, inner = mat2.dims
    out.dims = (*self.dims[:-1], columns)  # (..., K) x (N, K) -> (..., N)
    project_q4(cx, LinearQ4Operands(self, (PackedWeight(mat2, scales, inner, format_named("int8")),), (out,)))


@weight_int8pack_mm.reference
def _(self: Any, mat2: Any, scales: Any) -> Any:
    products = np.einsum("...k,nk->...n", self.astype(np.float64), mat2.astype(np.float64))
    return (products * scales[: len(mat2)]).astype(self.dtype)

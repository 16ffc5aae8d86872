"""Linear layers with 4-bit weights as ExecuTorch 0.7 has them: a scale and a zero for each group.

A weight is (code - 8) * scale + zero, where the zero is a number and not a code. Of the two codes in a byte that of the
even column is the high one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.registry import BYTES, FLOATS, Unused, op
from ...lowering.traits import OpTraits, sums_over
from ...wgsl import Uniforms, u32
from ..weight_formats import format_named

WORD = 8  # codes


class LinearWeightInt4Params(Uniforms):
    inner: u32  # columns of the input
    columns: u32  # of the result
    part: u32  # columns of the part of the weight that is bound
    first: u32  # where that part begins
    group: u32  # words that share a scale and a zero


@op(
    "et_vk.linear_weight_int4.default",
    dtypes=FLOATS | BYTES,
    traits=OpTraits(work=sums_over("self"), dims=dim_rules.linear("self", "mat2")),
)
def linear_weight_int4(
    cx: Context,
    self: Tensor,
    mat2: Tensor,
    group_size: int,
    scales_and_zeros: Tensor,
    inner_k_tiles: Unused,  # how CUDA lays weights out; these are not
    *,
    out: Tensor,
) -> None:
    inner = self.dims[-1] if self.dims else 0
    columns, row_bytes = mat2.dims if mat2.rank == 2 else (0, 0)
    groups = inner // group_size if group_size > 0 and inner % group_size == 0 else 0
    fits = 2 * row_bytes == inner and scales_and_zeros.dims == (groups, columns, 2)
    if not fits or not groups or group_size % WORD:
        raise ShapeError(
            f"{mat2!r} and {scales_and_zeros!r} in groups of {group_size} do not fit an input of {list(self.dims)}",
            code="operand_mismatch",
        )
    out.dims = (*self.dims[:-1], columns)
    rows = out.numel // columns if columns else 0
    for first, count, part in cx.parts(mat2, row_bytes, columns):
        cx.dispatch(
            "q4/linear_weight_int4.wgsl",
            reads={"x": self, "weight": part, "scales_and_zeros": scales_and_zeros},
            writes={"y": out},
            params=LinearWeightInt4Params(
                inner=inner, columns=columns, part=count, first=first, group=group_size // WORD
            ),
            threads=rows * count,
            type=self.wgsl,
            scale_type=scales_and_zeros.wgsl,
            result=out.wgsl,
        )


@linear_weight_int4.reference
def _(self: Any, mat2: Any, group: int, scales_and_zeros: Any, inner_k_tiles: object) -> Any:
    scales, zeros = np.repeat(scales_and_zeros.astype(np.float64), group, axis=0).transpose(2, 1, 0)  # (N, K) each
    weight = format_named("int4_high_first").numbers(mat2) * scales + zeros
    return np.einsum("...k,nk->...n", self.astype(np.float64), weight).astype(self.dtype)

"""Linear layers with int8 weights and a scale per output channel; inputs stay floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType, numel
from ...lowering.context import Context, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.work import sums_over
from ...wgsl import Uniforms, u32
from ..matmul.product import tile_rows

COLUMNS = 4  # of an invocation
HANDED = 8  # invocations that hand what they read to each other, at most


class Int8Pack(Uniforms):
    rows: u32
    columns: u32  # of the part of the weight that is bound
    first: u32  # where that part begins
    out_columns: u32
    column_groups: u32  # workgroups side by side
    inner: u32


@op("aten._weight_int8pack_mm.default", dtypes=FLOATS | {DType.INT8}, work=sums_over("self"))
def weight_int8pack_mm(cx: Context, self: Tensor, mat2: Tensor, scales: Tensor, *, out: Tensor) -> None:
    if mat2.rank != 2 or self.dims[-1:] != mat2.dims[1:] or scales.numel < mat2.dims[0]:
        raise ShapeError(f"input {list(self.dims)} and scales {list(scales.dims)} do not fit weight {list(mat2.dims)}")
    columns, inner = mat2.dims
    out.dims = (*self.dims[:-1], columns)  # (..., K) x (N, K) -> (..., N)
    rows = numel(self.dims[:-1])
    workgroup = cx.caps.workgroup(HANDED if cx.caps.kind == "cpu" else 32)
    lanes = min(cx.caps.subgroup, HANDED) if cx.caps.kind == "cpu" else 0
    tile = tile_rows(rows, 16 if lanes else 4)
    for first, count, part in cx.parts(mat2, inner, columns):
        across = -(-count // (COLUMNS * workgroup))
        cx.dispatch(
            "q8/int8pack.wgsl",
            reads=(self, part, scales),
            writes=(out,),
            params=Int8Pack(
                rows=rows, columns=count, first=first, out_columns=columns, column_groups=across, inner=inner
            ),
            threads=across * -(-rows // tile) * workgroup,
            workgroup=workgroup,
            type=self.wgsl,
            scale_type=scales.wgsl,
            out_type=out.wgsl,
            tile=tile,
            lanes=lanes,
            width=4 if inner % 4 == 0 else 1,
        )


@weight_int8pack_mm.reference
def _(self: Any, mat2: Any, scales: Any) -> Any:
    products = np.einsum("...k,nk->...n", self.astype(np.float64), mat2.astype(np.float64))
    return (products * scales[: len(mat2)]).astype(self.dtype)

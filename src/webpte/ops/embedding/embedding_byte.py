"""Rows of a table of 8-bit weights, or of 2-bit ones, four codes to a byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import DType
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor, load_type
from ...lowering.registry import BYTES, FLOATS, Unused, op
from ...lowering.traits import OpTraits, rows_of
from ...wgsl import Uniforms, u32
from ..create.fill import numpy_dtype

TABLES = FLOATS | BYTES | {DType.INT32}


class EmbeddingByteParams(Uniforms):
    size: u32  # rows of the table
    first: u32  # where the part of it that is bound begins
    rows: u32  # and how many rows it has
    width: u32
    row_groups: u32
    group: u32


def look_up(
    cx: Context, table: Tensor, scales: Tensor, zeros: Tensor | None, indices: Tensor, out: Tensor, byte_codes: int
) -> None:
    """(V, E), (...,) -> (..., E): (code - zero) * scale. Each row has a scale and a zero, or each group of columns."""
    if indices.dtype is not DType.INT32 or table.dtype not in BYTES:
        raise GraphError(
            f"embedding: expected an 8-bit table and i32 indices, got {table!r} and {indices!r}", code="dtype"
        )
    size, row_bytes = table.dims if table.rank == 2 else (0, 0)
    width, row_groups = row_bytes * byte_codes, scales.dims[1] if scales.rank == 2 else 1
    fits = size > 0 and row_groups > 0 and width % row_groups == 0
    if not fits or any(t.numel != size * row_groups for t in (scales, zeros) if t is not None):
        raise ShapeError(
            f"scales {scales!r} and zero points {zeros!r} do not fit the table {table!r}", code="operand_mismatch"
        )
    out.dims = (*indices.dims, width)
    group = width // row_groups
    wide = 4 if group % 4 == 0 else 1
    # One dispatch for each part of the table that the device can bind; each looks at every index.
    for first, rows, part in cx.parts(table, row_bytes, size):
        cx.dispatch(
            "embedding/embedding_byte.wgsl",
            reads=(part, scales, indices) if zeros is None else (part, scales, indices, zeros),
            writes=(out,),
            params=EmbeddingByteParams(
                size=size, first=first, rows=rows, width=width, row_groups=row_groups, group=group
            ),
            threads=out.numel // wide,
            codes="2 bits" if byte_codes == 4 else table.dtype.short,
            type=load_type(out, wide),
            scale_type=scales.wgsl,
            zero_type=zeros.dtype.short if zeros is not None else "",
        )


def _numpy_rows(codes: Any, scales: Any, zeros: Any, indices: Any, dtype: int | None) -> Any:
    scale = scales.reshape(len(codes), -1, 1).astype(np.float64)[indices]  # (..., groups, 1)
    zero = 0 if zeros is None else zeros.reshape(len(codes), -1, 1).astype(np.float64)[indices]
    chosen = codes[indices]
    values = chosen.reshape(*chosen.shape[:-1], scale.shape[-2], -1).astype(np.float64)  # (..., groups, group)
    return ((values - zero) * scale).reshape(chosen.shape).astype(numpy_dtype(dtype, scales.dtype))


def _unpacked(codes: Any) -> Any:
    """Four codes of a byte, the lowest bits first, from -2 to 1."""
    shifted = codes.view(np.uint8)[..., None] >> np.arange(0, 8, 2, dtype=np.uint8)  # (V, E / 4, 4)
    return (shifted & 3).reshape(len(codes), -1).astype(np.int8) - 2


def _register(name: str, byte_codes: int, codes: Callable[[Any], Any]) -> None:
    """Register a table with `byte_codes` codes to a byte. `codes` unpacks them for the reference."""

    @op(
        f"quantized_decomposed.{name}.default",
        f"quantized_decomposed.{name}.dtype",
        kernels=(f"quantized_decomposed::{name}.out", f"quantized_decomposed::{name}.dtype_out"),
        dtypes=TABLES,
        traits=OpTraits(
            memory_traffic=rows_of("weight", "weight_scales", "weight_zero_points"),
            dims=dim_rules.looked_up("weight", "indices"),
        ),
    )
    def lower(
        cx: Context,
        weight: Tensor,
        weight_scales: Tensor,
        weight_zero_points: Tensor | None,
        weight_quant_min: Unused,
        weight_quant_max: Unused,
        indices: Tensor,
        dtype: Unused = None,  # type: ignore[assignment]  # of the overload `dtype` only
        *,
        out: Tensor,
    ) -> None:
        look_up(cx, weight, weight_scales, weight_zero_points, indices, out, byte_codes)

    @lower.reference
    def _(weight: Any, scales: Any, zeros: Any, low: object, high: object, indices: Any, dtype: int | None) -> Any:
        return _numpy_rows(codes(weight), scales, zeros, indices, dtype)


_register("embedding_byte", 1, np.asarray)
_register("embedding_2bit", 4, _unpacked)

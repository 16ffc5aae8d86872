"""Rows of a table: of floats, or of codes of 8, 4 or 2 bits with a scale and a zero point for groups of columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import DType
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor, load_type
from ...lowering.registry import BYTES, FLOATS, Unused, op
from ...lowering.traits import Indexing, OpTraits, rows_of
from ...wgsl import Uniforms, u32
from ..create.fill import numpy_dtype
from ..indexing.indexing import take_along
from ..weight_formats import CodeFormat, format_named, scale_type

ROWS = Indexing(index="indices", tensor="weight")


@op(
    "aten.embedding.default",
    traits=OpTraits(memory_traffic=rows_of("weight"), dims=dim_rules.looked_up("weight", "indices"), indexing=ROWS),
)
def embedding(
    cx: Context,
    weight: Tensor,
    indices: Tensor,
    padding_idx: Unused,
    scale_grad_by_freq: Unused,
    sparse: Unused,
    *,
    out: Tensor,
) -> None:
    if weight.rank != 2:
        raise ShapeError(argument="weight", expected="a matrix", got=list(weight.dims), code="rank")
    take_along(cx, weight, 0, indices, out)  # (V, E), (...,) -> (..., E)


@embedding.reference
def _(weight: Any, indices: Any, *unused: object) -> Any:
    return weight[indices]


# -- codes of 8 bits, or of 2, four to a byte --------------------------------------------------------------------------


TABLES = FLOATS | BYTES | {DType.INT32}


class EmbeddingByteParams(Uniforms):
    size: u32  # rows of the table
    first: u32  # where the part of it that is bound begins
    rows: u32  # rows of that part
    width: u32
    row_groups: u32
    group: u32


def look_up_bytes(
    cx: Context, table: Tensor, scales: Tensor, zeros: Tensor | None, indices: Tensor, out: Tensor, byte_codes: int
) -> None:
    """Look up (V, E), (...,) -> (..., E): (code - zero) * scale. Rows or groups of columns have a scale and a zero."""
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
    # One dispatch for each part of the table that the device can bind. Each reads every index.
    for first, rows, part in cx.parts(table, row_bytes, size):
        cx.dispatch(
            "embedding/embedding_byte.wgsl",
            reads={"table": part, "scales": scales, "indices": indices, "zeros": zeros},
            writes={"y": out},
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
    """Return the four codes of each byte, the lowest bits first, from -2 to 1."""
    shifted = codes.view(np.uint8)[..., None] >> np.arange(0, 8, 2, dtype=np.uint8)  # (V, E / 4, 4)
    return (shifted & 3).reshape(len(codes), -1).astype(np.int8) - 2


def _register_bytes(name: str, byte_codes: int, codes: Callable[[Any], Any]) -> None:
    """Register a table with `byte_codes` codes to a byte. `codes` unpacks them for the reference."""

    @op(
        f"quantized_decomposed.{name}.default",
        f"quantized_decomposed.{name}.dtype",
        kernels=(f"quantized_decomposed::{name}.out", f"quantized_decomposed::{name}.dtype_out"),
        dtypes=TABLES,
        traits=OpTraits(
            memory_traffic=rows_of("weight", "weight_scales", "weight_zero_points"),
            dims=dim_rules.looked_up("weight", "indices"),
            indexing=ROWS,
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
        look_up_bytes(
            cx, weight, scales=weight_scales, zeros=weight_zero_points, indices=indices, out=out, byte_codes=byte_codes
        )

    @lower.reference
    def _(weight: Any, scales: Any, zeros: Any, low: object, high: object, indices: Any, dtype: int | None) -> Any:
        return _numpy_rows(codes(weight), scales, zeros, indices, dtype)


_register_bytes("embedding_byte", 1, np.asarray)
_register_bytes("embedding_2bit", 4, _unpacked)


# -- codes of 4 bits, two to a byte ------------------------------------------------------------------------------------


class EmbeddingQ4Params(Uniforms):
    size: u32  # rows of the table
    first: u32  # where the part of it that is bound begins
    rows: u32  # rows of that part
    row_steps: u32  # invocations per row
    row_groups: u32
    group: u32


def look_up_q4(
    cx: Context,
    codes: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    group: int,
    indices: Tensor,
    out: Tensor,
    code_format: CodeFormat,
) -> None:
    """Look up (V, E / 2), (...,) -> (..., E): (number - zero) * scale, with both for every `group` columns."""
    row_groups = _groups_of(codes, scales, zeros, group)
    if indices.dtype is not DType.INT32:
        raise GraphError(argument="indices", expected="i32", got=repr(indices), code="dtype")
    size, row_bytes = codes.dims
    out.dims = (*indices.dims, row_bytes * 2)
    words = row_bytes % 4 == 0 and group % 8 == 0  # no word has codes of two rows or groups
    row_steps = row_bytes // 4 if words else row_bytes
    # One dispatch for each part of the table that the device can bind. Each reads every index.
    for first, rows, part in cx.parts(codes, row_bytes, size):
        cx.dispatch(
            "embedding/embedding_q4.wgsl",
            reads={"table": part, "scales": scales, "indices": indices, "zeros": zeros},
            writes={"y": out},
            params=EmbeddingQ4Params(
                size=size, first=first, rows=rows, row_steps=row_steps, row_groups=row_groups, group=group
            ),
            threads=indices.numel * row_steps,
            words=words,
            loader=code_format.loader,
            type=load_type(out, 4 if words else 1),
            scale_type=scale_type(scales),
            zero_type=zeros.dtype.short if zeros is not None else "",
        )


def _groups_of(codes: Tensor, scales: Tensor, zeros: Tensor | None, group: int) -> int:
    """Return the number of groups of a row, or raise ShapeError if the operands do not fit."""
    size, row_bytes = codes.dims if codes.rank == 2 else (0, 0)
    row_groups = row_bytes * 2 // max(group, 1)
    fits = all(t.numel == size * row_groups for t in (scales, zeros) if t is not None)
    if not size or row_groups * group != row_bytes * 2 or not fits:
        raise ShapeError(
            f"scales {scales!r} and zero points {zeros!r} in groups of {group} do not fit the table {codes!r}",
            code="operand_mismatch",
        )
    return row_groups


@op(
    "et_vk.embedding_q4gsw.default",
    dtypes=TABLES,
    traits=OpTraits(
        memory_traffic=rows_of("weight", "weight_scales"),
        dims=dim_rules.looked_up("weight", "indices"),
        indexing=ROWS,
    ),
)
def embedding_q4gsw(
    cx: Context,
    weight: Tensor,
    weight_scales: Tensor,
    group_size: int,
    indices: Tensor,
    is_linear_weight: bool,
    *,
    out: Tensor,
) -> None:
    look_up_q4(
        cx,
        weight,
        scales=weight_scales,
        zeros=None,
        group=group_size,
        indices=indices,
        out=out,
        code_format=_table_format(is_linear_weight),
    )


@embedding_q4gsw.reference
def _(weight: Any, weight_scales: Any, group_size: int, indices: Any, is_linear_weight: bool) -> Any:
    scales = weight_scales.reshape(len(weight), -1)
    return _table_format(is_linear_weight).numpy_rows(weight, scales)[indices].astype(weight_scales.dtype)


def _table_format(is_linear_weight: bool) -> CodeFormat:
    return format_named("int4" if is_linear_weight else "int4_high_first")


@op(
    "quantized_decomposed.embedding_4bit.default",
    "quantized_decomposed.embedding_4bit.dtype",
    kernels=("quantized_decomposed::embedding_4bit.out", "quantized_decomposed::embedding_4bit.dtype_out"),
    dtypes=TABLES,
    traits=OpTraits(
        memory_traffic=rows_of("weight", "weight_scales", "weight_zero_points"),
        dims=dim_rules.looked_up("weight", "indices"),
        indexing=ROWS,
    ),
)
def embedding_4bit(
    cx: Context,
    weight: Tensor,
    weight_scales: Tensor,
    weight_zero_points: Tensor | None,
    weight_quant_min: int,
    weight_quant_max: int,
    indices: Tensor,
    dtype: Unused = None,  # type: ignore[assignment]  # of the overload `dtype` only
    *,
    out: Tensor,
) -> None:
    """Look up rows whose codes have the even column in the high half. The number of scales gives the group size."""
    if (weight_quant_min, weight_quant_max) != (-8, 7):
        raise GraphError(
            argument="weight_quant_min, weight_quant_max",
            expected="-8 to 7",
            got=f"{weight_quant_min} to {weight_quant_max}",
            code="code_range",
        )
    group = weight.dims[-1] * 2 // max(weight_scales.numel // weight.dims[0], 1)
    look_up_q4(
        cx,
        weight,
        scales=weight_scales,
        zeros=weight_zero_points,
        group=group,
        indices=indices,
        out=out,
        code_format=_table_format(is_linear_weight=False),
    )


@embedding_4bit.reference
def _(weight: Any, scales: Any, zeros: Any, low: int, high: int, indices: Any, dtype: int | None) -> Any:
    factors, added = (0.0 if each is None else each.reshape(len(weight), -1) for each in (scales, zeros))
    table = _table_format(is_linear_weight=False).numpy_rows(weight, factors, added)
    return table[indices].astype(numpy_dtype(dtype, scales.dtype))

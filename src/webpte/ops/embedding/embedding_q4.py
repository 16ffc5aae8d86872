"""Rows of a table of 4-bit weights, two codes to a byte."""

from __future__ import annotations

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


class EmbeddingQ4Params(Uniforms):
    size: u32  # rows of the table
    first: u32  # where the part of it that is bound begins
    rows: u32  # and how many rows it has
    row_steps: u32  # invocations per row
    row_groups: u32
    group: u32


def look_up(
    cx: Context,
    codes: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    group: int,
    indices: Tensor,
    out: Tensor,
    high_first: bool,
) -> None:
    """(V, E / 2), (...,) -> (..., E): (code - 8 - zero) * scale, with a scale and a zero for every `group` columns."""
    row_groups = _groups_of(codes, scales, zeros, group)
    if indices.dtype is not DType.INT32:
        raise GraphError(argument="indices", expected="i32", got=repr(indices), code="dtype")
    size, row_bytes = codes.dims
    out.dims = (*indices.dims, row_bytes * 2)
    words = row_bytes % 4 == 0 and group % 8 == 0  # no word has codes of two rows or groups
    row_steps = row_bytes // 4 if words else row_bytes
    # One dispatch for each part of the table that the device can bind; each looks at every index.
    for first, rows, part in cx.parts(codes, row_bytes, size):
        cx.dispatch(
            "embedding/embedding_q4.wgsl",
            reads=(part, scales, indices) if zeros is None else (part, scales, indices, zeros),
            writes=(out,),
            params=EmbeddingQ4Params(
                size=size, first=first, rows=rows, row_steps=row_steps, row_groups=row_groups, group=group
            ),
            threads=indices.numel * row_steps,
            words=words,
            high_first=high_first,
            type=load_type(out, 4 if words else 1),
            scale_type=scales.wgsl,
            zero_type=zeros.dtype.short if zeros is not None else "",
        )


def _groups_of(codes: Tensor, scales: Tensor, zeros: Tensor | None, group: int) -> int:
    """How many groups a row has."""
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
    traits=OpTraits(memory_traffic=rows_of("weight", "weight_scales"), dims=dim_rules.looked_up("weight", "indices")),
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
    look_up(cx, weight, weight_scales, None, group_size, indices, out, high_first=not is_linear_weight)


@embedding_q4gsw.reference
def _(weight: Any, weight_scales: Any, group_size: int, indices: Any, is_linear_weight: bool) -> Any:
    table = _numpy_table(weight, weight_scales, None, high_first=not is_linear_weight)
    return table[indices].astype(weight_scales.dtype)


@op(
    "quantized_decomposed.embedding_4bit.default",
    "quantized_decomposed.embedding_4bit.dtype",
    kernels=("quantized_decomposed::embedding_4bit.out", "quantized_decomposed::embedding_4bit.dtype_out"),
    dtypes=TABLES,
    traits=OpTraits(memory_traffic=rows_of("weight", "weight_scales", "weight_zero_points")),
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
    look_up(cx, weight, weight_scales, weight_zero_points, group, indices, out, high_first=True)


@embedding_4bit.reference
def _(weight: Any, scales: Any, zeros: Any, low: int, high: int, indices: Any, dtype: int | None) -> Any:
    table = _numpy_table(weight, scales, zeros, high_first=True)
    return table[indices].astype(numpy_dtype(dtype, scales.dtype))


def _numpy_table(codes: Any, scales: Any, zeros: Any, high_first: bool) -> Any:
    """The table (V, E) in float64."""
    unsigned = codes.view(np.uint8)
    halves = (unsigned >> 4, unsigned & 15) if high_first else (unsigned & 15, unsigned >> 4)
    values = np.stack(halves, axis=-1).reshape(*scales.reshape(len(codes), -1).shape, -1) - 8.0  # (V, groups, group)
    zero = 0 if zeros is None else zeros.reshape(len(codes), -1, 1)
    return ((values - zero) * scales.reshape(len(codes), -1, 1).astype(np.float64)).reshape(len(codes), -1)

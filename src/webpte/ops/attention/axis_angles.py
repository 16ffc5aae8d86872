"""Rotary tables of the rows of a batch, whose positions have several axes (M-RoPE)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType
from ...lowering.context import Context, LiveScalar, Tensor
from ...lowering.registry import op
from ...lowering.traits import OpTraits
from ...wgsl import Live, Uniforms, u32

AXES = 3  # time, row and column of a patch; equal for text


class AxisAnglesParams(Uniforms):
    start: Live
    width: u32
    positions: u32
    others: u32  # rows of the table after the positions
    table_rows: u32
    out_rows: u32
    row_columns: u32  # columns below it take the second axis at every third place,
    patch_columns: u32  # and below this the third


@op("webpte.axis_angles", dtypes=frozenset({DType.FLOAT32, DType.INT32}), traits=OpTraits(sequences=True))
def axis_angles(
    cx: Context,
    table: Tensor,
    axis_positions: Tensor,
    advance: LiveScalar,
    positions: int,
    second: int,
    third: int,
    *,
    out: Tensor,
) -> None:
    """Gather the cosines and sines of each row of a batch, (2, N + R, W), from a table (2, P + N, W).

    The first N rows of the result are the last of the table, which have other numbers. Row r of the batch is at the
    three positions axis_positions[r] + advance. Column i takes the angle of axis i % 3 if i // 3 is below `second` or
    `third`, and of axis 0 otherwise.
    """
    others = table.dims[1] - positions
    rows = axis_positions.dims[0]
    if table.rank != 3 or table.dims[0] != 2 or others < 0 or axis_positions.dims != (rows, AXES):
        raise ShapeError(
            argument="axis_positions",
            expected=f"(R, {AXES}) for a table (2, {positions} or more, W)",
            got=f"{list(axis_positions.dims)} for {list(table.dims)}",
            code="operand_mismatch",
        )
    width = table.dims[2]
    out.dims = (2, others + rows, width)
    cx.dispatch(
        "attention/axis_angles.wgsl",
        reads={"table": table, "axis_positions": axis_positions},
        writes={"y": out},
        params=AxisAnglesParams(
            start=advance.dynamic,
            width=width,
            positions=positions,
            others=others,
            table_rows=table.dims[1],
            out_rows=others + rows,
            row_columns=AXES * second,
            patch_columns=AXES * third,
        ),
        threads=out.numel,
    )


@axis_angles.reference
def _(table: Any, axis_positions: Any, advance: int, positions: int, second: int, third: int) -> Any:
    columns = np.arange(table.shape[2])
    axis = columns % AXES
    axis[(columns // AXES >= np.array([0, second, third])[axis])] = 0
    places = np.clip(axis_positions + advance, 0, positions - 1)[:, axis]  # (R, W)
    return np.concatenate([table[:, positions:], table[:, places, columns]], axis=1)

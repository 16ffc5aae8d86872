"""Low-rank products of adapters, which are added to the results of linear layers: y + B (A x).

Each row has the number of its adapter, and 0 means none. A kernel returns at once for such a row, and sums every other
row in one order, whatever the adapters of its neighbors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType, numel
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor, load_type
from ...lowering.registry import FLOATS, op
from ...lowering.traits import CallSizes, Dims, OpTraits, sums_over
from ...wgsl import Uniforms, u32
from ..reduce.reduce import lanes_per_any_row, with_subgroups, workgroup_for


def _one_each(sizes: CallSizes, dims: Dims, written: bool) -> float:
    """Return the share of stacked matrices that is read if all rows have one adapter."""
    return 1 / max(1, dims[0])


class AdapterDownParams(Uniforms):
    steps: u32  # loads per row of x
    lanes: u32
    rank: u32


@op(
    "webpte.adapter_down",
    dtypes=FLOATS | {DType.INT32},
    traits=OpTraits(
        work=sums_over("x"),
        memory_traffic={"a": _one_each},
    ),
)
def adapter_down(cx: Context, x: Tensor, a: Tensor, adapters: Tensor, *, out: Tensor) -> None:
    """Multiply rows x (..., K) by the matrices (K, R) of their adapters in a (N, K, R). The result is (rows, R)."""
    rows, columns = numel(x.dims[:-1]), x.dims[-1]
    if a.rank != 3 or a.dims[1] != columns or a.dims[2] % 4 or adapters.dims != (rows,):
        raise ShapeError(
            f"rows {x!r} of the adapters {adapters!r} do not fit the matrices {a!r}", code="operand_mismatch"
        )
    rank = a.dims[2]
    out.dims = (rows, rank)
    lanes = lanes_per_any_row(cx, "adapter", columns)
    wide = 4 if columns % 4 == 0 else 1
    cx.dispatch(
        "adapters/adapter_down.wgsl",
        reads={"x": x, "a": a, "adapters": adapters},
        writes={"y": out},
        params=AdapterDownParams(steps=columns // wide, lanes=lanes, rank=rank // 4),
        threads=rows * rank // 4 * lanes,
        workgroup=workgroup_for(lanes),
        type=load_type(x, wide),
        matrix_type=load_type(a, 4),
        out_type=load_type(out, 4),
        lanes=lanes,
        subgroups=with_subgroups(cx, lanes),
        wide=wide,
    )


@adapter_down.reference
def _(x: Any, a: Any, adapters: Any) -> Any:
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
    return (_of_rows(a, adapters, lambda matrices: np.einsum("mk,mkr->mr", rows, matrices))).astype(x.dtype)


class AdapterUpParams(Uniforms):
    steps: u32  # loads per row of the result
    rank: u32
    width: u32  # of a row of `down`
    first: u32


@op(
    "webpte.adapter_up",
    dtypes=FLOATS | {DType.INT32},
    traits=OpTraits(
        work=lambda sizes: 2 * numel(sizes.out) * sizes.dims("b")[1],
        memory_traffic={"b": _one_each},
        dims=dim_rules.like("x"),
    ),
)
def adapter_up(cx: Context, x: Tensor, down: Tensor, b: Tensor, adapters: Tensor, first: int, *, out: Tensor) -> None:
    """Add to rows x (..., K) the products of down (rows, W) and the matrices (R, K) of their adapters in b (N, R, K).

    `first` is where the R elements of a row begin in `down`.
    """
    rows, columns = numel(x.dims[:-1]), x.dims[-1]
    fits = b.rank == 3 and b.dims[2] == columns and down.rank == 2 and 0 <= first <= down.dims[1] - b.dims[1]
    if not fits or adapters.dims != (rows,) or down.dims[0] != rows:
        raise ShapeError(
            f"rows {x!r} and {down!r} of the adapters {adapters!r} do not fit the matrices {b!r} from {first}",
            code="operand_mismatch",
        )
    out.dims = x.dims
    wide = 4 if columns % 4 == 0 else 1
    cx.dispatch(
        "adapters/adapter_up.wgsl",
        reads={"x": x, "down": down, "b": b, "adapters": adapters},
        writes={"y": out},
        params=AdapterUpParams(steps=columns // wide, rank=b.dims[1], width=down.dims[1], first=first),
        threads=x.numel // wide,
        type=load_type(x, wide),
        down_type=load_type(down, 1),
        matrix_type=load_type(b, wide),
    )


@adapter_up.reference
def _(x: Any, down: Any, b: Any, adapters: Any, first: int) -> Any:
    parts = down[:, first : first + b.shape[1]].astype(np.float64)
    added = _of_rows(b, adapters, lambda matrices: np.einsum("mr,mrk->mk", parts, matrices))
    return (x.reshape(added.shape) + added).reshape(x.shape).astype(x.dtype)


def _of_rows(stacked: Any, adapters: Any, product: Any) -> Any:
    """Return the products of rows with the matrices of their adapters, 0 for rows without one."""
    matrices = stacked[np.clip(adapters - 1, 0, len(stacked) - 1)].astype(np.float64)
    return np.where((adapters > 0)[:, None], product(matrices), 0)

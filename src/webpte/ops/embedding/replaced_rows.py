"""Rows of embeddings that an encoder has computed, in place of those of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.traits import OpTraits, rows_of
from ...wgsl import Uniforms, u32
from ..layout.strided import word


class ReplacedRowsParams(Uniforms):
    width: u32
    rows: u32  # of the pool


@op(
    "webpte.replaced_rows",
    dtypes=FLOATS | {DType.INT32},
    traits=OpTraits(memory_traffic=rows_of("pool"), dims=dim_rules.like("x"), sequences=True, own_negatives="tokens"),
)
def replaced_rows(cx: Context, x: Tensor, tokens: Tensor, pool: Tensor, *, out: Tensor) -> None:
    """Copy x (..., R, N). The row of a token below 0 is row -1 - token of the pool (P, N)."""
    if pool.rank != 2 or pool.dims[1] != x.dims[-1] or tokens.numel * x.dims[-1] != x.numel:
        raise ShapeError(f"rows {x!r} of the tokens {tokens!r} do not fit the pool {pool!r}", code="operand_mismatch")
    out.dims = x.dims
    cx.dispatch(
        "embedding/replaced_rows.wgsl",
        reads={"x": x, "pool": pool, "tokens": tokens},
        writes={"y": out},
        params=ReplacedRowsParams(width=x.dims[-1], rows=pool.dims[0]),
        threads=out.numel,
        word=word(x),
    )


@replaced_rows.reference
def _(x: Any, tokens: Any, pool: Any) -> Any:
    places = np.clip(-1 - tokens.reshape(x.shape[:-1]), 0, len(pool) - 1)
    return np.where((tokens < 0).reshape(*x.shape[:-1], 1), pool[places], x)

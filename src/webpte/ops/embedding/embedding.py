"""Rows of a table."""

from __future__ import annotations

from typing import Any

from ...errors import ShapeError
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.registry import Unused, op
from ...lowering.traits import OpTraits, rows_of
from ..indexing.indexing import take_along


@op(
    "aten.embedding.default",
    traits=OpTraits(memory_traffic=rows_of("weight"), dims=dim_rules.looked_up("weight", "indices")),
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

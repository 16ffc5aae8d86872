"""Rows of a table."""

from __future__ import annotations

from typing import Any

from ..wgsl import Uniforms, u32
from .context import Context, Tensor
from .registry import Unused, op
from .strided import word


class Embedding(Uniforms):
    columns: u32
    rows: u32


@op("aten.embedding.default")
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
    rows, columns = weight.dims
    out.dims = (*indices.dims, columns)  # (...,) -> (..., E)
    params = Embedding(columns=columns, rows=rows)
    cx.dispatch(
        "embedding.wgsl", reads=(weight, indices), writes=(out,), params=params, threads=out.numel, word=word(out)
    )


@embedding.reference
def _(weight: Any, indices: Any, *unused: object) -> Any:
    return weight[indices]

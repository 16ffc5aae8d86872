"""Concatenation: one dispatch per input, each writing its own stripe of the output."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..graph import normalize_dim, numel
from ..wgsl import Uniforms, u32
from .context import Context, Tensor
from .registry import op
from .strided import word


class Stripe(Uniforms):
    width: u32  # contiguous elements of the input per outer index
    out_width: u32
    offset: u32


@op("aten.cat.default")
def cat(cx: Context, tensors: list[Tensor], dim: int, *, out: Tensor) -> None:
    axis = normalize_dim(dim, out.rank)
    # PyTorch skips empty 1-D tensors, whatever the rank of the others.
    parts = [t for t in tensors if t.dims != (0,)] or tensors[:1]
    rest = {(*t.dims[:axis], *t.dims[axis + 1 :]) for t in parts}
    if len(rest) > 1 or any(t.rank != out.rank for t in parts):
        raise ShapeError(f"{', '.join(str(list(t.dims)) for t in tensors)} cannot be joined along dim {dim}")
    first = parts[0].dims
    out.dims = (*first[:axis], sum(t.dims[axis] for t in parts), *first[axis + 1 :])
    inner = numel(first[axis + 1 :])
    offset = 0
    for tensor in parts:
        width = tensor.dims[axis] * inner
        params = Stripe(width=width, out_width=out.dims[axis] * inner, offset=offset)
        cx.dispatch("cat.wgsl", reads=(tensor,), writes=(out,), params=params, threads=tensor.numel, word=word(out))
        offset += width


@cat.reference
def _(tensors: list[Any], dim: int) -> Any:
    kept = [t for t in tensors if t.shape != (0,)] or tensors[:1]
    return np.concatenate(kept, axis=dim)

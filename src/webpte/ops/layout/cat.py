"""Concatenation: one dispatch per input, each writing its own stripe of the output."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import normalize_dim, numel
from ...lowering.context import Context, Tensor
from ...lowering.integers import elements_of
from ...lowering.registry import BYTES, MOVABLE, op
from ...lowering.traits import OpTraits
from ...wgsl import Uniforms, u32
from .strided import word


class StripeParams(Uniforms):
    count: u32  # output elements
    width: u32  # contiguous elements of the input per outer index
    out_width: u32
    offset: u32


def _write_stripes(cx: Context, parts: list[Tensor], widths: list[int], out: Tensor) -> None:
    """Write one stripe of each part into every row of `out`; that of part k has widths[k] elements."""
    packed = out.dtype in BYTES
    in_word = 4 if packed else 1
    if packed and all(width % 4 == 0 for width in widths):  # words are moved whole
        widths, packed = [width // 4 for width in widths], False
    row, offset = sum(widths), 0
    for number, (part, width) in enumerate(zip(parts, widths, strict=True)):
        cx.dispatch(
            "layout/cat.wgsl",
            reads={"x": part},
            writes={"y": out},
            params=StripeParams(count=out.numel, width=width, out_width=row, offset=offset),
            threads=-(-(out if packed else part).numel // in_word),
            word=word(out),
            packed=packed,
            first=packed and number == 0,
        )
        offset += width


def _listed(tensors: list[Tensor]) -> str:
    return ", ".join(str(list(t.dims)) for t in tensors)


@op("aten.cat.default", dtypes=MOVABLE, traits=OpTraits(integers=elements_of("tensors")))
def cat(cx: Context, tensors: list[Tensor], dim: int, *, out: Tensor) -> None:
    axis = normalize_dim(dim, out.rank)
    # PyTorch skips empty 1-D tensors, for any rank of the others.
    parts = [t for t in tensors if t.dims != (0,)] or tensors[:1]
    rest = {(*t.dims[:axis], *t.dims[axis + 1 :]) for t in parts}
    if len(rest) > 1 or any(t.rank != out.rank for t in parts):
        raise ShapeError(f"{_listed(tensors)} cannot be concatenated along dim {dim}", code="operand_mismatch")
    first = parts[0].dims
    out.dims = (*first[:axis], sum(t.dims[axis] for t in parts), *first[axis + 1 :])
    _write_stripes(cx, parts, [numel(t.dims[axis:]) for t in parts], out)


@cat.reference
def _(tensors: list[Any], dim: int) -> Any:
    kept = [t for t in tensors if t.shape != (0,)] or tensors[:1]
    return np.concatenate(kept, axis=dim)


@op("aten.stack.default", traits=OpTraits(integers=elements_of("tensors")))
def stack(cx: Context, tensors: list[Tensor], dim: int, *, out: Tensor) -> None:
    axis = normalize_dim(dim, out.rank)
    dims = tensors[0].dims
    if any(t.dims != dims for t in tensors):
        raise ShapeError(f"{_listed(tensors)} differ in shape and cannot be stacked", code="operand_mismatch")
    out.dims = (*dims[:axis], len(tensors), *dims[axis:])
    _write_stripes(cx, tensors, [numel(dims[axis:])] * len(tensors), out)


@stack.reference
def _(tensors: list[Any], dim: int) -> Any:
    return np.stack(tensors, axis=dim)

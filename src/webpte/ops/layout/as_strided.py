"""A tensor's elements at given strides, whatever its shape: how the exporter writes a global average pool's result."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...lowering.context import Context, Tensor
from ...lowering.registry import op
from ...wgsl import LiveInt
from .strided import gather


@op("aten.as_strided_copy.default")
def as_strided_copy(
    cx: Context, self: Tensor, size: list[int], stride: list[int], storage_offset: int | None, *, out: Tensor
) -> None:
    if len(size) != len(stride) or min((*size, *stride, storage_offset or 0), default=0) < 0:
        raise ShapeError(
            f"as_strided: invalid size {size}, stride {stride} or offset {storage_offset}", code="invalid_stride"
        )
    out.dims = tuple(size)
    start = storage_offset or 0
    last = start + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if out.numel and last >= self.numel:
        raise ShapeError(f"size {size} at stride {stride} reads element {last} of {self.numel}", code="out_of_bounds")
    gather(cx, self, out, tuple(stride), start=LiveInt(start, -1))


@as_strided_copy.reference
def _(self: Any, size: list[int], stride: list[int], storage_offset: int | None) -> Any:
    positions = np.full((), storage_offset or 0, np.int64)
    for count, step in zip(size, stride, strict=True):
        positions = positions[..., None] + np.arange(count) * step
    return self.reshape(-1)[positions]

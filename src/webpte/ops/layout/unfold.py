"""Sliding windows along one dim."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import normalize_dim
from ...lowering.context import Context, Tensor
from ...lowering.registry import op
from ...lowering.shapes import strides
from .strided import gather


@op("aten.unfold_copy.default")
def unfold_copy(cx: Context, self: Tensor, dimension: int, size: int, step: int, *, out: Tensor) -> None:
    axis = normalize_dim(dimension, self.rank)
    dims = self.dims or (1,)  # a scalar counts as one element
    if not 0 <= size <= dims[axis] or step < 1:
        raise ShapeError(
            f"windows of {size} with step {step} do not fit dim {dimension} of {list(self.dims)}", code="too_small"
        )
    own = strides(dims)
    steps = (*own[:axis], own[axis] * step, *own[axis + 1 :], own[axis])
    windows = (dims[axis] - size) // step + 1
    # (..., n, ...) -> (..., windows, ..., size)
    out.dims = (*dims[:axis], windows, *dims[axis + 1 :], size) if self.rank else (size,)
    gather(cx, self, out, steps if self.rank else (1,))


@unfold_copy.reference
def _(self: Any, dimension: int, size: int, step: int) -> Any:
    if not self.ndim:
        return self.reshape(1)[:size]
    axis = normalize_dim(dimension, self.ndim)
    starts = range(0, self.shape[axis] - size + 1, step)
    windows = [np.moveaxis(np.take(self, np.arange(s, s + size), axis), axis, -1) for s in starts]
    return np.stack(windows, axis)

"""Dims walked backwards, or from another start."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import normalize_dim
from ...lowering.context import Context, Tensor
from ...lowering.integers import elements_of
from ...lowering.registry import op
from ...lowering.shapes import strides
from ...lowering.traits import OpTraits
from ...wgsl import LiveInt
from .repeat import wrap_around
from .strided import gather


@op("aten.flip.default", traits=OpTraits(integers=elements_of("self")))
def flip(cx: Context, self: Tensor, dims: list[int], *, out: Tensor) -> None:
    out.dims = self.dims
    axes = {normalize_dim(d, self.rank) for d in dims} if self.rank else set()
    own = strides(self.dims)
    last = sum((self.dims[d] - 1) * own[d] for d in axes) if self.numel else 0
    steps = tuple(-s if d in axes else s for d, s in enumerate(own))
    gather(cx, self, out, steps, start=LiveInt(last, -1))


@flip.reference
def _(self: Any, dims: list[int]) -> Any:
    return np.flip(self, tuple(dims)) if self.ndim else self


@op("aten.roll.default", traits=OpTraits(integers=elements_of("self")))
def roll(cx: Context, self: Tensor, shifts: list[int], dims: list[int], *, out: Tensor) -> None:
    out.dims = self.dims
    sizes, axes = self.dims, [normalize_dim(d, self.rank) for d in dims]
    if not dims and len(shifts) == 1:  # without dims the flattened tensor rolls
        sizes, axes = (self.numel,), [0]
    if len(axes) != len(shifts):
        raise ShapeError(f"shifts, dims: expected the same length, got {shifts} and {dims}", code="wrong_length")
    moved = [0] * len(sizes)
    for axis, shift in zip(axes, shifts, strict=True) if sizes and self.numel else ():
        moved[axis] = (moved[axis] - shift) % sizes[axis]
    wrap_around(cx, self, out, sizes, tuple(moved), dims=sizes)


@roll.reference
def _(self: Any, shifts: list[int], dims: list[int]) -> Any:
    return np.roll(self, shifts, axis=dims) if dims else np.roll(self, shifts[0])

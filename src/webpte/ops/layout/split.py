"""A tensor cut along one dim into several."""

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
from .slicing import take_range
from .strided import gather


def _check_count(out: list[Tensor], count: int) -> None:
    if len(out) != count:
        raise ShapeError(f"expected {count} outputs, one for each part, got {len(out)}", code="wrong_length")


@op("aten.split_with_sizes_copy.default", traits=OpTraits(integers=elements_of("self")))
def split_with_sizes_copy(cx: Context, self: Tensor, split_sizes: list[int], dim: int, *, out: list[Tensor]) -> None:
    axis = normalize_dim(dim, self.rank)
    _check_count(out, len(split_sizes))
    if sum(split_sizes) != self.dims[axis] or min(split_sizes, default=0) < 0:
        raise ShapeError(
            f"split_sizes {split_sizes} do not add up to dim {dim} of {list(self.dims)}", code="wrong_length"
        )
    first = 0
    for part, size in zip(out, split_sizes, strict=True):
        take_range(cx, self, part, axis, first, size)
        first += size


@split_with_sizes_copy.reference
def _(self: Any, split_sizes: list[int], dim: int) -> Any:
    return tuple(np.split(self, np.cumsum(split_sizes)[:-1], axis=dim))


@op("aten.split_copy.Tensor", traits=OpTraits(integers=elements_of("self")))
def split_copy(cx: Context, self: Tensor, split_size: int, dim: int, *, out: list[Tensor]) -> None:
    axis = normalize_dim(dim, self.rank)
    size = self.dims[axis]
    if split_size <= 0:
        raise ShapeError(f"split_size {split_size} is invalid for dim {dim} of {list(self.dims)}", code="wrong_length")
    _check_count(out, max(1, -(-size // split_size)))
    for part, first in zip(out, range(0, max(1, size), split_size), strict=True):
        take_range(cx, self, part, axis, first, min(split_size, size - first))


@split_copy.reference
def _(self: Any, split_size: int, dim: int) -> Any:
    return tuple(np.split(self, range(split_size, self.shape[dim], split_size), axis=dim))


@op("aten.unbind_copy.int", traits=OpTraits(integers=elements_of("self")))
def unbind_copy(cx: Context, self: Tensor, dim: int, *, out: list[Tensor]) -> None:
    axis = normalize_dim(dim, self.rank)
    _check_count(out, self.dims[axis])
    own = strides(self.dims)
    for index, part in enumerate(out):
        part.dims = self.dims[:axis] + self.dims[axis + 1 :]
        gather(cx, self, part, own[:axis] + own[axis + 1 :], start=LiveInt(index, -1), step=own[axis])


@unbind_copy.reference
def _(self: Any, dim: int) -> Any:
    return tuple(np.moveaxis(self, dim, 0))

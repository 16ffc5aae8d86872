"""Parts of a tensor along one dim: slice, narrow, select, split, unbind."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import normalize_dim
from ...graph.expressions import EXPRESSIONS, Term, apply
from ...lowering import dim_rules
from ...lowering.context import Context, LiveScalar, Tensor
from ...lowering.integers import elements_of
from ...lowering.registry import MOVABLE, op
from ...lowering.shapes import strides
from ...lowering.traits import OpTraits, part_taken
from ...wgsl import LiveInt
from .copy import copy_into
from .strided import gather


def clamped(position: int, size: int) -> int:
    """Return a slice end as Python counts it: negative from the end, then inside the dim."""
    return min(max(position + size if position < 0 else position, 0), size)


def _takes_all(start: LiveScalar | None, end: LiveScalar | None, step: int, bound: int) -> bool:
    """Return whether a slice is the whole dim at every dynamic size, not only at this one."""
    from_first = start is None or (start.literal and (start.value == 0 or start.value <= -bound))
    to_last = end is None or (end.literal and end.value >= bound)
    return from_first and to_last and step == 1


def take_range(cx: Context, x: Tensor, out: Tensor, axis: int, first: Term, length: int, step: int = 1) -> None:
    """Copy out = x[..., first : : step, ...] with `length` elements along `axis`."""
    out.dims = (*x.dims[:axis], length, *x.dims[axis + 1 :])
    own = strides(x.dims)
    steps = (*own[:axis], own[axis] * step, *own[axis + 1 :])
    gather(cx, x, out, steps, start=cx.dynamic(first), step=own[axis])


@op(
    "aten.slice_copy.Tensor",
    dtypes=MOVABLE,
    traits=OpTraits(
        memory_traffic={"self": part_taken},
        dims=dim_rules.sliced("self", "dim", "start", "end", "step"),
        integers=elements_of("self", positions=True),
    ),
)
def slice_copy(
    cx: Context, self: Tensor, dim: int, start: LiveScalar | None, end: LiveScalar | None, step: int, *, out: Tensor
) -> None:
    axis = normalize_dim(dim, self.rank)
    if step < 1:
        raise ShapeError(argument="step", expected="at least 1", got=step, code="invalid_step")
    if _takes_all(start, end, step, self.bound[axis]):
        out.dims = self.dims
        copy_into(cx, self, out)
        return
    size = self.dims[axis]
    first, length = taken_range(cx, 0 if start is None else start.term, size if end is None else end.term, size)
    take_range(cx, self, out=out, axis=axis, first=first, length=-(-length // step), step=step)


def taken_range(cx: Context, start: Term, end: Term, size: int) -> tuple[Term, int]:
    """Return the start of a slice and its length."""
    if isinstance(start, EXPRESSIONS):
        length = apply("sub", end, start)
        moves = not isinstance(length, EXPRESSIONS) and length >= 0
        # The length is constant while the whole slice is in range.
        if moves and cx.specialize(apply("ge", start, 0)) and cx.specialize(apply("le", end, size)):
            return start, cx.specialize(length)
    first = clamped(int(cx.specialize(start)), size)
    return first, max(0, clamped(int(cx.specialize(end)), size) - first)


@slice_copy.reference
def _(self: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    index = [slice(None)] * self.ndim
    index[dim] = slice(start, end, step)
    return self[tuple(index)]


@op("aten.narrow_copy.default", dtypes=MOVABLE, traits=OpTraits(integers=elements_of("self", positions=True)))
def narrow_copy(cx: Context, self: Tensor, dim: int, start: LiveScalar, length: int, *, out: Tensor) -> None:
    axis = normalize_dim(dim, self.rank)
    size = self.dims[axis]
    at = start.term
    first = apply("select", apply("lt", at, 0), apply("add", at, size), at)
    outside = f"are not inside dim {dim} of {list(self.dims)}"
    if isinstance(first, EXPRESSIONS):
        cx.guard(first, 0, size - length + 1, f"{length} elements from {{1}} {outside}", at)
    elif not 0 <= first <= first + length <= size:
        raise ShapeError(f"{length} elements from {at} {outside}")
    take_range(cx, self, out, axis, first, length)


@narrow_copy.reference
def _(self: Any, dim: int, start: int, length: int) -> Any:
    first = start % self.shape[dim] if start else 0
    return np.take(self, range(first, first + length), axis=dim)


def selected(cx: Context, x: Tensor, axis: int, index: LiveScalar) -> Term:
    """Return an index along a dim, counted from the front. An index outside raises."""
    size, at = x.dims[axis], index.term
    outside = f"is outside dim {axis} of {list(x.dims)}"
    if isinstance(at, EXPRESSIONS):
        cx.guard(at, -size, size, f"index {{0}} {outside}")
    elif not -size <= at < size:
        raise ShapeError(f"index {at} {outside}")
    return apply("mod", at, max(size, 1))


@op(
    "aten.select_copy.int",
    dtypes=MOVABLE,
    traits=OpTraits(
        memory_traffic={"self": part_taken}, dims=dim_rules.selected("self", "dim"), integers=elements_of("self")
    ),
)
def select_copy(cx: Context, self: Tensor, dim: int, index: LiveScalar, *, out: Tensor) -> None:
    axis = normalize_dim(dim, self.rank)
    at = selected(cx, self, axis, index)
    out.dims = self.dims[:axis] + self.dims[axis + 1 :]
    if self.bound[axis] == 1:
        copy_into(cx, self, out)  # there is only one to select, at every live shape
        return
    own = strides(self.dims)
    gather(cx, self, out, own[:axis] + own[axis + 1 :], start=cx.dynamic(at), step=own[axis])


@select_copy.reference
def _(self: Any, dim: int, index: int) -> Any:
    return np.take(self, index, axis=dim)


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

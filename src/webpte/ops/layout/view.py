"""Views: the same elements in the same order under another shape. Aliases wherever storage allows it."""

from __future__ import annotations

from typing import Any

from ...errors import ShapeError
from ...graph import normalize_dim, numel
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.registry import MOVABLE, op
from ...lowering.traits import OpTraits
from .copy import copy_into


def _reshape(cx: Context, self: Tensor, dims: tuple[int, ...], out: Tensor) -> None:
    if numel(dims) != self.numel:
        raise ShapeError(
            f"view of {list(self.dims)} as {list(dims)}: expected {self.numel} elements, got {numel(dims)}",
            code="element_count",
        )
    out.dims = dims
    copy_into(cx, self, out)


def _squeeze(cx: Context, self: Tensor, axes: set[int], out: Tensor) -> None:
    # The bound decides which dims are removed: the rank is fixed, so a dim that is 1 only in this call stays.
    gone = {d for d in axes if self.bound[d] == 1}
    _reshape(cx, self, tuple(size for d, size in enumerate(self.dims) if d not in gone), out)


@op(
    "aten.view_copy.default",
    kernels=("executorch_prim::et_view.default",),
    dtypes=MOVABLE,
    traits=OpTraits(view="self", dims=dim_rules.viewed("self", "size")),
)
def view_copy(cx: Context, self: Tensor, size: list[int], *, out: Tensor) -> None:
    others = numel(tuple(s for s in size if s != -1))
    if -1 in size:
        if others == 0 or self.numel % others:
            raise ShapeError(f"{list(self.dims)} cannot be viewed as {size}", code="element_count")
        size = [self.numel // others if s == -1 else s for s in size]
    _reshape(cx, self, tuple(size), out)


@view_copy.reference
def _(self: Any, size: list[int]) -> Any:
    return self.reshape(size)


@op(
    "aten.unsqueeze_copy.default",
    dtypes=MOVABLE,
    traits=OpTraits(view="self", dims=dim_rules.unsqueezed("self", "dim")),
)
def unsqueeze_copy(cx: Context, self: Tensor, dim: int, *, out: Tensor) -> None:
    at = normalize_dim(dim, self.rank + 1)
    _reshape(cx, self, (*self.dims[:at], 1, *self.dims[at:]), out)


@unsqueeze_copy.reference
def _(self: Any, dim: int) -> Any:
    at = normalize_dim(dim, self.ndim + 1)
    return self.reshape((*self.shape[:at], 1, *self.shape[at:]))


@op("aten.squeeze_copy.dims", dtypes=MOVABLE, traits=OpTraits(view="self"))
def squeeze_copy(cx: Context, self: Tensor, dim: list[int], *, out: Tensor) -> None:
    _squeeze(cx, self, {normalize_dim(d, self.rank) for d in dim} if self.rank else set(), out)


@squeeze_copy.reference
def _(self: Any, dim: list[int]) -> Any:
    gone = {normalize_dim(d, self.ndim) for d in dim}
    return self.reshape([s for d, s in enumerate(self.shape) if not (d in gone and s == 1)])


@op("aten.squeeze_copy.dim", dtypes=MOVABLE, traits=OpTraits(view="self"))
def squeeze_copy_dim(cx: Context, self: Tensor, dim: int, *, out: Tensor) -> None:
    gone = {normalize_dim(dim, self.rank)} if self.rank else set()
    _squeeze(cx, self, gone, out)


@squeeze_copy_dim.reference
def _(self: Any, dim: int) -> Any:
    gone = normalize_dim(dim, self.ndim)
    return self.reshape([s for d, s in enumerate(self.shape) if not (d == gone and s == 1)])

"""Repeat dims, or read them backwards or from another start."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import normalize_dim
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.integers import all_of
from ...lowering.registry import Unused, op
from ...lowering.shapes import Dims, broadcast, broadcast_strides, check_rank, strides
from ...lowering.traits import OpTraits
from ...wgsl import LiveInt, Uniforms, dims8, u32
from .copy import copy_into
from .strided import gather, word


class WrapParams(Uniforms):
    rank: u32
    dims: dims8
    sizes: dims8  # of the input, below which positions wrap around
    shifts: dims8
    strides: dims8


def wrap_around(cx: Context, x: Tensor, out: Tensor, sizes: Dims, shifts: Dims, dims: Dims | None = None) -> None:
    """Copy out[i, j, ...] = x[(i + shifts[0]) % sizes[0], ...]. `x` has the shape `sizes`, `out` the shape `dims`."""
    walked = out.dims if dims is None else dims
    check_rank(walked)
    params = WrapParams(rank=len(walked), dims=walked, sizes=sizes, shifts=shifts, strides=strides(sizes))
    cx.dispatch("layout/wrap.wgsl", reads={"x": x}, writes={"y": out}, params=params, threads=out.numel, word=word(x))


@op(
    "aten.expand_copy.default",
    traits=OpTraits(identity="self", dims=dim_rules.expanded("self", "size"), integers=all_of("self")),
)
def expand_copy(cx: Context, self: Tensor, size: list[int], implicit: Unused, *, out: Tensor) -> None:
    missing = len(size) - self.rank
    if missing < 0:
        raise ShapeError(f"{list(self.dims)} has more dims than the size {size} to expand to", code="broadcast")
    target = tuple(self.dims[d - missing] if s == -1 and d >= missing else s for d, s in enumerate(size))
    unchanged = self.bound == out.bound  # exporters emit many expands without effect at any shape
    if broadcast(self.dims, target) != target or (unchanged and self.dims != target):
        raise ShapeError(f"{list(self.dims)} cannot be expanded to {list(target)}", code="broadcast")
    out.dims = target
    if unchanged:
        copy_into(cx, self, out)
    else:
        gather(cx, self, out, broadcast_strides(self.dims, target))


@expand_copy.reference
def _(self: Any, size: list[int], implicit: object) -> Any:
    missing = len(size) - self.ndim
    return np.broadcast_to(self, [self.shape[d - missing] if s == -1 else s for d, s in enumerate(size)])


@op("aten.repeat.default", traits=OpTraits(integers=all_of("self")))
def repeat(cx: Context, self: Tensor, repeats: list[int], *, out: Tensor) -> None:
    missing = len(repeats) - self.rank
    if missing < 0 or any(r < 0 for r in repeats):
        raise ShapeError(
            argument="repeats",
            expected=f"at least {self.rank} integers of at least 0",
            got=repeats,
            code="wrong_length",
        )
    sizes = (1,) * missing + self.dims  # (d1, d2) -> (1, d1, d2)
    out.dims = tuple(r * s for r, s in zip(repeats, sizes, strict=True))
    wrap_around(cx, self, out, sizes, (0,) * len(sizes))


@repeat.reference
def _(self: Any, repeats: list[int]) -> Any:
    return np.tile(self, repeats)


@op("aten.flip.default", traits=OpTraits(integers=all_of("self")))
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


@op("aten.roll.default", traits=OpTraits(integers=all_of("self")))
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

"""Copies and casts. A copy that changes nothing is an alias and costs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import COPY
from .context import Context, LiveScalar, Tensor
from .registry import Unused, op
from .shapes import broadcast_strides, strides
from .strided import gather


def copy_into(cx: Context, x: Tensor, out: Tensor) -> None:
    """`out` becomes `x`, element by element in flat order, converted to its dtype. The caller sets `out.dims`."""
    if x.dtype is not out.dtype:
        cx.dispatch("cast.wgsl", reads=(x,), writes=(out,), threads=x.numel, source=x.wgsl, target=_target(out))
    elif not cx.alias(out, x):
        gather(cx, x, out, strides(out.dims))


def _target(out: Tensor) -> str:
    return "bool" if out.dtype.short == "bool" else out.wgsl


@op(COPY)
def move(cx: Context, self: Tensor | LiveScalar, *, out: Tensor | LiveScalar) -> None:
    if isinstance(self, LiveScalar) and isinstance(out, LiveScalar):
        out.set(self.value)
    elif isinstance(self, Tensor) and isinstance(out, Tensor):
        out.dims = self.dims
        copy_into(cx, self, out)
    else:
        raise TypeError("a scalar cannot become a tensor, nor a tensor a scalar")


@op("aten.clone.default")
def clone(cx: Context, self: Tensor, memory_format: Unused, *, out: Tensor) -> None:
    out.dims = self.dims
    copy_into(cx, self, out)


@clone.reference
def _(self: Any, memory_format: object) -> Any:
    return np.array(self)


@op(kernels=("aten::copy_",), mutates=("self",))
def copy_(cx: Context, self: Tensor, src: Tensor, non_blocking: Unused, *, out: Tensor) -> None:
    out.dims = self.dims
    if src.dims != self.dims and src.dtype is self.dtype:
        gather(cx, src, out, broadcast_strides(src.dims, out.dims))
    else:
        copy_into(cx, src, out)


@copy_.reference
def _(self: Any, src: Any, non_blocking: object) -> Any:
    return np.broadcast_to(src, self.shape).astype(self.dtype)

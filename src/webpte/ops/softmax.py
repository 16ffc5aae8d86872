"""Softmax and its logarithm, over any dim."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import normalize_dim
from ..wgsl import Uniforms, u32
from .context import Context, Tensor
from .registry import FLOATS, Unused, op
from .shapes import strides


class Softmax(Uniforms):
    size: u32
    inner: u32  # elements between neighbours along the dim


def normalised(cx: Context, x: Tensor, dim: int, out: Tensor, log: bool) -> None:
    out.dims = x.dims
    axis = normalize_dim(dim, x.rank)
    size, inner = (x.dims[axis], strides(x.dims)[axis]) if x.rank else (1, 1)
    cx.dispatch(
        "softmax.wgsl",
        reads=(x,),
        writes=(out,),
        params=Softmax(size=size, inner=inner),
        threads=x.numel // size if size else 0,
        workgroup=8,
        source=x.wgsl,
        result=out.wgsl,  # wider than the input where half_to_float is set
        log=log,
    )


def _shifted(x: Any, dim: int) -> Any:
    """As float64, with the largest element of each row at 0."""
    wide = x.astype(np.float64)
    return wide - (wide.max(axis=dim, keepdims=True) if x.ndim else wide)


def _result_dtype(x: Any, half_to_float: bool) -> Any:
    return np.float32 if half_to_float else x.dtype


@op("aten._softmax.default", dtypes=FLOATS)
def softmax(cx: Context, self: Tensor, dim: int, half_to_float: Unused, *, out: Tensor) -> None:
    normalised(cx, self, dim, out, log=False)


@softmax.reference
def _(self: Any, dim: int, half_to_float: bool) -> Any:
    powers = np.exp(_shifted(self, dim))
    total = powers.sum(axis=dim if self.ndim else None, keepdims=True)
    return (powers / total).astype(_result_dtype(self, half_to_float))


@op("aten._log_softmax.default", dtypes=FLOATS)
def log_softmax(cx: Context, self: Tensor, dim: int, half_to_float: Unused, *, out: Tensor) -> None:
    normalised(cx, self, dim, out, log=True)


@log_softmax.reference
def _(self: Any, dim: int, half_to_float: bool) -> Any:
    shifted = _shifted(self, dim)
    total = np.exp(shifted).sum(axis=dim if self.ndim else None, keepdims=True)
    return (shifted - np.log(total)).astype(_result_dtype(self, half_to_float))

"""Softmax over any dim."""

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


@op("aten._softmax.default", dtypes=FLOATS)
def softmax(cx: Context, self: Tensor, dim: int, half_to_float: Unused, *, out: Tensor) -> None:
    out.dims = self.dims
    axis = normalize_dim(dim, self.rank)
    size, inner = (self.dims[axis], strides(self.dims)[axis]) if self.rank else (1, 1)
    rows = self.numel // size if size else 0
    params = Softmax(size=size, inner=inner)
    cx.dispatch("softmax.wgsl", reads=(self,), writes=(out,), params=params, threads=rows, workgroup=8, type=self.wgsl)


@softmax.reference
def _(self: Any, dim: int, half_to_float: object) -> Any:
    shifted = np.exp(self - self.max(axis=dim, keepdims=True))
    return shifted / shifted.sum(axis=dim, keepdims=True)

"""Elementwise functions of one operand."""

from __future__ import annotations

from typing import Any

import numpy as np

from .context import Context, Tensor
from .registry import FLOATS, op


def _apply(cx: Context, name: str, self: Tensor, out: Tensor) -> None:
    out.dims = self.dims
    cx.dispatch("unary.wgsl", reads=(self,), writes=(out,), threads=out.numel, name=name, type=self.wgsl)


@op("aten.relu.default", dtypes=FLOATS)
def relu(cx: Context, self: Tensor, *, out: Tensor) -> None:
    _apply(cx, "relu", self, out)


@relu.reference
def _(self: Any) -> Any:
    return np.maximum(self, 0)


@op("aten.sigmoid.default", dtypes=FLOATS)
def sigmoid(cx: Context, self: Tensor, *, out: Tensor) -> None:
    _apply(cx, "sigmoid", self, out)


@sigmoid.reference
def _(self: Any) -> Any:
    return (1 / (1 + np.exp(-self.astype(np.float64)))).astype(self.dtype)

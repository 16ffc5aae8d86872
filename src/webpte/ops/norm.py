"""Normalisation over the last dim, accumulated in f32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import numel
from ..wgsl import Uniforms, f32, u32
from .context import Context, Tensor
from .registry import FLOATS, op


class RmsNorm(Uniforms):
    columns: u32
    eps: f32


@op("et_vk.rms_norm.default", dtypes=FLOATS)
def rms_norm(cx: Context, x: Tensor, weight: Tensor, eps: float, *, out: Tensor) -> None:
    out.dims = x.dims
    params = RmsNorm(columns=x.dims[-1], eps=eps)
    rows = numel(x.dims[:-1])
    cx.dispatch(
        "rms_norm.wgsl", reads=(x, weight), writes=(out,), params=params, threads=rows, workgroup=8, type=x.wgsl
    )


@rms_norm.reference
def _(x: Any, weight: Any, eps: float) -> Any:
    wide = x.astype(np.float64)
    return (wide / np.sqrt(np.mean(wide**2, axis=-1, keepdims=True) + eps) * weight).astype(x.dtype)

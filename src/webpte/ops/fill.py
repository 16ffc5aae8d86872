"""Tensors filled with one value."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..wgsl import Uniforms, f32, i32
from .context import Context, Tensor
from .registry import Option, Unused, op


class Fill(Uniforms):
    value: f32
    value_int: i32


def fill(cx: Context, value: float, out: Tensor) -> None:
    """Every element of `out` becomes `value`. The caller sets `out.dims`."""
    whole = out.wgsl in ("i32", "u32")
    number = int(bool(value)) if out.dtype.short == "bool" else value
    params = Fill(value=float(number), value_int=int(number) if whole else 0)
    cx.dispatch("fill.wgsl", writes=(out,), params=params, threads=out.numel, type=out.wgsl)


@op("aten.scalar_tensor.default")
def scalar_tensor(
    cx: Context, s: int | float, dtype: Option, layout: Option, device: Option, pin_memory: Option, *, out: Tensor
) -> None:
    out.dims = ()
    fill(cx, s, out)


@scalar_tensor.reference
def _(s: float, dtype: object, layout: object, device: object, pin_memory: object) -> Any:
    return np.asarray(s)


@op("aten.full_like.default")
def full_like(
    cx: Context,
    self: Tensor,
    fill_value: int | float,
    dtype: Option,
    layout: Option,
    device: Option,
    pin_memory: Option,
    memory_format: Unused,
    *,
    out: Tensor,
) -> None:
    out.dims = self.dims
    fill(cx, fill_value, out)


@full_like.reference
def _(self: Any, fill_value: float, *options: object) -> Any:
    return np.full_like(self, fill_value)

"""Evenly spaced numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..wgsl import Live, Uniforms
from .context import Context, Tensor
from .fill import numpy_dtype
from .numbers import bits_of, is_float
from .registry import Option, op


class Arange(Uniforms):
    start: Live
    step: Live


def _length(start: float, end: float, step: float) -> int:
    if step == 0 or (end - start) * step < 0:
        raise ShapeError(f"no numbers lead from {start} to {end} in steps of {step}")
    if all(isinstance(number, int) for number in (start, end, step)):
        return int(-((start - end) // step))
    return math.ceil((end - start) / step)


@op("aten.arange.start_step", kernels=("aten::arange.start_out",))
def arange(
    cx: Context,
    start: int | float,
    end: int | float,
    step: int | float,
    dtype: Option,
    layout: Option,
    device: Option,
    pin_memory: Option,
    *,
    out: Tensor,
) -> None:
    out.dims = (_length(start, end, step),)
    floating = is_float(out)
    if not floating and out.numel:
        bits_of(int(start + (out.numel - 1) * step), floating)  # the last one has to fit too
    params = Arange(start=cx.live("start", bits_of(start, floating)), step=cx.live("step", bits_of(step, floating)))
    cx.dispatch("arange.wgsl", writes=(out,), params=params, threads=out.numel, type=out.dtype.short)


@arange.reference
def _(start: float, end: float, step: float, dtype: int | None, *options: object) -> Any:
    whole = all(isinstance(number, int) for number in (start, end, step))
    return np.arange(start, end, step).astype(numpy_dtype(dtype, np.int64 if whole else np.float32))

"""Evenly spaced numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph.expressions import EXPRESSIONS, Number, Term, apply, is_whole
from ...lowering.context import Context, Tensor
from ...lowering.integers import spaced
from ...lowering.numbers import INT32_HIGH, INT32_LOW, bits_of, fitting, is_float
from ...lowering.registry import TensorOptions, op
from ...lowering.traits import OpTraits
from ...wgsl import Live, Uniforms
from .fill import numpy_dtype


class ArangeParams(Uniforms):
    start: Live
    step: Live


def _length(cx: Context, start: Term, end: Term, step: float) -> int:
    span: Number = cx.specialize(apply("sub", end, start))
    if step == 0 or span * step < 0:
        raise ShapeError(f"arange: no values from {start} to {end} with step {step}", code="empty")
    if all(is_whole(number) for number in (start, end, step)):
        return int(-(-span // step))
    return math.ceil(span / step)


def _refuse_unfit(cx: Context, last: Term) -> None:
    """The last number has to fit the device's integers too; the kernel adds it up."""
    if isinstance(last, EXPRESSIONS):
        message = "a number of {0} does not fit the device's 32-bit integers"
        cx.guard(last, INT32_LOW, INT32_HIGH + 1, message, overflow=True)
    else:
        fitting(int(last))


@op("aten.arange.start_step", kernels=("aten::arange.start_out",), traits=OpTraits(integers=spaced("start", "step")))
def arange(
    cx: Context,
    start: Term,
    end: Term,
    step: int | float,
    options: TensorOptions,
    *,
    out: Tensor,
) -> None:
    out.dims = (_length(cx, start, end, step),)
    floating = is_float(out)
    if not floating and out.numel:
        _refuse_unfit(cx, apply("add", start, (out.numel - 1) * step))
    params = ArangeParams(start=cx.dynamic(bits_of(start, floating)), step=cx.dynamic(bits_of(step, floating)))
    cx.dispatch("create/arange.wgsl", writes=(out,), params=params, threads=out.numel, type=out.dtype.short)


@arange.reference
def _(start: float, end: float, step: float, options: Any) -> Any:
    whole = all(isinstance(number, int) for number in (start, end, step))
    return np.arange(start, end, step).astype(numpy_dtype(options.dtype, np.int64 if whole else np.float32))

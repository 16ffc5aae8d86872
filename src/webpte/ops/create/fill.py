"""Tensors filled with one value, or with evenly spaced ones. The dtype is the output's; values travel as bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType
from ...graph.expressions import EXPRESSIONS, Number, Term, apply, is_integer
from ...lowering.context import Context, Tensor
from ...lowering.integers import filled_with, spaced
from ...lowering.numbers import INT32_HIGH, INT32_LOW, bits_of, fitting, is_float, rounded
from ...lowering.registry import TensorOptions, Unused, op
from ...lowering.traits import OpTraits
from ...wgsl import Live, Uniforms
from ..layout.strided import word


class FillParams(Uniforms):
    value: Live


def fill(cx: Context, value: Term, out: Tensor) -> None:
    """Set every element of `out` to `value`. The caller sets `out.dims`."""
    number = apply("ne", value, 0) if out.dtype is DType.BOOL else rounded(value, out.dtype)
    params = FillParams(value=cx.dynamic(bits_of(number, is_float(out))))
    cx.dispatch("create/fill.wgsl", writes={"y": out}, params=params, threads=out.numel, word=word(out))


def numpy_dtype(code: int | None, default: Any) -> Any:
    """Return the NumPy dtype of a schema's `dtype` argument. It is null inside delegates: the output's spec has it."""
    return default if code is None else DType.from_scalar_type(code).held


def _filled(size: Sequence[int], value: float, dtype: int | None) -> Any:
    return np.full(tuple(size), value, numpy_dtype(dtype, None))


@op("aten.scalar_tensor.default", traits=OpTraits(fills="s"))
def scalar_tensor(cx: Context, s: Term, options: TensorOptions, *, out: Tensor) -> None:
    out.dims = ()
    fill(cx, s, out)


@scalar_tensor.reference
def _(s: float, options: Any) -> Any:
    return _filled((), s, options.dtype)


@op("aten.full.default", traits=OpTraits(fills="fill_value"))
def full(
    cx: Context,
    size: list[int],
    fill_value: Term,
    options: TensorOptions,
    *,
    out: Tensor,
) -> None:
    out.dims = tuple(size)
    fill(cx, fill_value, out)


@full.reference
def _(size: list[int], fill_value: float, options: Any) -> Any:
    return _filled(size, fill_value, options.dtype)


@op("aten.full_like.default", traits=OpTraits(integers=filled_with("fill_value")))
def full_like(
    cx: Context,
    self: Tensor,
    fill_value: Term,
    options: TensorOptions,
    memory_format: Unused,
    *,
    out: Tensor,
) -> None:
    out.dims = self.dims
    fill(cx, fill_value, out)


@full_like.reference
def _(self: Any, fill_value: float, options: Any, memory_format: object) -> Any:
    return np.full_like(self, fill_value, numpy_dtype(options.dtype, self.dtype))


def _register(name: str, value: int) -> None:
    """Register an op that fills by size, and one that fills by example."""

    @op(f"aten.{name}.default", traits=OpTraits(integers=filled_with(value)))
    def by_size(
        cx: Context,
        size: list[int],
        options: TensorOptions,
        *,
        out: Tensor,
    ) -> None:
        out.dims = tuple(size)
        fill(cx, value, out)

    @by_size.reference
    def _(size: list[int], options: Any) -> Any:
        return np.full(tuple(size), value, numpy_dtype(options.dtype, np.float32))

    @op(f"aten.{name}_like.default", traits=OpTraits(integers=filled_with(value)))
    def by_example(
        cx: Context,
        self: Tensor,
        options: TensorOptions,
        memory_format: Unused,
        *,
        out: Tensor,
    ) -> None:
        out.dims = self.dims
        fill(cx, value, out)

    @by_example.reference
    def _(self: Any, options: Any, memory_format: object) -> Any:
        return np.full_like(self, value, numpy_dtype(options.dtype, self.dtype))


# Unwritten memory is zero here: results do not depend on previous contents.
@op("aten.empty.memory_format", "dim_order_ops._empty_dim_order.default", kernels=("aten::empty.out",))
def empty(
    cx: Context,
    size: list[int],
    options: TensorOptions,
    order: Unused,
    *,
    out: Tensor,
) -> None:
    out.dims = tuple(size)
    fill(cx, 0, out)


@empty.reference
def _(size: list[int], options: Any, order: object) -> Any:
    return np.zeros(tuple(size), numpy_dtype(options.dtype, np.float32))


_register("zeros", 0)
_register("ones", 1)


class ArangeParams(Uniforms):
    start: Live
    step: Live


def _length(cx: Context, start: Term, end: Term, step: float) -> int:
    span: Number = cx.specialize(apply("sub", end, start))
    if step == 0 or span * step < 0:
        raise ShapeError(f"arange: no values from {start} to {end} with step {step}", code="empty")
    if all(is_integer(number) for number in (start, end, step)):
        return int(-(-span // step))
    return math.ceil(span / step)


def _refuse_unfit(cx: Context, last: Term) -> None:
    """Raise, or guard against, a last number that does not fit the device's integers: the kernel computes it."""
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
    cx.dispatch("create/arange.wgsl", writes={"y": out}, params=params, threads=out.numel, type=out.dtype.short)


@arange.reference
def _(start: float, end: float, step: float, options: Any) -> Any:
    whole = all(isinstance(number, int) for number in (start, end, step))
    return np.arange(start, end, step).astype(numpy_dtype(options.dtype, np.int64 if whole else np.float32))

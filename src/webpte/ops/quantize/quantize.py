"""Quantize and dequantize with a scale and a zero point for the whole tensor, for each channel or for each token.

Integers are stored as they are in PyTorch: int8 and uint8 take a byte each, four to a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import DType, normalize_dim, numel
from ...lowering import dim_rules
from ...lowering.context import Arrays, Context, Tensor
from ...lowering.registry import FLOATS, Op, Unused, op
from ...lowering.shapes import Dims, check_rank, coalesce, strides
from ...lowering.traits import OpTraits
from ...wgsl import Uniforms, dims8, f32, u32
from ..create.fill import numpy_dtype

CODES = frozenset({DType.INT8, DType.UINT8, DType.INT32})
QUANTIZED = FLOATS | CODES
I32_MAX = 2**31 - 128  # the greatest i32 that is also an f32


class QuantizeParams(Uniforms):
    count: u32  # elements
    inner: u32  # neighbors that share a scale
    scales: u32  # number of scales, after which they repeat
    inverse: f32  # of the scale, where there is but one, known on the host
    zero: f32
    lowest: f32
    highest: f32


class PermutedQuantizeParams(QuantizeParams):
    rank: u32
    dims: dims8
    x_strides: dims8


class DequantizeParams(Uniforms):
    count: u32
    inner: u32
    scales: u32
    scale: f32
    zero: f32


class PermutedDequantizeParams(DequantizeParams):
    rank: u32
    dims: dims8
    x_strides: dims8


@dataclass(frozen=True)
class QuantRange:
    """What codes may be: the arguments that end every quantization."""

    quant_min: int
    quant_max: int
    dtype: Unused  # null inside delegates: the output's spec has it

    @property
    def limits(self) -> tuple[int, int]:
        return self.quant_min, self.quant_max


@dataclass(frozen=True)
class UnusedQuantRange:
    """The same arguments of an op that reads codes."""

    quant_min: Unused
    quant_max: Unused
    dtype: Unused


class PerTensorScale(NamedTuple):
    """One scale for all elements, known on the host."""

    scale: float
    zero: int


class PerBlockScales(NamedTuple):
    """Scales on the device: `inner` neighbors share one, and after `number` of them they start over."""

    scale: Tensor
    zero: Tensor | None
    inner: int
    number: int


def _channels(x: Tensor, scales: Tensor, zeros: Tensor | None, axis: int) -> PerBlockScales:
    at = normalize_dim(axis, x.rank)
    if x.rank == 0:
        raise ShapeError(argument="input", expected="at least 1 dim", got="a scalar", code="rank")
    return _checked(x, PerBlockScales(scales, zeros, numel(x.dims[at + 1 :]), x.dims[at]))


def _tokens(x: Tensor, scales: Tensor, zeros: Tensor) -> PerBlockScales:
    if x.rank == 0:
        raise ShapeError(argument="input", expected="at least 1 dim", got="a scalar", code="rank")
    return _checked(x, PerBlockScales(scales, zeros, x.dims[-1], numel(x.dims[:-1])))


def _checked(x: Tensor, scaling: PerBlockScales) -> PerBlockScales:
    for operand in (scaling.scale, scaling.zero):
        if operand is not None and operand.numel != scaling.number:
            raise ShapeError(
                f"{operand!r}: expected {scaling.number} elements for {list(x.dims)}, got {operand.numel}",
                code="operand_mismatch",
            )
    return scaling


def _walk(x: Tensor, scaling: PerTensorScale | PerBlockScales) -> tuple[dict[str, Any], dict[str, Any], Arrays]:
    """Return the uniforms, the flags and the operands that select the scale of an element."""
    if isinstance(scaling, PerTensorScale):
        uniforms = {"count": x.numel, "inner": 1, "scales": 1, "zero": scaling.zero}
        return uniforms, {"scale_type": "", "zero_type": ""}, {}
    uniforms = {"count": x.numel, "inner": scaling.inner, "scales": scaling.number, "zero": 0}
    flags = {
        "scale_type": scaling.scale.wgsl,
        "zero_type": scaling.zero.dtype.short if scaling.zero is not None else "",
    }
    return uniforms, flags, {"scales": scaling.scale, "zeros": scaling.zero}


def _require(tensor: Tensor, dtypes: frozenset[DType]) -> None:
    """Raise GraphError unless the dtypes fit. The dtypes of an op do not say which operands are codes."""
    if tensor.dtype not in dtypes:
        raise GraphError(
            argument=f"value {tensor.id}",
            expected=f"one of {', '.join(sorted(d.short for d in dtypes))}",
            got=tensor.spec,
            code="dtype",
        )


def quantize(
    cx: Context,
    x: Tensor,
    scaling: PerTensorScale | PerBlockScales,
    limits: tuple[int, int],
    out: Tensor,
    early: bool = False,
    order: Sequence[int] | None = None,
) -> None:
    """Compute out = round(x / scale) + zero within `limits`. `early` adds the zero point before rounding.

    Dim d of the result is dim order[d] of `x`.
    """
    _require(x, FLOATS)
    _require(out, CODES)
    out.dims = _permuted_dims(x, order)
    uniforms, flags, operands = _walk(x, scaling)
    inverse = 1.0 / scaling.scale if isinstance(scaling, PerTensorScale) else 1.0
    lowest, highest = limits
    params = QuantizeParams(**uniforms, inverse=inverse, lowest=lowest, highest=min(highest, I32_MAX))
    cx.dispatch(
        "quantize/quantize.wgsl",
        reads={"x": x, **operands},
        writes={"y": out},
        params=params if order is None else PermutedQuantizeParams(**vars(params), **_strided(x, order)),
        threads=-(-x.numel // 4),
        type=x.wgsl,
        target=out.dtype.short,
        early=early,
        permuted=order is not None,
        **flags,
    )


def dequantize(
    cx: Context, x: Tensor, scaling: PerTensorScale | PerBlockScales, out: Tensor, order: Sequence[int] | None = None
) -> None:
    """Compute out = (x - zero) * scale. Dim d of the result is dim order[d] of `x`."""
    _require(x, CODES)
    _require(out, FLOATS)
    out.dims = _permuted_dims(x, order)
    uniforms, flags, operands = _walk(x, scaling)
    params = DequantizeParams(**uniforms, scale=scaling.scale if isinstance(scaling, PerTensorScale) else 1.0)
    cx.dispatch(
        "quantize/dequantize.wgsl",
        reads={"x": x, **operands},
        writes={"y": out},
        params=params if order is None else PermutedDequantizeParams(**vars(params), **_strided(x, order)),
        threads=-(-x.numel // 4),
        source=x.dtype.short,
        type=out.wgsl,
        permuted=order is not None,
        **flags,
    )


def _permuted_dims(x: Tensor, order: Sequence[int] | None) -> Dims:
    if order is None:
        return x.dims
    if sorted(order) != list(range(x.rank)):
        raise ShapeError(
            argument="dims", expected=f"a permutation of {x.rank} dims", got=list(order), code="operand_mismatch"
        )
    return tuple(x.dims[d] for d in order)


def _strided(x: Tensor, order: Sequence[int]) -> dict[str, Any]:
    """Return the uniforms that map an element of the permuted result to one of `x`."""
    own = strides(x.dims)
    dims, (steps,) = coalesce(tuple(x.dims[d] for d in order), tuple(own[d] for d in order))
    check_rank(dims)
    return {"rank": len(dims), "dims": dims, "x_strides": steps}


def dequantize_tokens(cx: Context, x: Tensor, scales: Tensor, zeros: Tensor, out: Tensor) -> None:
    """Compute the same with a scale and a zero point for each row."""
    dequantize(cx, x, _tokens(x, scales, zeros), out)


def _named(name: str, kernel: str) -> Callable[[Callable[..., Any]], Op]:
    """Register under the edge name and the name that calls outside delegates have."""
    return op(f"quantized_decomposed.{name}", kernels=(f"quantized_decomposed::{kernel}",), dtypes=QUANTIZED)


# -- one scale ---------------------------------------------------------------------------------------------------------


@_named("quantize_per_tensor.default", "quantize_per_tensor.out")
def quantize_per_tensor(
    cx: Context,
    input: Tensor,
    scale: float,
    zero_point: int,
    codes: QuantRange,
    *,
    out: Tensor,
) -> None:
    quantize(cx, input, PerTensorScale(scale, zero_point), codes.limits, out)


@_named("quantize_per_tensor.tensor", "quantize_per_tensor.Tensor_out")
def quantize_per_tensor_tensor(
    cx: Context,
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    codes: QuantRange,
    *,
    out: Tensor,
) -> None:
    scaling = _checked(input, PerBlockScales(scale, zero_point, 1, 1))
    quantize(cx, input, scaling, codes.limits, out)


@quantize_per_tensor.reference
@quantize_per_tensor_tensor.reference
def _(input: Any, scale: Any, zero_point: Any, codes: Any) -> Any:
    inverse = np.float32(1.0 / float(np.asarray(scale).item()))  # divided in float64, as Python does
    return numpy_quantize(input, inverse, np.asarray(zero_point).item(), codes.quant_min, codes.quant_max, codes.dtype)


@_named("dequantize_per_tensor.default", "dequantize_per_tensor.out")
def dequantize_per_tensor(
    cx: Context,
    input: Tensor,
    scale: float,
    zero_point: int,
    codes: UnusedQuantRange,
    out_dtype: Unused,
    *,
    out: Tensor,
) -> None:
    dequantize(cx, input, PerTensorScale(scale, zero_point), out)


@_named("dequantize_per_tensor.tensor", "dequantize_per_tensor.Tensor_out")
def dequantize_per_tensor_tensor(
    cx: Context,
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    codes: UnusedQuantRange,
    out_dtype: Unused,
    *,
    out: Tensor,
) -> None:
    dequantize(cx, input, _checked(input, PerBlockScales(scale, zero_point, 1, 1)), out)


@dequantize_per_tensor.reference
@dequantize_per_tensor_tensor.reference
def _(
    input: Any,
    scale: Any,
    zero_point: Any,
    codes: UnusedQuantRange,
    out_dtype: int | None,
) -> Any:
    return numpy_dequantize(input, np.asarray(scale).item(), np.asarray(zero_point).item(), out_dtype)


# -- one scale, in another order of dims: what fusion/codes.py makes of these and a permutation ------------------------


@op("webpte.permuted_quantize", dtypes=QUANTIZED, traits=OpTraits(dims=dim_rules.permuted("input", "dims")))
def permuted_quantize(
    cx: Context, input: Tensor, scale: float, zero_point: int, codes: QuantRange, dims: list[int], *, out: Tensor
) -> None:
    order = [normalize_dim(d, input.rank) for d in dims]
    quantize(cx, input, PerTensorScale(scale, zero_point), codes.limits, out, order=order)


@permuted_quantize.reference
def _(input: Any, scale: float, zero_point: int, codes: QuantRange, dims: list[int]) -> Any:
    limits: Any = (codes.quant_min, codes.quant_max, codes.dtype)
    return numpy_quantize(input, np.float32(1.0 / scale), zero_point, *limits).transpose(dims)


@op("webpte.permuted_dequantize", dtypes=QUANTIZED, traits=OpTraits(dims=dim_rules.permuted("input", "dims")))
def permuted_dequantize(
    cx: Context,
    input: Tensor,
    scale: float,
    zero_point: int,
    codes: UnusedQuantRange,
    out_dtype: Unused,
    dims: list[int],
    *,
    out: Tensor,
) -> None:
    order = [normalize_dim(d, input.rank) for d in dims]
    dequantize(cx, input, PerTensorScale(scale, zero_point), out, order)


@permuted_dequantize.reference
def _(
    input: Any, scale: float, zero_point: int, codes: UnusedQuantRange, out_dtype: int | None, dims: list[int]
) -> Any:
    return numpy_dequantize(input, scale, zero_point, out_dtype).transpose(dims)


# -- a scale for each channel ------------------------------------------------------------------------------------------


@_named("quantize_per_channel.default", "quantize_per_channel.out")
def quantize_per_channel(
    cx: Context,
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    codes: QuantRange,
    *,
    out: Tensor,
) -> None:
    quantize(cx, input, _channels(input, scales, zero_points, axis), codes.limits, out)


@quantize_per_channel.reference
def _(input: Any, scales: Any, zero_points: Any, axis: int, codes: Any) -> Any:
    inverse = np.float32(1.0) / _along(scales, input, axis)
    return numpy_quantize(
        input, inverse, _along(zero_points, input, axis), codes.quant_min, codes.quant_max, codes.dtype
    )


@_named("dequantize_per_channel.default", "dequantize_per_channel.out")
def dequantize_per_channel(
    cx: Context,
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    codes: UnusedQuantRange,
    out_dtype: Unused,
    *,
    out: Tensor,
) -> None:
    dequantize(cx, input, _channels(input, scales, zero_points, axis), out)


@dequantize_per_channel.reference
def _(
    input: Any,
    scales: Any,
    zero_points: Any,
    axis: int,
    codes: UnusedQuantRange,
    out_dtype: int | None,
) -> Any:
    zeros = 0 if zero_points is None else _along(zero_points, input, axis)
    return numpy_dequantize(input, _along(scales, input, axis), zeros, out_dtype)


# -- a scale for each token: everything but the last dim ---------------------------------------------------------------


@_named("quantize_per_token.default", "quantize_per_token.out")
def quantize_per_token(
    cx: Context,
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    codes: QuantRange,
    *,
    out: Tensor,
) -> None:
    # PyTorch rounds after it has added the zero point, here alone: a tie may go the other way.
    quantize(cx, input, _tokens(input, scales, zero_points), codes.limits, out, early=True)


@quantize_per_token.reference
def _(input: Any, scales: Any, zero_points: Any, codes: Any) -> Any:
    rows = input.astype(np.float32).reshape(-1, input.shape[-1])
    inverse = np.float32(1.0) / scales.astype(np.float32).reshape(-1, 1)
    with np.errstate(over="ignore"):
        moved = rows * inverse + zero_points.astype(np.float32).reshape(-1, 1)
    rounded = np.clip(np.round(moved), *codes.limits)
    return rounded.reshape(input.shape).astype(numpy_dtype(codes.dtype, _holding(*codes.limits)))


@_named("dequantize_per_token.default", "dequantize_per_token.out")
def dequantize_per_token(
    cx: Context,
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    codes: UnusedQuantRange,
    output_dtype: Unused,
    *,
    out: Tensor,
) -> None:
    dequantize(cx, input, _tokens(input, scales, zero_points), out)


@dequantize_per_token.reference
def _(
    input: Any,
    scales: Any,
    zero_points: Any,
    codes: UnusedQuantRange,
    output_dtype: int | None,
) -> Any:
    rows = input.reshape(-1, input.shape[-1])
    values = numpy_dequantize(rows, scales.reshape(-1, 1), zero_points.reshape(-1, 1), output_dtype)
    return values.reshape(input.shape)


# -- NumPy, for references ---------------------------------------------------------------------------------------------


def _along(values: Any, x: Any, axis: int) -> Any:
    """Return one value per channel, shaped to broadcast over `x`."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return values.reshape(shape).astype(np.float32)


def _holding(lowest: int, highest: int) -> Any:
    """Return the dtype of codes within these limits, if the schema has none."""
    if lowest >= 0 and highest <= 255:
        return np.uint8
    return np.int8 if lowest >= -128 and highest <= 127 else np.int32


def numpy_quantize(x: Any, inverse: Any, zero: Any, lowest: int, highest: int, dtype: int | None = None) -> Any:
    """Return the codes of float32 values, with the operations of PyTorch."""
    with np.errstate(over="ignore"):  # infinity is clamped like any other number
        rounded = np.round(x.astype(np.float32) * inverse) + np.asarray(zero, np.float32)
    return np.clip(rounded, lowest, highest).astype(numpy_dtype(dtype, _holding(lowest, highest)))


def numpy_dequantize(x: Any, scale: Any, zero: Any, dtype: int | None = None) -> Any:
    """Return the float32 values of codes."""
    values = (x.astype(np.float32) - np.asarray(zero, np.float32)) * np.asarray(scale, np.float32)
    return values.astype(numpy_dtype(dtype, np.float32))

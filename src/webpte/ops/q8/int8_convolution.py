"""Layers over int8 codes in (N, H, W, C), with the arithmetic of XNNPACK.

    sum  = bias[channel] + the products of codes and weights      in i32
    code = clamp(round(sum * scale[channel]) + zero, low, high)   in f32, ties to even

The bias is less the input's zero point times the sum of the channel's weights, so that codes are multiplied as they
are stored. Outside the image the input is its zero point. Weights are (words, output channels, 4): a word is four
neighbors of the inputs of a channel, in the order (ky, kx, input channel of the group), each tap padded with zeros.
Weights of layers for each channel are (taps, channels).

Codes may go through a program before they are stored, such as the addition of a residual: see int8_epilogue.wgsl.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType, numel
from ...graph.names import INT8_CONVOLUTION, INT8_DYNAMIC_CONVOLUTION, INT8_IMAGE_CODES, INT8_LINEAR
from ...lowering import dim_rules
from ...lowering.context import Context, Dims, Tensor
from ...lowering.registry import op
from ...lowering.shapes import coalesce, strides
from ...lowering.traits import CallSizes, OpTraits, sums_over
from ...wgsl import FEW_REGISTERS, Uniforms, dims8, f32, u32
from ..matmul.epilogue import NO_EPILOGUE, STORED, CompiledEpilogue, Epilogue, applied
from .q8ta import require_codes

LAYER_DTYPES = frozenset({DType.INT8, DType.INT32, DType.FLOAT32})


class ImageWindowParams(Uniforms):
    in_height: u32
    in_width: u32
    out_height: u32
    out_width: u32
    kernel_y: u32
    kernel_x: u32
    stride_y: u32
    stride_x: u32
    padding_y: u32
    padding_x: u32
    dilation_y: u32
    dilation_x: u32


class Int8ConvolutionParams(ImageWindowParams):
    count: u32  # output elements
    pixels: u32  # of all outputs
    channels: u32  # of the output
    channel_tiles: u32  # of four
    group_channels: u32  # output channels of a group
    in_channels: u32
    depth: u32  # input channels of a group
    depth_words: u32
    last_word: u32  # of the input
    outside: u32  # four codes of the input's 0
    zero: f32
    low: f32
    high: f32


@dataclass(frozen=True)
class CodeLimits:
    """The zero point and the smallest and largest code of an output."""

    zero: int
    low: int
    high: int

    def numpy(self, numbers: Any) -> Any:
        """Return the codes of rounded numbers."""
        return np.clip(numbers + np.float32(self.zero), self.low, self.high).astype(np.int8)


@dataclass(frozen=True)
class FixedPointSum:
    """(bias + a * a_factor + b * b_factor) >> shift."""

    a_factor: int
    b_factor: int
    bias: int
    shift: int

    def numpy(self, a: Any, b: Any) -> Any:
        return (self.bias + a.astype(np.int64) * self.a_factor + b.astype(np.int64) * self.b_factor) >> self.shift


@dataclass(frozen=True)
class NumberLimits:
    """The smallest and largest number of an output that is not quantized."""

    low: float
    high: float

    @property
    def zero(self) -> int:
        return 0


@dataclass(frozen=True)
class ImageWindow:
    """The part of an image (N, H, W, C) that an output reads. `padding` is top, left, bottom, right."""

    kernel_size: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]

    def extent(self, sizes: Dims) -> Dims:
        """Return height and width of the output."""
        return tuple((n + p - d * (k - 1) - 1) // s + 1 for n, k, s, d, p in self.axes(sizes))

    def axes(self, sizes: Dims) -> Iterator[tuple[int, ...]]:
        """Yield size, kernel size, stride, dilation and padding of both sides, of each axis."""
        padding = map(sum, zip(self.padding[:2], self.padding[2:], strict=True))
        return zip(sizes, self.kernel_size, self.stride, self.dilation, padding, strict=True)

    def uniforms(self, sizes: Dims, out_sizes: Dims) -> dict[str, int]:
        """Return the fields of ImageWindowParams."""
        pairs = {
            "kernel": self.kernel_size,
            "stride": self.stride,
            "padding": self.padding[:2],
            "dilation": self.dilation,
        }
        fields = {f"{name}_{axis}": n for name, pair in pairs.items() for axis, n in zip("yx", pair, strict=True)}
        (height, width), (out_height, out_width) = sizes, out_sizes
        return fields | {"in_height": height, "in_width": width, "out_height": out_height, "out_width": out_width}


@dataclass(frozen=True)
class Int8Window(ImageWindow):
    """How a convolution reads its input."""

    output_padding: list[int]
    transposed: bool
    groups: int

    def extent(self, sizes: Dims) -> Dims:
        """Return height and width of the output."""
        if not self.transposed:
            return super().extent(sizes)
        axes = zip(self.axes(sizes), self.output_padding, strict=True)
        return tuple((n - 1) * s - p + d * (k - 1) + 1 + extra for (n, k, s, d, p), extra in axes)

    @property
    def pointwise(self) -> bool:
        """Return whether each output pixel reads the input pixel at its own position."""
        still = not any((*self.padding, *self.output_padding, self.transposed))
        return still and {*self.kernel_size, *self.stride} == {1}


POINT = Int8Window(
    kernel_size=[1, 1],
    stride=[1, 1],
    padding=[0, 0, 0, 0],
    dilation=[1, 1],
    output_padding=[0, 0],
    transposed=False,
    groups=1,
)


@dataclass(frozen=True)
class Int8Layer:
    """The constants of a layer."""

    weights: Tensor
    scales: Tensor
    bias: Tensor
    input_zero: int


def _params(
    x: Tensor, window: Int8Window, codes: CodeLimits | NumberLimits, zero: int, out: Tensor
) -> Int8ConvolutionParams:
    """Return the uniforms of an image (N, H, W, C), or of rows (..., C) of which every one is a pixel."""
    depth, channels = x.dims[-1] // window.groups, out.dims[-1]
    sizes, out_sizes = (t.dims[1:3] if t.rank == 4 else (1, 1) for t in (x, out))
    return Int8ConvolutionParams(
        **window.uniforms(sizes, out_sizes),
        count=out.numel,
        pixels=out.numel // channels,
        channels=channels,
        channel_tiles=channels // 4,
        group_channels=channels // window.groups,
        in_channels=x.dims[-1],
        depth=depth,
        depth_words=-(-depth // 4),
        last_word=-(-x.numel // 4) - 1,
        outside=(zero & 255) * 0x01010101,
        zero=codes.zero,
        low=codes.low,
        high=codes.high,
    )


def _run_layer(
    cx: Context,
    x: Tensor,
    layer: Int8Layer,
    codes: CodeLimits,
    window: Int8Window,
    epilogue: Epilogue,
    out: Tensor,
) -> None:
    operands = epilogue.tensors or []
    require_codes(x, layer.weights, out, *operands)
    _check(x, layer.weights, (layer.scales, layer.bias), window)
    params = _params(x, window, codes, layer.input_zero, out)
    reads = {"x": x, "w": layer.weights, "scales": layer.scales, "bias": layer.bias}
    if any(operand.numel != out.numel for operand in operands):
        raise ShapeError(
            argument="tensors",
            expected=f"the size of {list(out.dims)}",
            got=[list(operand.dims) for operand in operands],
            code="operand_mismatch",
        )
    compiled = epilogue.compile(DType.INT8, out.dims, (0, out.rank - 1))
    if layer.weights.rank == 3:
        _dispatch(cx, reads, params, window, out, compiled)
        return
    tiles = layer.scales.numel // 4
    cx.dispatch(
        "q8/int8_depthwise.wgsl",
        reads={**reads, **compiled.arrays},
        writes={"y": out},
        params=compiled.extend(params),
        threads=tiles * -(-out.numel // (16 * tiles)),
        transposed=window.transposed,
        program=compiled.program,
    )


def _dispatch(
    cx: Context,
    reads: dict[str, Tensor],
    params: Uniforms,
    window: Int8Window,
    out: Tensor,
    epilogue: CompiledEpilogue = STORED,
    dynamic: bool = False,
) -> None:
    channels, depth = out.dims[-1], reads["x"].dims[-1] // window.groups
    ragged = (channels if window.groups == 1 else channels // window.groups) % 4 != 0
    pixels = out.numel // channels
    tile = 1 if pixels == 1 else 2 if cx.caps.registers <= FEW_REGISTERS else 4
    cx.dispatch(
        "q8/int8_convolution.wgsl",
        reads={**reads, **epilogue.arrays},
        writes={"y": out},
        params=epilogue.extend(params),
        threads=-(-out.numel // 4) if ragged else (channels // 4) * -(-pixels // tile),
        rows=4 if ragged else tile,
        ragged=ragged,
        aligned=depth % 4 == 0,
        wide=depth % 16 == 0 and not ragged,
        pointwise=window.pointwise,
        transposed=window.transposed,
        dynamic=dynamic,
        program=epilogue.program,
    )


def _check(x: Tensor, weights: Tensor, by_channel: tuple[Tensor, ...], window: Int8Window) -> None:
    """Raise ShapeError if the constants do not fit the input."""
    channels, depth = by_channel[0].numel, x.dims[-1] // window.groups
    if weights.rank == 2:
        expected: Dims = (numel(tuple(window.kernel_size)), x.dims[-1])
        fits = channels == x.dims[-1] == window.groups and channels % 4 == 0
    else:
        expected = (numel(tuple(window.kernel_size)) * -(-depth // 4), channels, 4)
        fits = x.dims[-1] == depth * window.groups and channels % window.groups == 0
    if weights.dims != expected or any(t.numel != channels for t in by_channel) or not fits:
        raise ShapeError(
            f"input {list(x.dims)} and weights {list(weights.dims)} have incompatible shapes for {channels} "
            f"channels in {window.groups} groups",
            code="operand_mismatch",
        )


def _out_dims(x: Tensor, window: Int8Window, channels: int) -> Dims:
    sizes = window.extent(x.dims[1:3])
    if x.rank != 4 or any(size < 1 for size in sizes):
        raise ShapeError(
            f"input {list(x.dims)} is too small for a kernel of {window.kernel_size}: the output would be "
            f"{list(sizes)}",
            code="too_small",
        )
    return (x.dims[0], *sizes, channels)


def convolution_flops(sizes: CallSizes) -> int:
    transposed = sizes.number("transposed")
    side, channels = (sizes.dims("x"), sizes.out[-1]) if transposed else (sizes.out, sizes.dims("x")[-1])
    return 2 * numel(side) * numel(tuple(sizes.numbers("kernel_size"))) * channels // int(sizes.number("groups"))


_CONVOLVED = dim_rules.convolved_images(
    "x", "scales", "kernel_size", "stride", "padding", "dilation", transposed="transposed"
)


@op(INT8_CONVOLUTION, dtypes=LAYER_DTYPES, traits=OpTraits(work=convolution_flops, dims=_CONVOLVED))
def int8_convolution(
    cx: Context,
    x: Tensor,
    layer: Int8Layer,
    codes: CodeLimits,
    window: Int8Window,
    epilogue: Epilogue = NO_EPILOGUE,
    *,
    out: Tensor,
) -> None:
    out.dims = _out_dims(x, window, layer.scales.numel)
    _run_layer(cx, x, layer, codes, window, epilogue, out)


@op(
    INT8_LINEAR,
    dtypes=LAYER_DTYPES,
    traits=OpTraits(work=sums_over("x"), dims=dim_rules.linear("x", "scales")),
)
def int8_linear(
    cx: Context, x: Tensor, layer: Int8Layer, codes: CodeLimits, epilogue: Epilogue = NO_EPILOGUE, *, out: Tensor
) -> None:
    out.dims = (*x.dims[:-1], layer.scales.numel)
    _run_layer(cx, x, layer, codes, POINT, epilogue, out)


class ImageCodesParams(Uniforms):
    count: u32
    rank: u32
    image: u32  # elements of an image
    dims: dims8
    x_strides: dims8


@op(INT8_IMAGE_CODES, dtypes=LAYER_DTYPES)
def int8_image_codes(cx: Context, x: Tensor, lows: Tensor, highs: Tensor, dims: list[int], *, out: Tensor) -> None:
    """Quantize each image by its smallest and largest number. Dim d of the result is dim dims[d] of `x`."""
    if sorted(dims) != list(range(x.rank)) or dims[0] != 0 or {lows.numel, highs.numel} != {x.dims[0]}:
        raise ShapeError(argument="dims", expected="a permutation that keeps images", got=dims, code="operand_mismatch")
    require_codes(out)
    out.dims = tuple(x.dims[d] for d in dims)
    own = strides(x.dims)
    walked, (steps,) = coalesce(out.dims, tuple(own[d] for d in dims))
    cx.dispatch(
        "q8/int8_image_codes.wgsl",
        reads={"x": x, "lows": lows, "highs": highs},
        writes={"y": out},
        params=ImageCodesParams(count=x.numel, rank=len(walked), image=numel(x.dims[1:]), dims=walked, x_strides=steps),
        threads=-(-x.numel // 4),
        flat=steps == strides(walked),
    )


@dataclass(frozen=True)
class DynamicInt8Layer:
    """The constants of a layer whose input is quantized at run time."""

    weights: Tensor
    scales: Tensor
    bias: Tensor
    weight_sums: Tensor


@op(INT8_DYNAMIC_CONVOLUTION, dtypes=LAYER_DTYPES, traits=OpTraits(work=convolution_flops))
def int8_dynamic_convolution(
    cx: Context,
    x: Tensor,
    lows: Tensor,
    highs: Tensor,
    layer: DynamicInt8Layer,
    limits: NumberLimits,
    window: Int8Window,
    *,
    out: Tensor,
) -> None:
    """Convolve codes of `int8_image_codes` to numbers."""
    require_codes(x, layer.weights)
    _check(x, layer.weights, (layer.scales, layer.bias, layer.weight_sums), window)
    out.dims = _out_dims(x, window, layer.scales.numel)
    channels = {"scales": layer.scales, "bias": layer.bias, "weight_sums": layer.weight_sums}
    reads = {"x": x, "w": layer.weights, **channels, "lows": lows, "highs": highs}
    _dispatch(cx, reads, _params(x, window, limits, 0, out), window, out, dynamic=True)


# -- references --------------------------------------------------------------------------------------------------------


@int8_linear.reference
def _(x: Any, layer: Int8Layer, codes: CodeLimits, epilogue: Epilogue) -> Any:
    weights: Any = layer.weights
    rows = weights.astype(np.int64).transpose(1, 0, 2).reshape(weights.shape[1], -1)[:, : x.shape[-1]]
    return applied([codes.numpy(_numbers(x.astype(np.int64) @ rows.T, layer))], epilogue)


@int8_convolution.reference
def _(x: Any, layer: Int8Layer, codes: CodeLimits, window: Int8Window, epilogue: Epilogue) -> Any:
    sums = _sums(x.astype(np.int64), layer.weights, layer.input_zero, window)
    return applied([codes.numpy(_numbers(sums, layer))], epilogue)


@int8_image_codes.reference
def _(x: Any, lows: Any, highs: Any, dims: list[int]) -> Any:
    rate, _, zero = _coding(lows, highs)
    codes = np.round(x * rate.reshape(-1, *(1,) * (x.ndim - 1))) + zero.reshape(-1, *(1,) * (x.ndim - 1))
    return np.clip(codes, -128, 127).astype(np.int8).transpose(dims)


def _coding(low: Any, high: Any) -> tuple[Any, Any, Any]:
    """Return rate, scale and zero point of each image."""
    low, high = np.minimum(low, np.float32(0)).reshape(-1), np.maximum(high, np.float32(0)).reshape(-1)
    rate = np.float32(255) / np.maximum(high - low, np.finfo(np.float32).tiny)
    return rate, (high - low) / np.float32(255), np.clip(np.round(-low * rate - np.float32(128)), -128, 127)


@int8_dynamic_convolution.reference
def _(x: Any, lows: Any, highs: Any, layer: DynamicInt8Layer, limits: NumberLimits, window: Int8Window) -> Any:
    _, scale, zero = _coding(lows, highs)
    less = x.astype(np.int64) - zero.astype(np.int64).reshape(-1, 1, 1, 1)
    scales: Any = layer.scales
    # Codes outside the image are the zero point, so that every sum has the weights of all taps.
    excess = _rows(layer.weights, x.shape[-1], window).sum((2, 3)).reshape(-1) - layer.weight_sums
    sums = _sums(less, layer.weights, 0, window) + zero.astype(np.int64).reshape(-1, 1, 1, 1) * excess
    numbers = sums.astype(np.float32) * scale.reshape(-1, 1, 1, 1) * scales
    return np.clip(numbers + layer.bias, limits.low, limits.high).astype(np.float32)


def _sums(x: Any, weights: Any, outside: int, window: Int8Window) -> Any:
    """Return the sums of products (N, H, W, channels)."""
    weights = _rows(weights, x.shape[-1], window)
    height, width = window.extent(x.shape[1:3])
    image = x.reshape(*x.shape[:3], window.groups, -1)
    sums = np.zeros((x.shape[0], height, width, window.groups, weights.shape[1]), np.int64)
    for tap, (ky, kx) in enumerate(itertools.product(*map(range, window.kernel_size))):
        rows = _read(window, 0, ky, height, x.shape[1])
        columns = _read(window, 1, kx, width, x.shape[2])
        pixels = np.full((x.shape[0], height, width, *image.shape[3:]), outside, np.int64)
        ys, xs = np.ix_(rows >= 0, columns >= 0)
        pixels[:, ys, xs] = image[:, rows[rows >= 0]][:, :, columns[columns >= 0]].reshape(pixels[:, ys, xs].shape)
        sums += np.einsum("nhwgi,goi->nhwgo", pixels, weights[:, :, tap])
    return sums.reshape(*sums.shape[:3], -1)


def _read(window: Int8Window, axis: int, tap: int, size: int, limit: int) -> Any:
    """Return the positions along an axis that outputs read through a tap, -1 outside."""
    at, reach, stride = np.arange(size), tap * window.dilation[axis], window.stride[axis]
    if window.transposed:
        ahead = at + window.padding[axis] - reach
        read = np.where(ahead % stride == 0, ahead // stride, -1)
    else:
        read = at * stride + reach - window.padding[axis]
    return np.where((read >= 0) & (read < limit), read, -1)


def _rows(weights: Any, in_channels: int, window: Int8Window) -> Any:
    """Return weights as (groups, output channels of a group, taps, input channels of a group)."""
    if weights.ndim == 2:
        return weights.astype(np.int64).T[:, None, :, None]
    depth = in_channels // window.groups
    taps = numel(tuple(window.kernel_size))
    rows = weights.astype(np.int64).transpose(1, 0, 2).reshape(weights.shape[1], taps, -1)[:, :, :depth]
    return rows.reshape(window.groups, -1, taps, depth)


def _numbers(sums: Any, layer: Int8Layer) -> Any:
    bias: Any = layer.bias
    scales: Any = layer.scales
    return np.round((sums + bias).astype(np.float32) * scales)

"""Two-dimensional convolutions over int8 codes: plain, pointwise, depthwise, transposed, in groups.

Weights are matrices with a row per output channel and columns in the order (ky, kx, input channel of the group),
padded to a multiple of 4; those of depthwise convolutions are (Ky, Kx, channels). Outside the image the input is 0,
that is its zero point.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...errors import ShapeError
from ...graph import numel
from ...lowering.context import Context, Dims, Tensor
from ...lowering.registry import op
from ...lowering.traits import CallSizes, OpTraits
from ...wgsl import FEW_REGISTERS, u32
from ..convolution.convolution_kernels import ConvolutionWindow
from .q8ta import (
    Q8TA,
    ChannelEpilogue,
    InputOutputQuant,
    InputQuantParams,
    OutputQuantParams,
    Q8Weights,
    QuantParams,
    ScalingParams,
    codes_of,
    numpy_codes,
    numpy_input,
    numpy_values,
    require_codes,
)


class Q8taConvolutionParams(ScalingParams):
    count: u32  # output elements
    groups: u32
    depth: u32  # input channels of a group
    channels: u32  # output channels of a group
    channel_tiles: u32
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
    w_channel: u32  # bytes from one output channel to the next
    w_tap: u32
    w_depth: u32


@dataclass(frozen=True)
class Q8taGeometry:
    """The arguments of a convolution without its layer, in the schema's order."""

    kernel_size: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    @property
    def window(self) -> ConvolutionWindow:
        return _window(self)


@dataclass(frozen=True)
class TransposedGeometry:
    """The arguments that describe a transposed convolution."""

    kernel_size: list[int]
    stride: list[int]
    padding: list[int]
    output_padding: list[int]
    dilation: list[int]
    groups: int

    @property
    def window(self) -> ConvolutionWindow:
        return _window(self, self.output_padding)


def _window(geometry: Q8taGeometry | TransposedGeometry, output_padding: list[int] | None = None) -> ConvolutionWindow:
    """Return the window of a geometry. A transposed convolution has `output_padding`."""
    arguments = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation, output_padding or [0, 0])
    if any(len(values) != 2 for values in arguments):
        raise ShapeError(
            argument="kernel_size, stride, padding, dilation, output_padding",
            expected="2 integers each",
            got=arguments,
            code="wrong_length",
        )
    kernel, stride, padding, dilation, further = map(tuple, arguments)
    return ConvolutionWindow(
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        output_padding=further,
        transposed=output_padding is not None,
        groups=geometry.groups,
    )


class WeightStrides(NamedTuple):
    """The layout of weights: bytes from one output channel, tap or input channel to the next."""

    channel: int
    tap: int
    depth: int


class Q8taConvolution(NamedTuple):
    """The operands of a convolution over codes, (N, IC, H, W) -> (N, OC, H, W)."""

    x: Tensor
    layer: Q8Weights
    ends: InputOutputQuant
    channels: ChannelEpilogue
    window: ConvolutionWindow

    def dispatch(self, cx: Context, out: Tensor, depthwise: bool = False) -> None:
        """Run the convolution, and set the dims of `out`."""
        if self.ends.output is not None:
            require_codes(out)
        self._check_input()
        count, columns, layout = self._depthwise() if depthwise else self._by_rows()
        out.dims = (*self.x.dims[:-3], count, *self._extents(columns))
        self.channels.check(count)
        groups = self.window.groups
        images, pixels = numel(out.dims[:-3]), numel(out.dims[-2:])
        # A word of output is four pixels of a channel. If planes do not fill words, it is any four neighbors.
        ragged = pixels % 4 != 0
        tile = (4 if cx.caps.registers > FEW_REGISTERS else 2) if count // groups >= 4 and not ragged else 1
        tiles = -(-(count // groups) // tile)
        cx.dispatch(
            "q8/q8ta_convolution.wgsl",
            reads={"x": self.x, "w": self.layer.weights, **self.channels.arrays},
            writes={"y": out},
            params=self._params(layout, tiles, out),
            threads=-(-out.numel // 4) if ragged else images * groups * tiles * (pixels // 4),
            tile=tile,
            ragged=ragged,
            aligned=self._pointwise and not ragged,
            transposed=self.window.transposed,
            coded=self.ends.output is not None,
            result=out.wgsl,
            **self.channels.flags,
        )

    @property
    def _pointwise(self) -> bool:
        """Return whether each output pixel reads only the input pixel at its own position."""
        window = self.window
        still = not any((*window.padding, *window.output_padding, window.transposed))
        return still and {*window.kernel, *window.stride} == {1}

    @property
    def _depth(self) -> int:
        """Return the input channels of a group."""
        return self.x.dims[-3] // self.window.groups

    def _by_rows(self) -> tuple[int, int, WeightStrides]:
        """Return the output channels, the codes of each and the layout of weights with a row per output channel."""
        weights = self.layer.weights
        if weights.rank != 2 or weights.dims[0] % self.window.groups:
            raise ShapeError(
                argument="weights",
                expected=f"a matrix whose rows are a multiple of {self.window.groups} groups",
                got=list(weights.dims),
                code="operand_mismatch",
            )
        count, columns = weights.dims
        return count, columns, WeightStrides(columns, self._depth, 1)

    def _depthwise(self) -> tuple[int, int, WeightStrides]:
        """Return channels, columns and strides of depthwise weights (Ky, Kx, channels)."""
        window, dims, channels = self.window, self.layer.weights.dims, self.x.dims[-3]
        if dims[:2] != window.kernel or not window.groups == channels <= dims[2]:
            raise ShapeError(
                argument="weights",
                expected=f"{list(window.kernel)} x {channels} channels in as many groups",
                got=f"{list(dims)} and {window.groups} groups",
                code="operand_mismatch",
            )
        return window.groups, numel(window.kernel), WeightStrides(1, dims[2], 0)

    def _check_input(self) -> None:
        require_codes(self.x, self.layer.weights)
        if self.x.rank not in (3, 4) or self.x.dims[-3] % self.window.groups:
            raise ShapeError(
                argument="input",
                expected=f"(N, C, H, W) or (C, H, W), C being a multiple of {self.window.groups} groups",
                got=list(self.x.dims),
                code="operand_mismatch",
            )

    def _extents(self, columns: int) -> Dims:
        """Return the output's height and width, or raise ShapeError if weights or input are too small."""
        x, weights, window = self.x, self.layer.weights, self.window
        needed = numel(window.kernel) * self._depth
        if columns < needed:
            raise ShapeError(
                f"weights {list(weights.dims)}: expected at least {needed} codes per channel, got {columns}",
                code="operand_mismatch",
            )
        sizes = window.extent(x.dims[-2:])
        if any(size < 1 for size in sizes):
            raise ShapeError(
                f"input {list(x.dims)} is too small for a kernel of {list(window.kernel)}: the output "
                f"would be {list(sizes)}",
                code="too_small",
            )
        return sizes

    def _params(self, layout: WeightStrides, tiles: int, out: Tensor) -> Q8taConvolutionParams:
        axes = {
            f"{name}_{axis}": value
            for name in ("kernel", "stride", "padding", "dilation")
            for axis, value in zip("yx", getattr(self.window, name), strict=True)
        }
        return Q8taConvolutionParams(
            **self.ends.uniforms,
            **axes,
            count=out.numel,
            groups=self.window.groups,
            depth=self._depth,
            channels=out.dims[-3] // self.window.groups,
            channel_tiles=tiles,
            in_height=self.x.dims[-2],
            in_width=self.x.dims[-1],
            out_height=out.dims[-2],
            out_width=out.dims[-1],
            w_channel=layout.channel,
            w_tap=layout.tap,
            w_depth=layout.depth,
        )


def _taps(sizes: CallSizes, side: Dims, channels: int) -> int:
    """Return the operations: each pixel of one side times each tap and the other side's channels of a group."""
    return 2 * numel(side) * numel(tuple(sizes.numbers("kernel_size"))) * channels // int(sizes.number("groups"))


def _flops(sizes: CallSizes) -> int:
    return _taps(sizes, sizes.out, sizes.dims("x")[-3])


@op(
    "et_vk.q8ta_conv2d.default",
    "et_vk.q8ta_conv2d_pw.default",
    "et_vk.q8ta_conv2d_dw.default",
    "et_vk.conv2d_q8ta_q8csw_q8to.default",  # the last two in ExecuTorch 1.1, where they pass no activation
    "et_vk.conv2d_q8ta_q8csw_q8to_dw.default",
    dtypes=Q8TA,
    traits=OpTraits(work=_flops),
)
def q8ta_conv2d(
    cx: Context,
    x: Tensor,
    input: InputQuantParams,
    layer: Q8Weights,
    output: OutputQuantParams,
    bias: Tensor | None,
    geometry: Q8taGeometry,
    activation: str = "none",
    *,
    out: Tensor,
) -> None:
    ends, channels = InputOutputQuant(input, output), layer.channels(bias, activation)
    Q8taConvolution(x, layer, ends, channels, geometry.window).dispatch(cx, out, depthwise=layer.weights.rank == 3)


@op("et_vk.conv2d_q8ta_q8csw.default", dtypes=Q8TA, traits=OpTraits(work=_flops))
def conv2d_q8ta_q8csw(
    cx: Context,
    x: Tensor,
    input: InputQuantParams,
    layer: Q8Weights,
    bias: Tensor | None,
    geometry: Q8taGeometry,
    *,
    out: Tensor,
) -> None:
    """Compute the convolution of ExecuTorch 1.0, from floats to floats."""
    ends, channels = InputOutputQuant(input), layer.channels(bias)
    Q8taConvolution(codes_of(cx, x, input), layer, ends, channels, geometry.window).dispatch(cx, out)


def _transposed_flops(sizes: CallSizes) -> int:
    return _taps(sizes, sizes.dims("x"), sizes.out[-3])


@op("et_vk.q8ta_conv2d_transposed.default", dtypes=Q8TA, traits=OpTraits(work=_transposed_flops))
def q8ta_conv2d_transposed(
    cx: Context,
    x: Tensor,
    input: InputQuantParams,
    layer: Q8Weights,
    output: OutputQuantParams,
    bias: Tensor | None,
    geometry: TransposedGeometry,
    activation: str,
    *,
    out: Tensor,
) -> None:
    ends, channels = InputOutputQuant(input, output), layer.channels(bias, activation)
    Q8taConvolution(x, layer, ends, channels, geometry.window).dispatch(cx, out)


# -- references: one shifted view of the image per tap -----------------------------------------------------------------


@q8ta_conv2d.reference
def _(
    x: Any,
    input: QuantParams,
    layer: Q8Weights,
    output: QuantParams,
    bias: Any,
    geometry: Q8taGeometry,
    activation: str,
) -> Any:
    return _coded(_sums(x, input, layer, geometry), input, layer, bias, activation, output)


@conv2d_q8ta_q8csw.reference
def _(x: Any, input: QuantParams, layer: Q8Weights, bias: Any, geometry: Q8taGeometry) -> Any:
    sums = _sums(numpy_input(x, input), input, layer, geometry)
    return numpy_values(sums, input.scale, layer.weight_scales, bias, "none", after=2).astype(x.dtype)


def _sums(x: Any, input: QuantParams, layer: Q8Weights, geometry: Q8taGeometry) -> Any:
    """Return the integer sums of a convolution that is not transposed, (..., OC, H, W)."""
    window = geometry.window
    kernels = _kernels(layer.weights, x.shape[-3], window)
    (top, left), sizes = window.padding, window.extent(x.shape[-2:])
    image = np.pad(_grouped(x, input, window), [(0, 0)] * 3 + [(top, top), (left, left)])
    sums: Any = 0
    for ky, kx in itertools.product(*map(range, window.kernel)):
        pixels = image[_view(window, (ky, kx), sizes)]
        sums = sums + np.einsum("ngiyx,goi->ngoyx", pixels, kernels[:, :, ky, kx])
    return sums.reshape(*x.shape[:-3], -1, *sizes)


@q8ta_conv2d_transposed.reference
def _(
    x: Any,
    input: QuantParams,
    layer: Q8Weights,
    output: QuantParams,
    bias: Any,
    geometry: TransposedGeometry,
    activation: str,
) -> Any:
    window = geometry.window
    kernels = _kernels(layer.weights, x.shape[-3], window)
    (top, left), (height, width) = window.padding, window.extent(x.shape[-2:])
    image = _grouped(x, input, window)
    canvas = np.zeros((*image.shape[:2], kernels.shape[1], height + 2 * top, width + 2 * left), np.int64)
    for ky, kx in itertools.product(*map(range, window.kernel)):
        pixels = _view(window, (ky, kx), x.shape[-2:])
        canvas[pixels] += np.einsum("ngiyx,goi->ngoyx", image, kernels[:, :, ky, kx])
    sums = canvas[..., top : top + height, left : left + width].reshape(*x.shape[:-3], -1, height, width)
    return _coded(sums, input, layer, bias, activation, output)


def _view(window: ConvolutionWindow, tap: tuple[int, int], counts: Dims) -> tuple[Any, ...]:
    """Return the slices of the pixels that one tap reads, for all positions of the kernel."""
    axes = zip(tap, window.dilation, window.stride, counts, strict=True)
    return (..., *(slice(k * d, k * d + s * (n - 1) + 1, s) for k, d, s, n in axes))


def _grouped(x: Any, input: QuantParams, window: ConvolutionWindow) -> Any:
    """Return the input as (N, G, IC / G, H, W), in integers whose zero is 0."""
    depth = x.shape[-3] // window.groups
    return x.reshape(-1, window.groups, depth, *x.shape[-2:]).astype(np.int64) - input.zero_point


def _kernels(weights: Any, channels: int, window: ConvolutionWindow) -> Any:
    """Return the weights as (G, OC / G, Ky, Kx, IC / G)."""
    if weights.ndim == 3:  # (Ky, Kx, C)
        rows = weights[..., :channels].transpose(2, 0, 1)
    else:
        rows = weights[:, : numel(window.kernel) * (channels // window.groups)]
    return rows.astype(np.int64).reshape(window.groups, -1, *window.kernel, channels // window.groups)


def _coded(sums: Any, input: QuantParams, layer: Q8Weights, bias: Any, activation: str, output: QuantParams) -> Any:
    return numpy_codes(numpy_values(sums, input.scale, layer.weight_scales, bias, activation, after=2), output)

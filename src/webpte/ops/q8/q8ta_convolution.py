"""Two-dimensional convolutions over int8 codes: plain, pointwise, depthwise, transposed, in groups.

Weights are matrices with a row per output channel and columns in the order (ky, kx, input channel of the group),
padded to a multiple of 4; those of depthwise convolutions are (Ky, Kx, channels). Outside the image the input is 0,
that is its zero point.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from ...errors import ShapeError
from ...graph import numel
from ...lowering.context import Context, Dims, Tensor
from ...lowering.registry import Unused, op
from ...wgsl import u32
from ..convolution.convolution_kernels import Geometry
from .q8ta import Q8TA, Channels, Ends, Scaling, numpy_codes, numpy_values, require_codes


class Convolution(Scaling):
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


class Layout(NamedTuple):
    """Where weights lie: bytes from one output channel, tap or input channel to the next."""

    channel: int
    tap: int
    depth: int


def _stays(geometry: Geometry) -> bool:
    """Whether each output pixel reads the one input pixel at its own place."""
    still = not any((*geometry.padding, *geometry.output_padding, geometry.transposed))
    return still and {*geometry.kernel, *geometry.stride} == {1}


def _convolve(
    cx: Context,
    x: Tensor,
    weights: Tensor,
    ends: Ends,
    channels: Channels,
    geometry: Geometry,
    layout: Layout,
    out: Tensor,
) -> None:
    """(N, IC, H, W) -> (N, OC, H, W). The caller sets `out.dims`."""
    channels.check(out.dims[-3])
    images, pixels = numel(out.dims[:-3]), numel(out.dims[-2:])
    count = out.dims[-3] // geometry.groups  # channels of a group
    # A word of output is four pixels of a channel; where planes do not fill words it is any four neighbours.
    ragged = pixels % 4 != 0
    tile = 4 if count >= 4 and not ragged else 1
    tiles = -(-count // tile)
    cx.dispatch(
        "q8/q8ta_convolution.wgsl",
        reads=(x, weights, *channels.operands),
        writes=(out,),
        params=_parameters(x, ends, geometry, layout, tiles, out),
        threads=-(-out.numel // 4) if ragged else images * geometry.groups * tiles * (pixels // 4),
        tile=tile,
        ragged=ragged,
        aligned=_stays(geometry) and not ragged,
        transposed=geometry.transposed,
        **channels.flags,
    )


def _parameters(x: Tensor, ends: Ends, geometry: Geometry, layout: Layout, tiles: int, out: Tensor) -> Convolution:
    axes = {
        f"{name}_{axis}": value
        for name in ("kernel", "stride", "padding", "dilation")
        for axis, value in zip("yx", getattr(geometry, name), strict=True)
    }
    return Convolution(
        **ends.uniforms,
        **axes,
        count=out.numel,
        groups=geometry.groups,
        depth=x.dims[-3] // geometry.groups,
        channels=out.dims[-3] // geometry.groups,
        channel_tiles=tiles,
        in_height=x.dims[-2],
        in_width=x.dims[-1],
        out_height=out.dims[-2],
        out_width=out.dims[-1],
        w_channel=layout.channel,
        w_tap=layout.tap,
        w_depth=layout.depth,
    )


def _extents(x: Tensor, weights: Tensor, columns: int, geometry: Geometry) -> Dims:
    """The output's height and width, once all operands are known to fit."""
    require_codes(x, weights)
    if x.rank not in (3, 4) or x.dims[-3] % geometry.groups:
        raise ShapeError(f"input {list(x.dims)} is no image with channels in {geometry.groups} groups")
    needed = numel(geometry.kernel) * (x.dims[-3] // geometry.groups)
    if columns < needed:
        raise ShapeError(f"weights {list(weights.dims)} have {columns} numbers per channel, not {needed}")
    sizes = geometry.extent(x.dims[-2:])
    if any(size < 1 for size in sizes):
        raise ShapeError(f"input {list(x.dims)} is too small for a kernel of {list(geometry.kernel)}: {list(sizes)}")
    return sizes


def _by_rows(
    cx: Context, x: Tensor, weights: Tensor, ends: Ends, channels: Channels, geometry: Geometry, out: Tensor
) -> None:
    """A convolution with a row of weights per output channel."""
    require_codes(out)
    if weights.rank != 2 or weights.dims[0] % geometry.groups:
        raise ShapeError(f"weights {list(weights.dims)} have no rows for {geometry.groups} groups")
    count, columns = weights.dims
    sizes = _extents(x, weights, columns, geometry)
    out.dims = (*x.dims[:-3], count, *sizes)
    _convolve(cx, x, weights, ends, channels, geometry, Layout(columns, x.dims[-3] // geometry.groups, 1), out)


@op("et_vk.q8ta_conv2d.default", "et_vk.q8ta_conv2d_pw.default", dtypes=Q8TA)
def q8ta_conv2d(
    cx: Context,
    x: Tensor,
    input_scale: float,
    input_zero_point: int,
    weights: Tensor,
    weight_sums: Unused,
    weight_scales: Tensor,
    output_scale: float,
    output_zero_point: int,
    bias: Tensor | None,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    *,
    out: Tensor,
) -> None:
    ends = Ends(input_scale, input_zero_point, output_scale, output_zero_point)
    geometry = _geometry(kernel_size, stride, padding, dilation, groups)
    _by_rows(cx, x, weights, ends, Channels(weight_scales, bias, activation), geometry, out)


@op("et_vk.q8ta_conv2d_dw.default", dtypes=Q8TA)
def q8ta_conv2d_dw(
    cx: Context,
    x: Tensor,
    input_scale: float,
    input_zero_point: int,
    weights: Tensor,
    weight_sums: Unused,
    weight_scales: Tensor,
    output_scale: float,
    output_zero_point: int,
    bias: Tensor | None,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    *,
    out: Tensor,
) -> None:
    require_codes(out)
    ends = Ends(input_scale, input_zero_point, output_scale, output_zero_point)
    geometry = _geometry(kernel_size, stride, padding, dilation, groups)
    if weights.rank != 3 or weights.dims[:2] != geometry.kernel or not groups == x.dims[-3] <= weights.dims[2]:
        raise ShapeError(f"weights {list(weights.dims)}, input {list(x.dims)} and {groups} groups are not depthwise")
    sizes = _extents(x, weights, numel(geometry.kernel), geometry)
    out.dims = (*x.dims[:-3], groups, *sizes)
    layout = Layout(1, weights.dims[2], 0)
    _convolve(cx, x, weights, ends, Channels(weight_scales, bias, activation), geometry, layout, out)


@op("et_vk.q8ta_conv2d_transposed.default", dtypes=Q8TA)
def q8ta_conv2d_transposed(
    cx: Context,
    x: Tensor,
    input_scale: float,
    input_zero_point: int,
    weights: Tensor,
    weight_sums: Unused,
    weight_scales: Tensor,
    output_scale: float,
    output_zero_point: int,
    bias: Tensor | None,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    output_padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    *,
    out: Tensor,
) -> None:
    ends = Ends(input_scale, input_zero_point, output_scale, output_zero_point)
    geometry = _geometry(kernel_size, stride, padding, dilation, groups, output_padding)
    _by_rows(cx, x, weights, ends, Channels(weight_scales, bias, activation), geometry, out)


def _geometry(
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    output_padding: list[int] | None = None,  # given where the convolution is transposed
) -> Geometry:
    lists = (kernel, stride, padding, dilation, output_padding or [0, 0])
    if any(len(values) != 2 for values in lists):
        raise ShapeError(f"kernel, stride, padding, dilation and output padding {lists} need 2 numbers each")
    return Geometry(
        kernel=(kernel[0], kernel[1]),
        stride=(stride[0], stride[1]),
        padding=(padding[0], padding[1]),
        dilation=(dilation[0], dilation[1]),
        output_padding=(0, 0) if output_padding is None else (output_padding[0], output_padding[1]),
        transposed=output_padding is not None,
        groups=groups,
    )


# -- references: one shifted view of the image per tap -----------------------------------------------------------------


@q8ta_conv2d.reference
@q8ta_conv2d_dw.reference
def _(
    x: Any,
    input_scale: float,
    input_zero_point: int,
    weights: Any,
    weight_sums: object,
    weight_scales: Any,
    output_scale: float,
    output_zero_point: int,
    bias: Any,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
) -> Any:
    geometry = _geometry(kernel_size, stride, padding, dilation, groups)
    kernels = _kernels(weights, x.shape[-3], geometry)
    (top, left), sizes = padding, geometry.extent(x.shape[-2:])
    image = np.pad(_grouped(x, input_zero_point, groups), [(0, 0)] * 3 + [(top, top), (left, left)])
    sums: Any = 0
    for ky, kx in itertools.product(*map(range, kernel_size)):
        rows, columns = (
            slice(k * d, k * d + s * (n - 1) + 1, s)
            for k, d, s, n in zip((ky, kx), dilation, stride, sizes, strict=True)
        )
        sums = sums + np.einsum("ngiyx,goi->ngoyx", image[..., rows, columns], kernels[:, :, ky, kx])
    return _coded(sums, x, input_scale, weight_scales, bias, activation, output_scale, output_zero_point)


@q8ta_conv2d_transposed.reference
def _(
    x: Any,
    input_scale: float,
    input_zero_point: int,
    weights: Any,
    weight_sums: object,
    weight_scales: Any,
    output_scale: float,
    output_zero_point: int,
    bias: Any,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    output_padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
) -> Any:
    geometry = _geometry(kernel_size, stride, padding, dilation, groups, output_padding)
    kernels = _kernels(weights, x.shape[-3], geometry)
    (top, left), (height, width) = padding, geometry.extent(x.shape[-2:])
    image = _grouped(x, input_zero_point, groups)
    canvas = np.zeros((*image.shape[:2], kernels.shape[1], height + 2 * top, width + 2 * left), np.int64)
    for ky, kx in itertools.product(*map(range, kernel_size)):
        rows, columns = (
            slice(k * d, k * d + s * (n - 1) + 1, s)
            for k, d, s, n in zip((ky, kx), dilation, stride, x.shape[-2:], strict=True)
        )
        canvas[..., rows, columns] += np.einsum("ngiyx,goi->ngoyx", image, kernels[:, :, ky, kx])
    sums = canvas[..., top : top + height, left : left + width]
    return _coded(sums, x, input_scale, weight_scales, bias, activation, output_scale, output_zero_point)


def _grouped(x: Any, zero: int, groups: int) -> Any:
    """(N, G, IC / G, H, W), as integers whose zero is 0."""
    return x.reshape(-1, groups, x.shape[-3] // groups, *x.shape[-2:]).astype(np.int64) - zero


def _kernels(weights: Any, channels: int, geometry: Geometry) -> Any:
    """(G, OC / G, Ky, Kx, IC / G)."""
    if weights.ndim == 3:  # (Ky, Kx, C)
        rows = weights[..., :channels].transpose(2, 0, 1)
    else:
        rows = weights[:, : numel(geometry.kernel) * (channels // geometry.groups)]
    return rows.astype(np.int64).reshape(geometry.groups, -1, *geometry.kernel, channels // geometry.groups)


def _coded(sums: Any, x: Any, x_scale: float, scales: Any, bias: Any, activation: str, scale: float, zero: int) -> Any:
    sums = sums.reshape(*x.shape[:-3], -1, *sums.shape[-2:])
    return numpy_codes(numpy_values(sums, x_scale, scales, bias, activation, after=2), scale, zero)

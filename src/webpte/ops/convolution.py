"""Convolutions over one, two or three spatial axes, also transposed and grouped.

One direct kernel walks three axes; missing ones have size 1. A 1 x 1 kernel that touches every pixel once is a matrix
product and takes that kernel.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..graph import numel
from ..wgsl import Uniforms, dims8, f32, u32
from .context import Context, Dims, Tensor
from .matmul import UNLIMITED, Addend, Limits, Shape, product, project
from .registry import FLOATS, op

AXES = 3


class Convolution(Uniforms):
    groups: u32
    depth: u32  # input channels of a group
    channels: u32  # output channels of a group
    channel_tiles: u32
    pixel_tiles: u32
    w_channel: u32  # kernels from one output channel of a group to the next
    w_depth: u32
    lowest: f32
    highest: f32
    in_dims: dims8
    out_dims: dims8
    kernel: dims8
    stride: dims8
    padding: dims8
    dilation: dims8


class Geometry(NamedTuple):
    """How taps, inputs and outputs lie to each other, per spatial axis."""

    kernel: Dims
    stride: Dims
    padding: Dims
    dilation: Dims
    output_padding: Dims
    transposed: bool
    groups: int

    def extent(self, sizes: Dims) -> Dims:
        """The spatial sizes of the output."""
        reach = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        rows = zip(sizes, reach, self.stride, self.padding, self.output_padding, strict=True)
        if self.transposed:
            return tuple((n - 1) * s - 2 * p + r + extra for n, r, s, p, extra in rows)
        return tuple((n + 2 * p - r) // s + 1 for n, r, s, p, _ in rows)

    @property
    def pointwise(self) -> bool:
        """Whether each output pixel reads the one input pixel at its own place, and every input channel of it."""
        plain = {*self.kernel, *self.stride} == {1} and not any((*self.padding, *self.output_padding))
        return plain and self.groups == 1 and not self.transposed


def _per_axis(values: list[int], axes: int) -> Dims:
    """One number may stand for all axes."""
    return tuple(values * axes if len(values) == 1 else values)


def convolve(
    cx: Context, x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, limits: Limits, out: Tensor
) -> None:
    """(N, IC, ...) -> (N, OC, ...) with weight (OC, IC / groups, ...), or (IC, OC / groups, ...) if transposed."""
    axes = weight.rank - 2
    channels = _out_channels(x, weight, bias, geometry)
    *batch, _ = x.dims[: x.rank - axes]  # empty for an unbatched input
    sizes = geometry.extent(x.dims[x.rank - axes :])
    if any(size < 1 for size in sizes):
        raise ShapeError(f"input {list(x.dims)} is too small for weight {list(weight.dims)}: output {list(sizes)}")
    out.dims = (*batch, channels, *sizes)
    count, pixels = numel(tuple(batch)), numel(sizes)
    if not geometry.pointwise:
        _direct(cx, x, weight, bias, geometry, limits, out)
    elif pixels == 1:
        project(cx, x, weight, bias, out, limits)
    else:
        shape = Shape(count, channels, weight.dims[1], pixels)  # (OC, IC) x (N, IC, pixels) -> (N, OC, pixels)
        addend = Addend(bias, (0, 1, 0)) if bias is not None else None
        product(cx, weight, x, out, shape, shared=True, addend=addend, limits=limits)


def _out_channels(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> int:
    """How many channels the output has, once all operands are known to fit."""
    axes, groups = weight.rank - 2, geometry.groups
    if not 1 <= axes <= AXES or x.rank not in (axes + 1, axes + 2):
        raise ShapeError(f"input {list(x.dims)} and weight {list(weight.dims)} do not make a convolution")
    lists = (geometry.stride, geometry.padding, geometry.dilation, geometry.output_padding)
    if any(len(values) != axes for values in lists):
        raise ShapeError(f"stride, padding, dilation and output_padding {lists} need {axes} numbers each")
    given = x.dims[x.rank - axes - 1]
    if geometry.transposed:
        fits, channels = weight.dims[0] == given and given % groups == 0, weight.dims[1] * groups
    else:
        fits, channels = weight.dims[1] * groups == given and weight.dims[0] % groups == 0, weight.dims[0]
    if not fits or (bias is not None and bias.dims != (channels,)):
        bias_dims = list(bias.dims) if bias is not None else None
        raise ShapeError(
            f"input {list(x.dims)}, weight {list(weight.dims)}, bias {bias_dims} and {groups} groups do not fit"
        )
    return channels


def _direct(
    cx: Context, x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, limits: Limits, out: Tensor
) -> None:
    axes, groups = weight.rank - 2, geometry.groups
    sizes, out_sizes = x.dims[x.rank - axes :], out.dims[out.rank - axes :]
    depth = x.dims[x.rank - axes - 1] // groups
    channels = out.dims[out.rank - axes - 1] // groups
    tile = 1 if channels == 1 else 4
    channel_tiles, pixel_tiles = -(-channels // tile), -(-numel(out_sizes) // 4)
    ones, zeros = (1,) * (AXES - axes), (0,) * (AXES - axes)
    params = Convolution(
        groups=groups,
        depth=depth,
        channels=channels,
        channel_tiles=channel_tiles,
        pixel_tiles=pixel_tiles,
        w_channel=1 if geometry.transposed else depth,
        w_depth=channels if geometry.transposed else 1,
        in_dims=(*ones, *sizes),
        out_dims=(*ones, *out_sizes),
        kernel=(*ones, *geometry.kernel),
        stride=(*ones, *geometry.stride),
        padding=(*zeros, *geometry.padding),
        dilation=(*ones, *geometry.dilation),
        **limits._asdict(),
    )
    cx.dispatch(
        "convolution.wgsl",
        reads=(x, weight) if bias is None else (x, weight, bias),
        writes=(out,),
        params=params,
        threads=numel(out.dims[: out.rank - axes - 1]) * groups * channel_tiles * pixel_tiles,
        type=x.wgsl,
        channels=tile,
        transposed=geometry.transposed,
        biased=bias is not None,
        clamped=limits != UNLIMITED,
    )


@op("aten.convolution.default", dtypes=FLOATS)
def convolution(
    cx: Context,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *,
    out: Tensor,
) -> None:
    geometry = _geometry(weight.dims, stride, padding, dilation, transposed, output_padding, groups)
    convolve(cx, input, weight, bias, geometry, UNLIMITED, out)


@op("et_vk.conv_with_clamp.default", dtypes=FLOATS)
def conv_with_clamp(
    cx: Context,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_min: int | float | None,
    output_max: int | float | None,
    *,
    out: Tensor,
) -> None:
    geometry = _geometry(weight.dims, stride, padding, dilation, transposed, output_padding, groups)
    limits = Limits.of(output_min, output_max)
    convolve(cx, input, weight, bias, geometry, limits, out)


def _geometry(
    weight: Dims,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Geometry:
    axes = len(weight) - 2
    return Geometry(
        kernel=weight[2:],
        stride=_per_axis(stride, axes),
        padding=_per_axis(padding, axes),
        dilation=_per_axis(dilation, axes),
        output_padding=_per_axis(output_padding, axes),
        transposed=transposed,
        groups=groups,
    )


@convolution.reference
def _reference(
    input: Any,
    weight: Any,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    """Adds up one shifted, strided view per tap: gathered, or scattered if transposed."""
    geometry = _geometry(weight.shape, stride, padding, dilation, transposed, output_padding, groups)
    axes = weight.ndim - 2
    *batch, depth = input.shape[:-axes]
    x = input.astype(np.float64).reshape(numel(tuple(batch)), groups, depth // groups, *input.shape[-axes:])
    taps = itertools.product(*map(range, geometry.kernel))
    run = _scatter if transposed else _gather
    total = run(x, weight.astype(np.float64), taps, geometry)  # (N, groups, OC / groups, ...)
    total = total.reshape(*batch, groups * total.shape[2], *total.shape[-axes:])
    if bias is not None:
        total += bias.reshape(-1, *(1,) * axes)
    return total.astype(input.dtype)


def _windows(geometry: Geometry, tap: tuple[int, ...], counts: Dims) -> tuple[Any, ...]:
    """Where one tap lies in the padded image, for all positions of the kernel."""
    rows = zip(tap, geometry.stride, geometry.dilation, counts, strict=True)
    return (..., *(slice(t * d, t * d + s * (n - 1) + 1, s) for t, s, d, n in rows))


def _gather(x: Any, weight: Any, taps: Any, geometry: Geometry) -> Any:
    axes = len(geometry.kernel)
    counts = geometry.extent(x.shape[-axes:])
    padded = np.pad(x, [(0, 0)] * 3 + [(p, p) for p in geometry.padding])
    kernels = weight.reshape(geometry.groups, -1, *weight.shape[1:])  # (G, O, I, ...)
    return sum(
        np.einsum("ngi...,goi->ngo...", padded[_windows(geometry, tap, counts)], kernels[(..., *tap)]) for tap in taps
    )


def _scatter(x: Any, weight: Any, taps: Any, geometry: Geometry) -> Any:
    axes = len(geometry.kernel)
    counts = x.shape[-axes:]
    kernels = weight.reshape(geometry.groups, -1, *weight.shape[1:])  # (G, I, O, ...)
    spans = [slice(p, p + n) for p, n in zip(geometry.padding, geometry.extent(counts), strict=True)]
    whole = [span.stop + span.start for span in spans]  # the output with its padding, which is cut off at the end
    padded: Any = np.zeros((*x.shape[:2], weight.shape[1], *whole))
    for tap in taps:
        padded[_windows(geometry, tap, counts)] += np.einsum("ngi...,gio->ngo...", x, kernels[(..., *tap)])
    return padded[(..., *spans)]


@conv_with_clamp.reference
def _(*arguments: Any) -> Any:
    *convolution_arguments, lowest, highest = arguments
    result = _reference(*convolution_arguments)
    return result if lowest is None and highest is None else np.clip(result, lowest, highest)

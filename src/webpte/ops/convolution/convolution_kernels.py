"""Which kernel runs a convolution, and how.

One direct kernel walks three axes; missing ones have size 1. A 1 x 1 kernel that touches every pixel once is a matrix
product and takes the kernels of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...errors import ShapeError
from ...graph import numel
from ...lowering.context import Context, Dims, Tensor
from ...lowering.variants import ANYWHERE, Requirements, Variant
from ...wgsl import FEW_REGISTERS, Uniforms, dims4, u32
from ..matmul.epilogue import NO_EPILOGUE, CompiledEpilogue, Epilogue
from ..matmul.matmul import project
from ..matmul.product import (
    LANES,
    Addend,
    ProductShape,
    contiguous,
    product,
)

AXES = 3
SHARED_DEPTH = 16  # input channels whose weights a workgroup holds


class ConvolutionParams(Uniforms):
    groups: u32
    depth: u32  # input channels of a group
    channels: u32  # output channels of a group
    channel_tiles: u32
    pixel_groups: u32  # workgroups side by side, or invocations along a line
    tile: u32
    tile_pixels: u32
    w_channel: u32  # kernels from one output channel of a group to the next
    w_depth: u32
    in_dims: dims4
    out_dims: dims4
    kernel: dims4
    stride: dims4
    padding: dims4
    dilation: dims4


@dataclass(frozen=True)
class ConvolutionGeometry:
    """The arguments of a convolution's schema without its tensors. One number may apply to all axes."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int

    def window(self, weight: Dims) -> ConvolutionWindow:
        """Return the window of a weight of these dims."""
        kernel = weight[2:]
        lists = (self.stride, self.padding, self.dilation, self.output_padding)
        stride, padding, dilation, further = (tuple(v * len(kernel) if len(v) == 1 else v) for v in lists)
        return ConvolutionWindow(
            kernel=kernel,
            stride=stride,
            padding=padding,
            dilation=dilation,
            output_padding=further,
            transposed=self.transposed,
            groups=self.groups,
        )


@dataclass(frozen=True, slots=True)
class ConvolutionWindow:
    """How taps, inputs and outputs lie to each other, per spatial axis."""

    kernel: Dims
    stride: Dims
    padding: Dims
    dilation: Dims
    output_padding: Dims
    transposed: bool
    groups: int

    def extent(self, sizes: Dims) -> Dims:
        """Return the spatial sizes of the output."""
        reach = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        rows = zip(sizes, reach, self.stride, self.padding, self.output_padding, strict=True)
        if self.transposed:
            return tuple((n - 1) * s - 2 * p + r + extra for n, r, s, p, extra in rows)
        return tuple((n + 2 * p - r) // s + 1 for n, r, s, p, _ in rows)

    @property
    def pointwise(self) -> bool:
        """Return whether each output pixel reads one input pixel, at its own position, in every input channel."""
        plain = {*self.kernel, *self.stride} == {1} and not any((*self.padding, *self.output_padding))
        return plain and self.groups == 1 and not self.transposed


def convolve(
    cx: Context,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    window: ConvolutionWindow,
    out: Tensor,
    epilogue: Epilogue = NO_EPILOGUE,
) -> None:
    """Convolve (N, IC, ...) to (N, OC, ...).

    The weight is (OC, IC / groups, ...), transposed (IC, OC / groups, ...).
    """
    axes = weight.rank - 2
    channels = _out_channels(x, weight, bias, window)
    *batch, _ = x.dims[: x.rank - axes]  # empty for an unbatched input
    sizes = window.extent(x.dims[x.rank - axes :])
    if any(size < 1 for size in sizes):
        raise ShapeError(
            f"input {list(x.dims)} is too small for weight {list(weight.dims)}: the output would be {list(sizes)}",
            code="too_small",
        )
    dims = (*batch, channels, *sizes)
    out.dims = epilogue.shape(dims)
    count, pixels = numel(tuple(batch)), numel(sizes)
    single = window.pointwise and pixels == 1  # then batches are rows and channels columns
    split = (0, len(batch)) if single else (len(batch), len(batch) + 1)
    compiled = epilogue.compile(x.dtype, dims, split)
    if single:
        project(cx, x, weight=weight, bias=bias, out=out, epilogue=compiled)
    elif window.pointwise:
        shape = ProductShape(count, channels, weight.dims[1], pixels)  # (OC, IC) x (N, IC, pixels) -> (N, OC, pixels)
        addend = Addend(bias, (0, 1, 0)) if bias is not None else None
        layout = contiguous(shape, shared=True)
        product(cx, weight, x, out, shape, layout, addend=addend, epilogue=compiled)
    else:
        layer = ConvolutionOperands(
            x=x,
            weight=weight,
            bias=bias,
            out=out,
            batch=count,
            sizes=x.dims[x.rank - axes :],
            out_sizes=sizes,
            epilogue=compiled,
        )
        _direct(cx, layer, window, channels)


def _out_channels(x: Tensor, weight: Tensor, bias: Tensor | None, window: ConvolutionWindow) -> int:
    """Return the output's channels, or raise ShapeError if the operands do not fit each other."""
    axes, groups = weight.rank - 2, window.groups
    if not 1 <= axes <= AXES or x.rank not in (axes + 1, axes + 2):
        raise ShapeError(
            f"input {list(x.dims)} and weight {list(weight.dims)} are not the operands of a convolution",
            code="operand_mismatch",
        )
    lists = (window.stride, window.padding, window.dilation, window.output_padding)
    if any(len(values) != axes for values in lists):
        raise ShapeError(
            argument="stride, padding, dilation, output_padding",
            expected=f"{axes} integers each",
            got=lists,
            code="wrong_length",
        )
    in_channels = x.dims[x.rank - axes - 1]
    if window.transposed:
        fits, channels = weight.dims[0] == in_channels and in_channels % groups == 0, weight.dims[1] * groups
    else:
        fits, channels = weight.dims[1] * groups == in_channels and weight.dims[0] % groups == 0, weight.dims[0]
    if not fits or (bias is not None and bias.dims != (channels,)):
        bias_dims = list(bias.dims) if bias is not None else None
        raise ShapeError(
            f"input {list(x.dims)}, weight {list(weight.dims)}, bias {bias_dims} and {groups} groups are incompatible",
            code="operand_mismatch",
        )
    return channels


@dataclass(frozen=True, slots=True)
class ConvolutionOperands:
    """The operands of a convolution, and the sizes that its kernels need."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    out: Tensor
    batch: int
    sizes: Dims  # spatial, of x
    out_sizes: Dims
    epilogue: CompiledEpilogue


class Tiling(NamedTuple):
    """A kernel and how it is laid over the result, before device and sizes are known."""

    template: str = "convolution/convolution.wgsl"
    max_tile: int = 1  # channels of an invocation; its pixels are always 4
    broadcast: bool = False  # the invocations of a subgroup share their loads
    shared: int = 0  # steps over the input channels that a workgroup holds


class ConvolutionConfig(NamedTuple):
    """A kernel and how it is laid over this result."""

    template: str
    tile: int  # channels of an invocation
    workgroup: int
    flags: dict[str, object]


class ConvolutionProblem(NamedTuple):
    """A convolution as its kernels see it: `depth` input and `channels` output channels in a group."""

    layer: ConvolutionOperands
    window: ConvolutionWindow
    depth: int
    channels: int

    @property
    def depthwise(self) -> bool:
        """Return whether each channel is computed from one input channel."""
        return (self.depth, self.channels, self.window.transposed) == (1, 1, False)


DEPTHWISE = Variant(
    "depthwise", Requirements(work=lambda work: work.depthwise), Tiling("convolution/convolution_depthwise.wgsl")
)
BROADCAST = Variant("broadcast", Requirements(subgroup=4), Tiling(max_tile=16, broadcast=True))
TILE = Variant("tile", ANYWHERE, Tiling(max_tile=4))
SHARED = Variant("shared", ANYWHERE, Tiling(max_tile=8, shared=SHARED_DEPTH))
LINES = Variant("lines", ANYWHERE, Tiling("convolution/convolution_lines.wgsl", max_tile=8, shared=SHARED_DEPTH))


def _direct(cx: Context, layer: ConvolutionOperands, window: ConvolutionWindow, all_channels: int) -> None:
    groups, epilogue, bias = window.groups, layer.epilogue, layer.bias
    depth = layer.x.dims[-len(layer.sizes) - 1] // groups
    channels = all_channels // groups
    config = _config(cx, ConvolutionProblem(layer, window, depth, channels))
    channel_tiles = -(-channels // config.tile)
    *outer, line = layer.out_sizes
    line_quads = numel(tuple(outer)) * -(-line // 4)
    if config.template == DEPTHWISE.config.template:
        pixel_groups = -(-line // 4)
        threads = layer.batch * groups * line_quads
    else:
        quads = line_quads if config.template == LINES.config.template else -(-numel(layer.out_sizes) // 4)
        pixel_groups = -(-quads // config.workgroup)
        threads = layer.batch * groups * channel_tiles * pixel_groups * config.workgroup
    params = ConvolutionParams(
        groups=groups,
        depth=depth,
        channels=channels,
        channel_tiles=channel_tiles,
        pixel_groups=pixel_groups,
        tile=config.tile,
        tile_pixels=4,
        w_channel=1 if window.transposed else depth,
        w_depth=channels if window.transposed else 1,
        **_extents(layer, window),
    )
    cx.dispatch(
        config.template,
        reads={"x": layer.x, "w": layer.weight, "bias": bias, **epilogue.arrays},
        writes={"y": layer.out},
        params=epilogue.extend(params),
        threads=threads,
        workgroup=config.workgroup,
        type=layer.x.wgsl,
        out_type=layer.out.wgsl,
        biased=bias is not None,
        program=epilogue.program,
        **config.flags,
    )


def _extents(layer: ConvolutionOperands, window: ConvolutionWindow) -> dict[str, Dims]:
    """Return the fields of each of three axes. Missing axes have size 1."""
    ones, zeros = (1,) * (AXES - len(layer.sizes)), (0,) * (AXES - len(layer.sizes))
    return {
        "in_dims": (*ones, *layer.sizes),
        "out_dims": (*ones, *layer.out_sizes),
        "kernel": (*ones, *window.kernel),
        "stride": (*ones, *window.stride),
        "padding": (*zeros, *window.padding),
        "dilation": (*ones, *window.dilation),
    }


def _config(cx: Context, work: ConvolutionProblem) -> ConvolutionConfig:
    layer, window, depth, channels = work
    key = (channels, depth, window.groups, *window.kernel, *layer.out_sizes, layer.x.wgsl)
    # Pixels of several lines need more registers than those of one, of which a short line leaves some without work.
    shared = (LINES, SHARED) if layer.out_sizes[-1] >= 4 else (SHARED, LINES)
    cpu, gpu = (DEPTHWISE, BROADCAST, TILE), (DEPTHWISE, *shared, TILE)
    variant = cx.variant("convolution", key, cpu=cpu, gpu=gpu, work=work)
    workgroup = cx.caps.workgroup(LANES if cx.caps.kind == "cpu" else 64)
    tiling = variant.config
    flags: dict[str, object]
    if variant is DEPTHWISE:
        sliding = (window.stride[-1], window.dilation[-1]) == (1, 1)
        return ConvolutionConfig(tiling.template, tiling.max_tile, workgroup, {"sliding": sliding})
    if variant is LINES:
        tile = 8 if channels > 4 and cx.caps.registers > FEW_REGISTERS else 4
        flags = {"channels": tile, "shared": tiling.shared, "transposed": window.transposed}
        return ConvolutionConfig(tiling.template, tile, workgroup, {**flags, "axes": max(len(layer.sizes), 2)})
    tile = next(t for t in (1, 4, 8, 16) if t >= min(channels, tiling.max_tile))
    flags = {
        "channels": tile,
        "lanes": min(cx.caps.subgroup, workgroup) if tiling.broadcast else 0,
        "shared": tiling.shared,
        "transposed": window.transposed,
    }
    return ConvolutionConfig(tiling.template, tile, workgroup, flags)

"""Sampling by a grid of positions, and the grid of anchor points of a feature map."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...lowering.context import Context, Tensor
from ...lowering.registry import FLOATS, op
from ...wgsl import Uniforms, f32, u32

_INTERPOLATIONS = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
_STEEPNESS = -0.75  # of PyTorch's cubic kernel


class GridSampleParams(Uniforms):
    channels: u32
    height: u32
    width: u32
    points: u32  # of the grid, per image


class GridPriorsParams(Uniforms):
    width: u32
    stride: f32
    offset: f32


@op("aten.grid_sampler_2d.default", dtypes=FLOATS)
def grid_sampler_2d(
    cx: Context,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    *,
    out: Tensor,
) -> None:
    if not (0 <= interpolation_mode < 3 and 0 <= padding_mode < 3):
        raise GraphError(
            f"unknown interpolation_mode {interpolation_mode} or padding_mode {padding_mode}", code="unknown_choice"
        )
    if input.rank != 4 or grid.rank != 4 or grid.dims[0] != input.dims[0] or grid.dims[3] != 2:
        raise ShapeError(f"grid {list(grid.dims)} does not fit the input {list(input.dims)}", code="operand_mismatch")
    images, channels, height, width = input.dims
    if not height * width:
        raise ShapeError(f"input {list(input.dims)} has no elements to sample", code="empty")
    out.dims = (images, channels, *grid.dims[1:3])  # (N, C, H, W), (N, h, w, 2) -> (N, C, h, w)
    params = GridSampleParams(channels=channels, height=height, width=width, points=grid.dims[1] * grid.dims[2])
    cx.dispatch(
        "image/grid_sample.wgsl",
        reads={"x": input, "grid": grid},
        writes={"y": out},
        params=params,
        threads=out.numel,
        type=input.wgsl,
        mode=_INTERPOLATIONS[interpolation_mode],
        padding=_PADDINGS[padding_mode],
        aligned=align_corners,
    )


def _pixel(at: Any, size: int, aligned: bool) -> Any:
    """Return the pixel at a position in [-1, 1]."""
    return (at + 1) / 2 * (size - 1) if aligned else ((at + 1) * size - 1) / 2


def _inside(at: Any, size: int, padding: int, aligned: bool) -> Any:
    """Return positions with those outside the image moved inside, unless pixels outside count as zero."""
    if padding == 0:
        return at
    if padding == 2:
        low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
        if span == 0:
            return np.zeros_like(at)
        turned = np.mod(at - low, 2 * span)
        at = np.minimum(turned, 2 * span - turned) + low
    return np.clip(at, 0, size - 1)


def _cubic(distance: Any) -> Any:
    """Return the weight of a tap at this distance."""
    d = np.abs(distance)
    near = ((_STEEPNESS + 2) * d - (_STEEPNESS + 3)) * d * d + 1
    far = _STEEPNESS * (((d - 5) * d + 8) * d - 4)
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


@grid_sampler_2d.reference
def _(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    height, width = input.shape[2:]
    wide = input.astype(np.float64)

    def weights(at: Any, size: int) -> Any:
        """Return the weight of each pixel of a row or column: (N, h, w) -> (N, h, w, size)."""
        at = _pixel(at.astype(np.float64), size, align_corners)
        result = np.zeros((*at.shape, size))
        if interpolation_mode != 2:
            at = _inside(at, size, padding_mode, align_corners)
        first = np.round(at) if interpolation_mode == 1 else np.floor(at)
        taps = {0: (0, 1), 1: (0,), 2: (-1, 0, 1, 2)}[interpolation_mode]
        for tap in taps:
            pixel = first + tap
            weight = {0: 1 - np.abs(at - pixel), 1: np.ones_like(at), 2: _cubic(at - pixel)}[interpolation_mode]
            if interpolation_mode == 2:
                pixel = np.trunc(_inside(pixel, size, padding_mode, align_corners))
            result += weight[..., None] * (pixel[..., None] == np.arange(size))
        return result

    return np.einsum("nchw,nijh,nijw->ncij", wide, weights(grid[..., 1], height), weights(grid[..., 0], width)).astype(
        input.dtype
    )


@op("et_vk.grid_priors.default")
def grid_priors(cx: Context, self: Tensor, stride: int, offset: float, *, out: Tensor) -> None:
    if self.rank < 2:
        raise ShapeError(f"input: expected a height and a width, got shape {list(self.dims)}", code="rank")
    height, width = self.dims[-2:]
    out.dims = (height * width, 2)  # (x, y) of every point, row by row
    params = GridPriorsParams(width=width, stride=float(stride), offset=offset)
    cx.dispatch("image/grid_priors.wgsl", writes={"y": out}, params=params, threads=out.numel, type=out.wgsl)


@grid_priors.reference
def _(self: Any, stride: int, offset: float) -> Any:
    y, x = np.indices(self.shape[-2:]).reshape(2, -1)
    return ((np.stack((x, y), axis=1) + offset) * stride).astype(np.float32)

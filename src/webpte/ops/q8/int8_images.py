"""Pools over int8 codes in (N, H, W, C)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType
from ...graph.names import INT8_MAX_POOL, INT8_MEAN
from ...lowering.context import Context, Tensor
from ...lowering.registry import op
from ...wgsl import Uniforms, f32, i32, u32
from .int8_convolution import CodeLimits, ImageWindow, ImageWindowParams

CODES = frozenset({DType.INT8})


class Int8MeanParams(Uniforms):
    count: u32  # output elements
    pixels: u32  # of an image
    channels: u32
    bias: i32
    scale: f32
    zero: f32
    low: f32
    high: f32


def _check_image(x: Tensor) -> None:
    if x.rank != 4 or not x.numel:
        raise ShapeError(argument="input", expected="an image (N, H, W, C)", got=list(x.dims), code="rank")


@op(INT8_MEAN, dtypes=CODES)
def int8_mean(cx: Context, x: Tensor, input_zero: int, scale: float, codes: CodeLimits, *, out: Tensor) -> None:
    """Compute the mean over height and width; `scale` is that of the input over that of the output."""
    _check_image(x)
    images, height, width, channels = x.dims
    out.dims = (images, 1, 1, channels)
    pixels, lanes = height * width, cx.caps.workgroup(64)
    params = Int8MeanParams(
        count=out.numel,
        pixels=pixels,
        channels=channels,
        bias=-pixels * input_zero,
        scale=np.float32(scale) / np.float32(pixels),
        **vars(codes),
    )
    cx.dispatch(
        "q8/int8_mean.wgsl",
        reads={"x": x},
        writes={"y": out},
        params=params,
        threads=-(-out.numel // 4) * lanes,
        words=channels % 4 == 0,
    )


@int8_mean.reference
def _(x: Any, input_zero: int, scale: float, codes: CodeLimits) -> Any:
    pixels = x.shape[1] * x.shape[2]
    sums = x.astype(np.int64).sum((1, 2), keepdims=True) - pixels * input_zero
    numbers = sums.astype(np.float32) * (np.float32(scale) / np.float32(pixels)) + np.float32(codes.zero)
    return np.clip(np.round(numbers), codes.low, codes.high).astype(np.int8)


class Int8MaxPoolParams(ImageWindowParams):
    count: u32  # output elements
    channels: u32
    low: i32
    high: i32


@op(INT8_MAX_POOL, dtypes=CODES)
def int8_max_pool(cx: Context, x: Tensor, window: ImageWindow, low: int, high: int, *, out: Tensor) -> None:
    _check_image(x)
    images, height, width, channels = x.dims
    sizes = window.extent((height, width))
    if any(size < 1 for size in sizes):
        raise ShapeError(f"input {list(x.dims)} is too small for windows of {window.kernel_size}", code="too_small")
    out.dims = (images, *sizes, channels)
    params = Int8MaxPoolParams(
        **window.uniforms((height, width), sizes),
        count=out.numel,
        channels=channels,
        low=low,
        high=high,
    )
    cx.dispatch(
        "q8/int8_max_pool.wgsl",
        reads={"x": x},
        writes={"y": out},
        params=params,
        threads=-(-out.numel // 4),
        words=channels % 4 == 0,
    )


@int8_max_pool.reference
def _(x: Any, window: ImageWindow, low: int, high: int) -> Any:
    (top, left, bottom, right), (height, width) = window.padding, window.extent(x.shape[1:3])
    image = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=-128)
    best = np.full((x.shape[0], height, width, x.shape[3]), -128, np.int8)
    for ky, kx in itertools.product(*map(range, window.kernel_size)):
        rows = slice(ky * window.dilation[0], None, window.stride[0])
        columns = slice(kx * window.dilation[1], None, window.stride[1])
        best = np.maximum(best, image[:, rows, columns][:, :height, :width])
    return np.clip(best, low, high)

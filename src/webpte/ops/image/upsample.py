"""Images at another size: nearest and bilinear, by PyTorch's exact index rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...lowering.context import Context, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.shapes import Dims
from ...wgsl import Uniforms, f32, u32
from ..layout.strided import word

Scale = float | None  # as the caller gave it; sizes decide where it is missing


class UpsampleParams(Uniforms):
    height: u32
    width: u32
    out_height: u32
    out_width: u32
    scale_y: f32  # input positions per output position
    scale_x: f32


def _output_size(
    dims: Dims, output_size: list[int] | None, scale_factors: list[float] | None
) -> tuple[Dims, tuple[Scale, Scale]]:
    """Return the output's (H, W) and the scales of the positions."""
    scales: tuple[Scale, Scale] = (None, None)
    if len(dims) != 4 or (output_size is None) == (scale_factors is None):
        raise ShapeError(
            f"upsampling of {list(dims)}: expected 4 dims and either an output size or scale factors, got "
            f"{output_size} and {scale_factors}"
        )
    if scale_factors is not None:
        scale_y, scale_x = scales = (scale_factors[0], scale_factors[1])
        output_size = [int(dims[2] * scale_y), int(dims[3] * scale_x)]
    assert output_size is not None
    size = (output_size[0], output_size[1])
    if min(*size, *dims[2:]) < 1:
        raise ShapeError(f"images of {list(dims[2:])} cannot be resized to {list(size)}", code="empty")
    return size, scales


def _ratio(size: int, out_size: int, scale: Scale) -> float:
    """Return input positions per output position, rounded to f32 where PyTorch rounds."""
    if size == out_size:
        return 1.0  # the scale argument does not matter
    if scale is not None and scale > 0:
        return float(np.float32(1.0 / scale))
    return float(np.float32(size) / np.float32(out_size))


def _nearest_ratio(size: int, out_size: int, scale: Scale) -> float:
    if out_size == 2 * size:
        return 0.5  # another special case of PyTorch's
    return _ratio(size, out_size, scale)


def _aligned_ratio(size: int, out_size: int) -> float:
    """Return the ratio that maps corners to corners."""
    return float(np.float32(size - 1) / np.float32(out_size - 1)) if out_size > 1 else 0.0


def _params(dims: Dims, size: Dims, ratios: list[float]) -> UpsampleParams:
    return UpsampleParams(
        height=dims[2], width=dims[3], out_height=size[0], out_width=size[1], scale_y=ratios[0], scale_x=ratios[1]
    )


@op("aten.upsample_nearest2d.vec")
def upsample_nearest2d(
    cx: Context, input: Tensor, output_size: list[int] | None, scale_factors: list[float] | None, *, out: Tensor
) -> None:
    size, scales = _output_size(input.dims, output_size, scale_factors)
    out.dims = (*input.dims[:2], *size)  # (N, C, H, W)
    ratios = [_nearest_ratio(*axis) for axis in zip(input.dims[2:], size, scales, strict=True)]
    cx.dispatch(
        "image/upsample_nearest.wgsl",
        reads={"x": input},
        writes={"y": out},
        params=_params(input.dims, size, ratios),
        threads=out.numel,
        word=word(input),
    )


@upsample_nearest2d.reference
def _(input: Any, output_size: list[int] | None, scale_factors: list[float] | None) -> Any:
    size, scales = _output_size(input.shape, output_size, scale_factors)
    for axis in (0, 1):
        n, m, scale = input.shape[2 + axis], size[axis], scales[axis]
        at = np.arange(m)
        if m == 2 * n:
            at //= 2
        elif m != n:
            step = 1 / scale if scale else np.float32(n) / np.float32(m)
            at = np.minimum(np.floor(at.astype(np.float32) * np.float32(step)).astype(int), n - 1)
        input = np.take(input, at, axis=2 + axis)
    return input


@op("aten.upsample_bilinear2d.vec", dtypes=FLOATS)
def upsample_bilinear2d(
    cx: Context,
    input: Tensor,
    output_size: list[int] | None,
    align_corners: bool,
    scale_factors: list[float] | None,
    *,
    out: Tensor,
) -> None:
    size, scales = _output_size(input.dims, output_size, scale_factors)
    out.dims = (*input.dims[:2], *size)  # (N, C, H, W)
    axes = zip(input.dims[2:], size, scales, strict=True)
    ratios = [_aligned_ratio(n, m) if align_corners else _ratio(n, m, scale) for n, m, scale in axes]
    cx.dispatch(
        "image/upsample_bilinear.wgsl",
        reads={"x": input},
        writes={"y": out},
        params=_params(input.dims, size, ratios),
        threads=out.numel,
        type=input.wgsl,
        aligned=align_corners,
    )


@upsample_bilinear2d.reference
def _(input: Any, output_size: list[int] | None, align_corners: bool, scale_factors: list[float] | None) -> Any:
    size, scales = _output_size(input.shape, output_size, scale_factors)
    result = input.astype(np.float64)
    for axis in (0, 1):  # one dim after the other, as a matrix of weights (M, N)
        n, m, scale = input.shape[2 + axis], size[axis], scales[axis]
        if align_corners:
            at = np.arange(m) * ((n - 1) / (m - 1) if m > 1 else 0.0)
        else:
            step = 1 / scale if scale and n != m else n / m
            at = np.maximum((np.arange(m) + 0.5) * step - 0.5, 0)
        at = np.minimum(at, n - 1)
        weights = np.maximum(1 - np.abs(at[:, None] - np.arange(n)), 0)
        result = np.moveaxis(np.tensordot(result, weights, ([2 + axis], [1])), -1, 2 + axis)
    return (result if input.dtype.kind == "f" else np.rint(result)).astype(input.dtype)

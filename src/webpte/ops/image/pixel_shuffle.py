"""Channels to space and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...lowering.context import Context, Tensor
from ...lowering.registry import MOVABLE, op
from ...lowering.shapes import strides
from ..layout.strided import gather


@op("aten.pixel_shuffle.default", dtypes=MOVABLE)
def pixel_shuffle(cx: Context, self: Tensor, upscale_factor: int, *, out: Tensor) -> None:
    r = upscale_factor
    if self.rank < 3 or r < 1 or self.dims[-3] % (r * r):
        raise ShapeError(
            f"the channels of {list(self.dims)} are not a multiple of the squared upscale factor {r}",
            code="operand_mismatch",
        )
    *outer, channels, height, width = self.dims
    out.dims = (*outer, channels // (r * r), height * r, width * r)
    read = (*outer, channels // (r * r), r, r, height, width)  # (..., C, ry, rx, H, W)
    *rest, ry, rx, y, x = strides(read)
    walked = (*outer, channels // (r * r), height, r, width, r)  # (..., C, H, ry, W, rx)
    gather(cx, self, out, (*rest, y, ry, x, rx), dims=walked)


@pixel_shuffle.reference
def _(self: Any, upscale_factor: int) -> Any:
    r = upscale_factor
    *outer, channels, height, width = self.shape
    out = np.empty((*outer, channels // (r * r), height * r, width * r), self.dtype)
    for dy in range(r):
        for dx in range(r):
            out[..., dy::r, dx::r] = self[..., dy * r + dx :: r * r, :, :]
    return out


@op("aten.pixel_unshuffle.default", dtypes=MOVABLE)
def pixel_unshuffle(cx: Context, self: Tensor, downscale_factor: int, *, out: Tensor) -> None:
    r = downscale_factor
    if self.rank < 3 or r < 1 or self.dims[-2] % r or self.dims[-1] % r:
        raise ShapeError(
            f"the height and width of {list(self.dims)} are not multiples of the downscale factor {r}",
            code="operand_mismatch",
        )
    *outer, channels, height, width = self.dims
    out.dims = (*outer, channels * r * r, height // r, width // r)
    read = (*outer, channels, height // r, r, width // r, r)  # (..., C, H, ry, W, rx)
    *rest, y, ry, x, rx = strides(read)
    walked = (*outer, channels, r, r, height // r, width // r)  # (..., C, ry, rx, H, W)
    gather(cx, self, out, (*rest, ry, rx, y, x), dims=walked)


@pixel_unshuffle.reference
def _(self: Any, downscale_factor: int) -> Any:
    r = downscale_factor
    *outer, channels, height, width = self.shape
    out = np.empty((*outer, channels * r * r, height // r, width // r), self.dtype)
    for dy in range(r):
        for dx in range(r):
            out[..., dy * r + dx :: r * r, :, :] = self[..., dy::r, dx::r]
    return out

"""Qwen3.5: an image of any size as patches, which have a row and a column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...errors import FormatError, InputError
from ...fields import ReadFields
from ...typing import Array
from ..image_processor import MAX_SIDE_PIXELS, ImageProcessor, Size, Tiles, image_pixels, invalid_field, pixel_steps

if TYPE_CHECKING:
    from PIL import Image

TYPES = ("Qwen2VLImageProcessor",)
MAX_RATIO = 200  # of the sides of an image
MAX_PIXELS = 1 << 32
ROPE_THETA = 10000.0  # of the rotation in the encoder
_MEAN, _STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]  # defaults


@dataclass(frozen=True)
class GridProcessor(ImageProcessor):
    """Resizes an image to whole blocks of patches."""

    patch_side: int
    block_side: int  # patches in a row and a column of a block
    min_pixels: int
    max_pixels: int
    position_side: int = 0  # rows and columns of the encoder's table of positions
    head_dim: int = 0  # of the encoder

    page_kind = "grid"
    image_token = "<|image_pad|>"
    placeholder = "<|image_pad|>"

    @property
    def unit(self) -> int:
        """Return the pixels in a row of a block."""
        return self.patch_side * self.block_side

    def __call__(self, image: Image.Image) -> Tiles:
        height, width = image.height, image.width
        size = self._whole_blocks((height, width))
        if max(height, width) > MAX_RATIO * min(height, width) or size[0] * size[1] > self.max_pixels:
            raise InputError(
                argument="image",
                expected=f"sides of a ratio up to {MAX_RATIO} that {self.max_pixels} pixels can approximate",
                got=f"{width} x {height} pixels",
                code="image_proportions",
            )
        return Tiles((image_pixels(self.resized(image, size)),))

    def text(self, tiles: Tiles) -> str:
        return self.image_token

    def rows(self, pixels: Array, max_rows: int) -> int:
        _, height, width = pixels.shape
        return int(height * width) // self.unit**2

    def columns(self, pixels: Array) -> int:
        return int(pixels.shape[2]) // self.unit

    def min_rows(self, max_rows: int) -> int:
        least, most = -(-self.min_pixels // self.unit**2), self.max_pixels // self.unit**2
        return max(1, min(least, most // 4))  # an image that shrinks may lose half of a row and a column

    def encoder_shapes(self, inputs: Sequence[tuple[int, ...]]) -> list[Sequence[tuple[int, ...]]]:
        most = self.max_pixels // self.unit**2
        return [[(count, columns) for _, columns in inputs] for count in range(self.min_rows(most), most + 1)]

    def arguments(self, pixels: Array) -> tuple[Array, ...]:
        """Return the patches of blocks, the weights of the positions of each, and the cosines and sines of these."""
        _, height, width = pixels.shape
        block, patch = self.block_side, self.patch_side
        blocks = height // self.unit, width // self.unit
        split = self.normalized(pixels).reshape(3, blocks[0], block, patch, blocks[1], block, patch)
        patches = split.transpose(1, 4, 2, 5, 0, 3, 6)  # rows and columns of blocks and patches, colors, pixels
        down, across = (corner_weights(self.position_side, count * block) for count in blocks)
        weights = down[:, None, :, None] * across[None, :, None, :]  # (H, W, S, S)
        angles = self._angles((blocks[0] * block, blocks[1] * block))  # (H, W, D)
        turns = (self._in_blocks(function(angles).astype(np.float32), blocks) for function in (np.cos, np.sin))
        count = blocks[0] * blocks[1]
        return patches.reshape(count, -1), self._in_blocks(weights, blocks), *turns

    def _in_blocks(self, of_patches: Array, blocks: Size) -> Array:
        """Return numbers of patches (H, W, ...) by blocks."""
        block = self.block_side
        split = of_patches.reshape(blocks[0], block, blocks[1], block, -1).transpose(0, 2, 1, 3, 4)
        return np.ascontiguousarray(split.reshape(blocks[0] * blocks[1], -1))

    def _angles(self, size: Size) -> Array:
        """Return the angle of each element of a head: half of the pairs by the row, the others by the column."""
        pairs = self.head_dim // 4
        frequencies = (1 / ROPE_THETA ** (np.arange(pairs) / pairs)).astype(np.float32)
        down, across = (np.arange(count, dtype=np.float32)[:, None] * frequencies for count in size)
        both = np.broadcast_to(down[:, None], (*size, pairs)), np.broadcast_to(across[None], (*size, pairs))
        angles: Array = np.concatenate([*both, *both], axis=2)
        return angles

    def for_encoder(self, where: str, inputs: Sequence[tuple[int, ...]]) -> GridProcessor:
        """Return the processor for an encoder. An image has at most as many blocks as the encoder takes."""
        block = self.block_side**2
        rows, columns = inputs[0] if inputs and len(inputs[0]) == 2 else (0, 0)
        fits = len(inputs) == 4 and all(len(dims) == 2 and dims[0] == rows for dims in inputs)
        side = math.isqrt(inputs[1][1] // block) if fits else 0
        if columns != block * 3 * self.patch_side**2 or not fits or inputs[1][1] != block * side**2:
            raise FormatError(
                argument=where,
                expected=f"patches for an encoder of {', '.join(map(str, inputs))}",
                got=f"patches of {block * 3 * self.patch_side**2} values in a block",
                code="other_export",
            )
        most = min(self.max_pixels, rows * self.unit**2)
        return replace(self, position_side=side, head_dim=inputs[2][1] // block, max_pixels=most)

    def _whole_blocks(self, size: Size) -> Size:
        """Return the nearest size of whole blocks, within the numbers of pixels."""
        height, width = size
        unit = self.unit
        whole = round(height / unit) * unit, round(width / unit) * unit
        if whole[0] * whole[1] > self.max_pixels:
            shrink = math.sqrt(height * width / self.max_pixels)
            return max(unit, math.floor(height / shrink / unit) * unit), max(
                unit, math.floor(width / shrink / unit) * unit
            )
        if whole[0] * whole[1] < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (height * width))
            return math.ceil(height * grow / unit) * unit, math.ceil(width * grow / unit) * unit
        return whole


def corner_weights(source: int, target: int) -> Array:
    """Return the weights (target, source) of a linear resize of a row that keeps the first and the last element."""
    places = np.linspace(0, source - 1, target, dtype=np.float32)
    result: Array = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(source, dtype=np.float32)))
    return result


def read(where: str, fields: ReadFields) -> GridProcessor:
    """Return the processor of the fields of a preprocessor_config.json; `where` is named in errors."""
    size = fields.get("size") or {}
    if not isinstance(size, dict):
        raise invalid_field(where, "size", "a shortest_edge and a longest_edge", size)

    def integer(name: str, default: int, most: int) -> int:
        value = fields.get(name, default)
        if type(value) is not int or not 1 <= value <= most:
            raise invalid_field(where, name, f"an integer from 1 to {most}", value)
        return value

    least = integer("min_pixels", size.get("shortest_edge", 56 * 56), MAX_PIXELS)
    steps = pixel_steps(where, fields, "bicubic", _MEAN, _STD)
    return GridProcessor(
        **steps,
        patch_side=integer("patch_size", 14, MAX_SIDE_PIXELS),
        block_side=integer("merge_size", 2, MAX_SIDE_PIXELS),
        min_pixels=least,
        max_pixels=max(least, integer("max_pixels", size.get("longest_edge", 28 * 28 * 1280), MAX_PIXELS)),
    )

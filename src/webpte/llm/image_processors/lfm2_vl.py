"""LFM2-VL: an image as patches. A large one is split into square tiles, with an overview in its own proportions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import FormatError, InputError
from ...fields import ReadFields
from ...typing import Array
from ..image_processor import MAX_SIDE_PIXELS, ImageProcessor, Size, Tiles, image_pixels, invalid_field, pixel_steps

if TYPE_CHECKING:
    from PIL import Image

TYPES = ("Lfm2VlImageProcessor",)
MAX_TILES = 64


@dataclass(frozen=True)
class PatchProcessor(ImageProcessor):
    """Resizes an image to whole blocks of patches, and splits one that is too large for that into tiles."""

    patch_side: int
    block_side: int  # patches in a row and a column of a block
    min_blocks: int  # of an image that is not split, and of an overview
    max_blocks: int
    tile_side: int
    tiles: tuple[int, int]  # the fewest and the most tiles of an image
    split: bool
    overview: bool  # after the tiles
    tolerance: float  # an image with more than this times `max_blocks` is split
    position_side: int = 0  # rows and columns of the encoder's table of positions

    page_kind = "patches"

    @property
    def unit(self) -> int:
        """Return the pixels in a row of a block."""
        return self.patch_side * self.block_side

    def __call__(self, image: Image.Image) -> Tiles:
        original = image.height, image.width
        size = self._whole_blocks(original)
        if size[0] * size[1] > self.max_blocks * self.unit**2:
            raise InputError(
                argument="image",
                expected=f"sides that {self.max_blocks} blocks of {self.unit} pixels can approximate",
                got=f"{original[1]} x {original[0]} pixels",
                code="image_proportions",
            )
        if not self.split or not self._is_large(original):
            return Tiles((image_pixels(self.resized(image, size)),))
        rows, columns = self._grid(original)
        side = self.tile_side
        pixels = image_pixels(self.resized(image, (rows * side, columns * side)))
        split = pixels.reshape(3, rows, side, columns, side).transpose(1, 3, 0, 2, 4).reshape(-1, 3, side, side)
        last = (image_pixels(self.resized(image, size)),) if self.overview else ()
        return Tiles((*split, *last), rows, columns)

    def text(self, tiles: Tiles) -> str:
        if not tiles.rows:
            return "<|image_start|><image><|image_end|>"
        places = [(row, column) for row in range(1, tiles.rows + 1) for column in range(1, tiles.columns + 1)]
        parts = "".join(f"<|img_row_{row}_col_{column}|><image>" for row, column in places)
        return f"<|image_start|>{parts}{'<|img_thumbnail|><image>' if self.overview else ''}<|image_end|>"

    def rows(self, pixels: Array, max_rows: int) -> int:
        _, height, width = pixels.shape
        return int(height * width) // self.unit**2

    def min_rows(self, max_rows: int) -> int:
        return min(self.min_blocks, self.max_blocks // 4)  # an image that shrinks may lose half of a row and a column

    def encoder_shapes(self, inputs: Sequence[tuple[int, ...]]) -> list[Sequence[tuple[int, ...]]]:
        counts = {*range(self.min_rows(self.max_blocks), self.max_blocks + 1)}
        if self.split:
            counts.add((self.tile_side // self.unit) ** 2)
        return [[(count, columns) for _, columns in inputs] for count in sorted(counts)]

    def declaration(self) -> dict[str, Any]:
        return {**super().declaration(), "grids": self._grids()}

    def arguments(self, pixels: Array) -> tuple[Array, ...]:
        """Return the patches of blocks, and the weights of the positions of each."""
        _, height, width = pixels.shape
        block, patch, side = self.block_side, self.patch_side, self.position_side
        blocks = height // self.unit, width // self.unit
        split = self.normalized(pixels).reshape(3, blocks[0], block, patch, blocks[1], block, patch)
        patches = split.transpose(1, 4, 2, 5, 3, 6, 0)  # rows and columns of blocks, patches and pixels
        down, across = (resize_weights(side, count * block) for count in blocks)
        weights = down[:, None, :, None] * across[None, :, None, :]  # (H, W, S, S)
        weights = weights.reshape(blocks[0], block, blocks[1], block, side * side).transpose(0, 2, 1, 3, 4)
        count = blocks[0] * blocks[1]
        return patches.reshape(count, -1), weights.reshape(count, -1)

    def for_encoder(self, where: str, inputs: Sequence[tuple[int, ...]]) -> PatchProcessor:
        block = self.block_side**2
        columns = block * 3 * self.patch_side**2
        rows = max(self.max_blocks, (self.tile_side // self.unit) ** 2 if self.split else 0)
        side = math.isqrt(inputs[1][1] // block) if len(inputs) == 2 and len(inputs[1]) == 2 else 0
        if [*inputs] != [(rows, columns), (rows, block * side**2)]:
            raise FormatError(
                argument=where,
                expected=f"patches for an encoder of {', '.join(map(str, inputs))}",
                got=f"patches in {rows} blocks of {columns} values",
                code="other_export",
            )
        return replace(self, position_side=side)

    def _whole_blocks(self, size: Size) -> Size:
        """Return the nearest size of whole blocks, as many of them as an image may have."""
        height, width = size
        unit, area = self.unit, height * width
        whole = max(unit, round(height / unit) * unit), max(unit, round(width / unit) * unit)
        if whole[0] * whole[1] > self.max_blocks * unit**2:
            shrink = math.sqrt(area / (self.max_blocks * unit**2))
            return max(unit, math.floor(height / shrink / unit) * unit), max(
                unit, math.floor(width / shrink / unit) * unit
            )
        if whole[0] * whole[1] < self.min_blocks * unit**2:
            grow = math.sqrt(self.min_blocks * unit**2 / area)
            return math.ceil(height * grow / unit) * unit, math.ceil(width * grow / unit) * unit
        return whole

    def _is_large(self, size: Size) -> bool:
        height, width = (max(self.patch_side, round(side / self.unit) * self.unit) for side in size)
        return height * width > self.max_blocks * self.unit**2 * self.tolerance

    def _grids(self) -> list[tuple[int, int]]:
        """Return the columns and rows that tiles may have, in the order of their preference."""
        fewest, most = self.tiles
        # In the order of a set, as in transformers: it decides between grids that are equally near.
        grids = {
            (columns, rows)
            for count in range(fewest, most + 1)
            for columns in range(1, count + 1)
            for rows in range(1, count + 1)
            if fewest <= columns * rows <= most
        }
        return sorted(grids, key=lambda each: each[0] * each[1])

    def _grid(self, size: Size) -> Size:
        """Return the rows and columns of tiles whose proportions are nearest to those of the image."""
        ratio, area = size[1] / size[0], size[0] * size[1]
        best, nearest = (1, 1), math.inf
        for grid in self._grids():
            distance = abs(ratio - grid[0] / grid[1])
            larger = area > 0.5 * self.tile_side**2 * grid[0] * grid[1]
            if distance < nearest or (distance == nearest and larger):
                best, nearest = grid, distance
        return best[1], best[0]


def resize_weights(source: int, target: int) -> Array:
    """Return the weights (target, source) of a linear resize of a row, which averages where it shrinks."""
    scale = source / target
    width = max(scale, 1.0)
    centers = scale * (np.arange(target) + 0.5)
    distances = np.abs(np.arange(source)[None] + 0.5 - centers[:, None]) / width
    weights = np.maximum(0.0, 1.0 - distances)
    result: Array = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    return result


def read(where: str, fields: ReadFields) -> PatchProcessor:
    """Return the processor of the fields of a preprocessor_config.json; `where` is named in errors."""

    def integer(name: str, default: int, least: int = 1, most: int = MAX_SIDE_PIXELS) -> int:
        value = fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise invalid_field(where, name, f"an integer from {least} to {most}", value)
        return value

    def boolean(name: str) -> bool:
        value = fields.get(name, True)
        if not isinstance(value, bool):
            raise invalid_field(where, name, "true or false", value)
        return value

    tolerance = fields.get("max_pixels_tolerance", 2.0)
    if type(tolerance) not in (int, float) or not 1 <= tolerance < math.inf:
        raise invalid_field(where, "max_pixels_tolerance", "a number of at least 1", tolerance)
    patch, block = integer("encoder_patch_size", 16), integer("downsample_factor", 2)
    tile = integer("tile_size", 512)
    if tile % (patch * block):
        raise invalid_field(where, "tile_size", f"a multiple of {patch * block}", tile)
    split, most = boolean("do_image_splitting"), integer("max_tiles", 10, most=MAX_TILES)
    split = split and most > 1
    return PatchProcessor(
        **pixel_steps(where, fields, "bilinear"),
        patch_side=patch,
        block_side=block,
        min_blocks=integer("min_image_tokens", 64),
        max_blocks=integer("max_image_tokens", 256),
        tile_side=tile,
        tiles=(integer("min_tiles", 2, 2, most) if split else 1, most),
        split=split,
        overview=boolean("use_thumbnail"),
        tolerance=float(tolerance),
    )

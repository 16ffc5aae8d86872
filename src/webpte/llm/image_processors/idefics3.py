"""Idefics 3 and SmolVLM: an image as square tiles and an overview."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import FormatError
from ...fields import ReadFields
from ...typing import Array
from ..image_processor import MAX_SIDE_PIXELS, ImageProcessor, Size, Tiles, image_pixels, invalid_field, pixel_steps

if TYPE_CHECKING:
    from PIL import Image

TYPES = ("Idefics3ImageProcessor", "SmolVLMImageProcessor")


@dataclass(frozen=True)
class TileProcessor(ImageProcessor):
    """Splits an image into square tiles and an overview."""

    side: int  # of a tile
    longest_side: int  # of the image before it is split
    split: bool

    page_kind = "tiles"

    def __call__(self, image: Image.Image) -> Tiles:
        image = self.resized(image, self._scaled((image.height, image.width)))
        if not self.split:
            return Tiles((image_pixels(self.resized(image, (self.side, self.side))),))
        height, width = size = self._whole_tiles((image.height, image.width))
        image = self.resized(image, size)
        overview = image_pixels(self.resized(image, (self.side, self.side)))
        if size == (self.side, self.side):
            return Tiles((overview,))
        pixels, rows, columns = image_pixels(image), height // self.side, width // self.side
        split = pixels.reshape(3, rows, self.side, columns, self.side).transpose(1, 3, 0, 2, 4)
        return Tiles((*split.reshape(-1, 3, self.side, self.side), overview), rows, columns)

    def arguments(self, pixels: Array) -> tuple[Array, ...]:
        return (self.normalized(pixels)[None],)

    def for_encoder(self, where: str, inputs: Sequence[tuple[int, ...]]) -> TileProcessor:
        if [*inputs] != [(1, 3, self.side, self.side)]:
            raise FormatError(
                argument=where,
                expected=f"tiles for an encoder of {', '.join(map(str, inputs))}",
                got=f"tiles of {self.side} pixels",
                code="other_export",
            )
        return self

    def text(self, tiles: Tiles) -> str:
        parts = [
            "".join(
                f"<fake_token_around_image><row_{row}_col_{column}><image>" for column in range(1, tiles.columns + 1)
            )
            + "\n"
            for row in range(1, tiles.rows + 1)
        ]
        first = "\n" if parts else ""
        return f"{''.join(parts)}{first}<fake_token_around_image><global-img><image><fake_token_around_image>"

    def _scaled(self, size: Size) -> Size:
        """Return the size with its longer side set to `longest_side`, and the other rounded up to an even number."""
        height, width = size
        ratio = width / height
        if width >= height:
            width = self.longest_side
            height = int(width / ratio)
            height += height % 2
        else:
            height = self.longest_side
            width = int(height * ratio)
            width += width % 2
        height, width = max(height, 1), max(width, 1)
        if max(height, width) > MAX_SIDE_PIXELS:
            ratio = width / height
            if width >= height:
                height, width = int(MAX_SIDE_PIXELS / ratio), MAX_SIDE_PIXELS
            else:
                height, width = MAX_SIDE_PIXELS, int(MAX_SIDE_PIXELS * ratio)
        return max(height, 1), max(width, 1)

    def _whole_tiles(self, size: Size) -> Size:
        """Return the size with both sides rounded up to whole tiles."""
        height, width = size
        ratio = width / height
        if width >= height:
            width = math.ceil(width / self.side) * self.side
            height = math.ceil(int(width / ratio) / self.side) * self.side
        else:
            height = math.ceil(height / self.side) * self.side
            width = math.ceil(int(height * ratio) / self.side) * self.side
        return max(height, self.side), max(width, self.side)


def read(where: str, fields: ReadFields) -> TileProcessor:
    """Return the processor of the fields of a preprocessor_config.json; `where` is named in errors."""
    split = fields.get("do_image_splitting", True)
    if not isinstance(split, bool):
        raise invalid_field(where, "do_image_splitting", "true or false", split)
    return TileProcessor(
        **pixel_steps(where, fields, "lanczos"),
        side=_longest_edge(where, fields, "max_image_size", 364),
        longest_side=_longest_edge(where, fields, "size", 4 * 364),
        split=split,
    )


def _longest_edge(where: str, fields: ReadFields, name: str, default: int) -> int:
    value = fields.get(name, {"longest_edge": default})
    edge = value.get("longest_edge") if isinstance(value, dict) else None
    if not isinstance(edge, int) or isinstance(edge, bool) or not 1 <= edge <= MAX_SIDE_PIXELS:
        raise invalid_field(where, name, f"a longest_edge from 1 to {MAX_SIDE_PIXELS}", value)
    return edge

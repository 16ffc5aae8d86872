"""Gemma 3: an image as one square."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import FormatError, UnsupportedError
from ...fields import ReadFields
from ...typing import Array
from ..image_processor import MAX_SIDE_PIXELS, ImageProcessor, Tiles, image_pixels, invalid_field, pixel_steps

if TYPE_CHECKING:
    from PIL import Image

TYPES = ("Gemma3ImageProcessor",)


@dataclass(frozen=True)
class SquareProcessor(ImageProcessor):
    """Resizes an image to a square."""

    side: int

    page_kind = "square"
    image_token = "<image_soft_token>"
    placeholder = "<start_of_image>"

    def __call__(self, image: Image.Image) -> Tiles:
        return Tiles((image_pixels(self.resized(image, (self.side, self.side))),))

    def text(self, tiles: Tiles) -> str:
        return f"\n\n{self.placeholder}{self.image_token}<end_of_image>\n\n"

    def arguments(self, pixels: Array) -> tuple[Array, ...]:
        return (self.normalized(pixels)[None],)

    def for_encoder(self, where: str, inputs: Sequence[tuple[int, ...]]) -> SquareProcessor:
        if [*inputs] != [(1, 3, self.side, self.side)]:
            raise FormatError(
                argument=where,
                expected=f"images for an encoder of {', '.join(map(str, inputs))}",
                got=f"images of {self.side} pixels",
                code="other_export",
            )
        return self


def read(where: str, fields: ReadFields) -> SquareProcessor:
    """Return the processor of the fields of a preprocessor_config.json; `where` is named in errors."""
    if fields.get("do_pan_and_scan"):
        raise UnsupportedError(
            argument=f"{where}: do_pan_and_scan", expected="false", got="true", code="image_processor"
        )
    size = fields.get("size", {"height": 224, "width": 224})
    side = size.get("height") if isinstance(size, dict) else None
    if type(side) is not int or not 1 <= side <= MAX_SIDE_PIXELS or size.get("width") != side:
        raise invalid_field(where, "size", f"an equal height and width from 1 to {MAX_SIDE_PIXELS}", size)
    return SquareProcessor(**pixel_steps(where, fields, "bilinear"), side=side)

"""Prepare images for the encoder of a language model, as preprocessor_config.json beside the program declares.

PIL computes the resize filters; the rest is computed in the order and precision of transformers' processors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FormatError, UnsupportedError
from ..typing import Array

if TYPE_CHECKING:
    from PIL import Image

Size = tuple[int, int]  # height, width
MAX_SIDE_PIXELS = 4096  # of an image before it is split, as in transformers
MAX_CONFIG_BYTES = 1 << 20
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # in the order of PIL's numbers
TILE_PROCESSORS = ("Idefics3ImageProcessor", "SmolVLMImageProcessor")
_SUFFIXES = ("Fast", "Pil")  # of the same processors in other implementations


@dataclass(frozen=True)
class Tiles:
    """An image as squares: tiles in the order of reading, then the overview; the overview alone if it is not split."""

    pixels: tuple[Array, ...]  # uint8, each (3, S, S)
    rows: int = 0
    columns: int = 0


@dataclass(frozen=True)
class TileProcessor:
    """Splits an image into square tiles and an overview: Idefics 3, SmolVLM."""

    side: int  # of a tile
    longest_side: int  # of the image before it is split
    resample: str
    split: bool
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    image_token = "<image>"

    def __call__(self, image: Image.Image) -> Tiles:
        """Return the tiles of an image in RGB."""
        image = self._resized(image, self._scaled((image.height, image.width)))
        if not self.split:
            return Tiles((_pixels(self._resized(image, (self.side, self.side))),))
        height, width = size = self._whole_tiles((image.height, image.width))
        image = self._resized(image, size)
        overview = _pixels(self._resized(image, (self.side, self.side)))
        if size == (self.side, self.side):
            return Tiles((overview,))
        pixels, rows, columns = _pixels(image), height // self.side, width // self.side
        split = pixels.reshape(3, rows, self.side, columns, self.side).transpose(1, 3, 0, 2, 4)
        return Tiles((*split.reshape(-1, 3, self.side, self.side), overview), rows, columns)

    def normalized(self, pixels: Array) -> Array:
        """Return the encoder's input for a tile, (1, 3, S, S)."""
        mean, std = (np.array(each, np.float32)[:, None, None] for each in (self.mean, self.std))
        values: Array = ((pixels.astype(np.float64) * self.scale).astype(np.float32) - mean) / std
        return values[None]

    def text(self, tiles: Tiles) -> str:
        """Return the text of an image in a prompt, with one `image_token` for each tile."""
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

    def _resized(self, image: Image.Image, size: Size) -> Image.Image:
        from PIL import Image

        return image.resize((size[1], size[0]), Image.Resampling[self.resample.upper()])


def _pixels(image: Image.Image) -> Array:
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))  # (3, H, W)


def read_image_processor(path: Path) -> TileProcessor:
    """Return the processor that preprocessor_config.json declares."""
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise FormatError(argument=str(path), expected=f"at most {MAX_CONFIG_BYTES} bytes", got=path.stat().st_size)
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{path} cannot be read: {error}", code="unreadable") from error
    if not isinstance(fields, dict):
        raise FormatError(argument=str(path), expected="a JSON object", got=type(fields).__name__, code="invalid_json")
    return image_processor(str(path), fields)


def image_processor(where: str, fields: Mapping[str, Any]) -> TileProcessor:
    """Return the processor of the fields of a preprocessor_config.json; `where` is named in errors."""
    name = str(fields.get("image_processor_type", fields.get("feature_extractor_type")))
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    if name not in TILE_PROCESSORS:
        raise UnsupportedError(
            argument=f"{where}: image_processor_type",
            expected=f"one of {', '.join(TILE_PROCESSORS)}",
            got=name,
            code="image_processor",
        )
    steps = ("do_resize", "do_rescale", "do_normalize", "do_pad", "do_convert_rgb")
    for step in steps:
        if fields.get(step, True) is not True:
            raise UnsupportedError(
                argument=f"{where}: {step}", expected="true", got=fields[step], code="image_processor"
            )
    resample = fields.get("resample", FILTERS.index("lanczos"))
    if not isinstance(resample, int) or isinstance(resample, bool) or not 0 <= resample < len(FILTERS):
        raise _invalid(where, "resample", f"an integer from 0 to {len(FILTERS) - 1}", resample)
    split = fields.get("do_image_splitting", True)
    if not isinstance(split, bool):
        raise _invalid(where, "do_image_splitting", "true or false", split)
    std = _numbers(where, fields, "image_std")
    if not all(std):
        raise _invalid(where, "image_std", "numbers other than 0", std)
    return TileProcessor(
        side=_longest_edge(where, fields, "max_image_size", 364),
        longest_side=_longest_edge(where, fields, "size", 4 * 364),
        resample=FILTERS[resample],
        split=split,
        scale=_numbers(where, {"rescale_factor": [fields.get("rescale_factor", 1 / 255)] * 3}, "rescale_factor")[0],
        mean=_numbers(where, fields, "image_mean"),
        std=std,
    )


def _longest_edge(where: str, fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name, {"longest_edge": default})
    edge = value.get("longest_edge") if isinstance(value, dict) else None
    if not isinstance(edge, int) or isinstance(edge, bool) or not 1 <= edge <= MAX_SIDE_PIXELS:
        raise _invalid(where, name, f"a longest_edge from 1 to {MAX_SIDE_PIXELS}", value)
    return edge


def _numbers(where: str, fields: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """Return three numbers, one for each channel."""
    value = fields.get(name, [0.5] * 3)
    numbers = isinstance(value, list) and all(type(each) in (int, float) and math.isfinite(each) for each in value)
    if not numbers or len(value) != 3:
        raise _invalid(where, name, "three numbers", value)
    return tuple(map(float, value))


def _invalid(where: str, name: str, expected: str, got: object) -> FormatError:
    return FormatError(argument=f"{where}: {name}", expected=expected, got=got, code="invalid_field")

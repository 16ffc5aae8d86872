"""Prepare images for the encoder of a language model, as preprocessor_config.json beside the program declares.

PIL computes the resize filters; the rest is computed in the order and precision of transformers' processors. Each kind
of processor is a file in image_processors/.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FormatError, UnsupportedError
from ..fields import FieldRule, ReadFields
from ..json_files import read_json_object
from ..typing import Array
from . import image_processors

if TYPE_CHECKING:
    from PIL import Image

Size = tuple[int, int]  # height, width
MAX_SIDE_PIXELS = 4096  # of an image before it is split, as in transformers
MAX_CONFIG_BYTES = 1 << 20
MAX_FACTOR = 1e6  # of pixels: products of three are finite
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # in the order of PIL's numbers
# Of a program whose rows of images have positions of three axes: returns the pairs of a head that rotate by each.
SECTIONS_METHOD = "get_rope_sections"
BIDIRECTIONAL_METHOD = "get_bidirectional_images"  # of a program: whether the rows of an image see each other
_SUFFIXES = ("Fast", "Pil")  # of the same processors in other implementations


@dataclass(frozen=True)
class Tiles:
    """An image as parts: tiles in the order of reading, then the overview; the overview alone if it is not split."""

    pixels: tuple[Array, ...]  # uint8, each (3, H, W)
    rows: int = 0
    columns: int = 0


@dataclass(frozen=True)
class ImageProcessor(ABC):
    """Turns an image into the inputs of an encoder, and into a text with a token for each of them."""

    resample: str
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    page_kind = ""  # its name in the player of pages; "" if pages cannot prepare its images
    image_token = "<image>"  # in the place of the rows of a tile
    placeholder = "<image>"  # that templates render for an image

    @abstractmethod
    def __call__(self, image: Image.Image) -> Tiles:
        """Return the tiles of an image in RGB."""

    @abstractmethod
    def text(self, tiles: Tiles) -> str:
        """Return the text of an image in a prompt, with one `image_token` for each tile."""

    @abstractmethod
    def arguments(self, pixels: Array) -> tuple[Array, ...]:
        """Return the encoder's inputs for a tile."""

    @abstractmethod
    def for_encoder(self, where: str, inputs: Sequence[tuple[int, ...]]) -> ImageProcessor:
        """Return the processor for an encoder with inputs of at most these dims. Raise FormatError unless it fits."""

    def rows(self, pixels: Array, max_rows: int) -> int:
        """Return the rows of a tile in the decoder's input, of at most `max_rows`."""
        return max_rows

    def columns(self, pixels: Array) -> int:
        """Return the columns of the grid that the rows of a tile are; 0 if their positions have one axis."""
        return 0

    def min_rows(self, max_rows: int) -> int:
        """Return the fewest rows of an image, whose tiles have at most `max_rows`."""
        return max_rows

    def encoder_shapes(self, inputs: Sequence[tuple[int, ...]]) -> list[Sequence[tuple[int, ...]]]:
        """Return the dims of all `arguments`, for an encoder with inputs of at most these dims."""
        return [inputs]

    def declaration(self) -> dict[str, Any]:
        """Return the processor as data, for pages."""
        names = {"kind": self.page_kind, "image_token": self.image_token, "placeholder": self.placeholder}
        return {**names, **asdict(self)}

    def normalized(self, pixels: Array) -> Array:
        """Return a tile as floats."""
        mean, std = (np.array(each, np.float32)[:, None, None] for each in (self.mean, self.std))
        values: Array = ((pixels.astype(np.float64) * self.scale).astype(np.float32) - mean) / std
        return values

    def resized(self, image: Image.Image, size: Size) -> Image.Image:
        from PIL import Image

        return image.resize((size[1], size[0]), Image.Resampling[self.resample.upper()])


def image_pixels(image: Image.Image) -> Array:
    """Return the pixels of an image in RGB, (3, H, W)."""
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


@cache
def _readers() -> dict[str, Any]:
    """Return the files of image_processors/ by the types that they read."""
    names = [file.name for file in iter_modules(image_processors.__path__)]
    modules = [import_module(f"{image_processors.__name__}.{name}") for name in names]
    return {kind: module for module in modules for kind in module.TYPES}


def read_image_processor(path: Path) -> ImageProcessor:
    """Return the processor that preprocessor_config.json declares."""
    return image_processor(str(path), read_json_object(path, MAX_CONFIG_BYTES))


def image_processor(where: str, fields: Mapping[str, Any]) -> ImageProcessor:
    """Return the processor of the fields of a preprocessor_config.json; `where` is named in errors."""
    read = ReadFields(where, fields)
    name = str(read.get("image_processor_type", read.get("feature_extractor_type")))
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    if name not in _readers():
        raise UnsupportedError(
            argument=f"{where}: image_processor_type",
            expected=f"one of {', '.join(sorted(_readers()))}",
            got=name,
            code="image_processor",
        )
    processor: ImageProcessor = _readers()[name].read(where, read)
    read.warn_unread(_IGNORED.__contains__, _RULES)
    return processor


# Fields of steps that are refused or switched off, of other parts of the model, of videos and of the file's origin.
_IGNORED = {
    "processor_class", "auto_map", "feature_extractor_type", "crop_size", "pad_size", "data_format", "device",
    "input_data_format", "return_tensors", "disable_grouping", "default_to_square", "return_row_col_info",
    "pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops", "pan_and_scan_min_ratio_to_activate",
    "image_seq_length", "image_seq_len", "max_num_patches", "video_sampling", "video_size", "num_frames", "fps",
    "use_image_special_tokens",
}  # fmt: skip
_RULES = {"temporal_patch_size": FieldRule((2,), "patches of another number of frames")}


def pixel_steps(
    where: str,
    fields: ReadFields,
    resample: str,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.5, 0.5, 0.5),
) -> dict[str, Any]:
    """Return the fields of an ImageProcessor. Defaults are those of the kind of processor."""
    steps = ("do_resize", "do_rescale", "do_normalize", "do_pad", "do_convert_rgb")
    for step, value in {**dict.fromkeys(steps, True), "do_center_crop": False}.items():
        if fields.get(step, value) is not value:
            raise UnsupportedError(
                argument=f"{where}: {step}",
                expected="true" if value else "false",
                got=fields.get(step),
                code="image_processor",
            )
    number = fields.get("resample", FILTERS.index(resample))
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(FILTERS):
        raise invalid_field(where, "resample", f"an integer from 0 to {len(FILTERS) - 1}", number)
    factor = fields.get("rescale_factor", 1 / 255)
    std = _numbers(where, "image_std", fields.get("image_std", list(std)))
    if min(map(abs, std)) < 1 / MAX_FACTOR:
        raise invalid_field(where, "image_std", f"numbers of at least {1 / MAX_FACTOR:g}", std)
    return {
        "resample": FILTERS[number],
        "scale": _numbers(where, "rescale_factor", [factor] * 3)[0],
        "mean": _numbers(where, "image_mean", fields.get("image_mean", list(mean))),
        "std": std,
    }


def _numbers(where: str, name: str, value: Any) -> tuple[float, ...]:
    """Return three numbers, one for each channel."""
    numbers = isinstance(value, list) and all(type(each) in (int, float) and abs(each) <= MAX_FACTOR for each in value)
    if not numbers or len(value) != 3:
        raise invalid_field(where, name, f"three numbers of at most {MAX_FACTOR:g}", value)
    return tuple(map(float, value))


def invalid_field(where: str, name: str, expected: str, got: object) -> FormatError:
    return FormatError(argument=f"{where}: {name}", expected=expected, got=got, code="invalid_field")

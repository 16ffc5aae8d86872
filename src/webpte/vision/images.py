"""Take images of every kind, and prepare them for a program as transformers' processors do, to the bit.

PIL computes the resize filters. The rest is computed in the same order and precision as in transformers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, InputError
from ..image_files import check_pillow, open_image
from ..runtime.checks import check_list
from ..task_file import TaskFile

if TYPE_CHECKING:
    from PIL import Image

    ImageInput = str | os.PathLike[str] | bytes | Image.Image | NDArray[np.uint8]

Pixels = NDArray[np.float32]
Size = tuple[int, int]  # height, width
RESIZE_MODES = ("exact", "shortest", "fit", "none")
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # in the order of PIL's numbers
MAX_RESIZED_SIDE_PIXELS = 1 << 15  # an image of 1 x 60,000 would otherwise be enlarged without limit


def open_images(images: Iterable[ImageInput]) -> list[Image.Image]:
    """Return all images in RGB, rotated by their EXIF orientation."""
    check_pillow()
    from PIL import Image

    if isinstance(images, Image.Image):
        raise InputError(
            argument="images",
            expected="a list of images, such as ['cat.jpg']",
            got=f"one {type(images).__name__}",
            code="wrong_type",
        )
    return [
        open_image(image, f"images[{number}]")
        for number, image in enumerate(check_list(images, "images", "images", "['cat.jpg']"))
    ]


@dataclass(frozen=True)
class ImagePreprocessor:
    """Resizes, crops, scales, normalizes and pads an image, as the config of a processor specifies."""

    resize: str  # "exact": to `size`; "shortest": that side to size[0]; "fit": that, but no side above size[1]
    size: Size
    resample: str
    crop: Size | None  # around the center
    scale: float | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    pad: Size | None  # with zeros, at the right and at the bottom

    @property
    def frame(self) -> Size:
        """Return the size of every prepared image."""
        return self.pad or self.crop or self.size

    def __call__(self, image: Image.Image) -> tuple[Pixels, Size]:
        """Return the pixels (3, H, W), and the size of the image in them without padding."""
        from PIL import Image

        if self.resize != "none":
            height, width = self._resized((image.height, image.width))
            image = image.resize((width, height), Image.Resampling[self.resample.upper()])
        pixels = np.asarray(image).transpose(2, 0, 1)  # (3, H, W)
        if self.crop is not None:
            pixels = center_crop(pixels, self.crop)
        values = pixels.astype(np.float32)
        if self.scale is not None:
            values = (pixels.astype(np.float64) * self.scale).astype(np.float32)
        if self.mean is not None and self.std is not None:
            mean, std = (np.array(value, np.float32)[:, None, None] for value in (self.mean, self.std))
            values = (values - mean) / std
        size = values.shape[1], values.shape[2]
        if size != self.frame:
            values = self._padded(values)
        return np.ascontiguousarray(values), size

    def _resized(self, size: Size) -> Size:
        if self.resize == "exact":
            return self.size
        height, width = shortest_side(size, self.size[0]) if self.resize == "shortest" else fit_sides(size, *self.size)
        if not (height and width) or max(height, width) > MAX_RESIZED_SIDE_PIXELS:
            raise InputError(
                argument="image",
                expected=f"sides of 1 to {MAX_RESIZED_SIDE_PIXELS} pixels after the resize",
                got=f"{height} x {width} from {size[0]} x {size[1]}",
                code="image_size",
            )
        return height, width

    def _padded(self, pixels: Pixels) -> Pixels:
        (_, height, width), (frame_height, frame_width) = pixels.shape, self.frame
        if self.pad is None or height > frame_height or width > frame_width:
            raise InputError(
                argument="image",
                expected=f"{frame_height} x {frame_width} pixels after the resize",
                got=f"{height} x {width}",
                code="image_size",
            )
        return np.pad(pixels, ((0, 0), (0, frame_height - height), (0, frame_width - width)))


def shortest_side(size: Size, side: int) -> Size:
    """Return the size with its shorter side set to `side`, the other in proportion, rounded down."""
    height, width = size
    if width <= height:
        return int(side * height / width), side
    return side, int(side * width / height)


def fit_sides(size: Size, side: int, longest: int) -> Size:
    """Return `shortest_side`, reduced so that the longer side is at most `longest`, up to rounding."""
    low, high = min(size), max(size)
    exact = float(side)
    if high / low * side > longest:
        exact = longest * low / high
        side = round(exact)
    height, width = size
    if min(size) == side:
        return size
    return (int(exact * height / width), side) if width < height else (side, int(exact * width / height))


def center_crop(pixels: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """Return the center of (3, H, W), with zeros around a smaller image."""
    height, width = (max(*sides) for sides in zip(pixels.shape[1:], size, strict=True))
    margin = [math.ceil((large - own) / 2) for large, own in zip((height, width), pixels.shape[1:], strict=True)]
    canvas = np.zeros((3, height, width), pixels.dtype)
    canvas[:, margin[0] : margin[0] + pixels.shape[1], margin[1] : margin[1] + pixels.shape[2]] = pixels
    top, left = (
        (own - cropped) // 2 + extra for own, cropped, extra in zip(pixels.shape[1:], size, margin, strict=True)
    )
    return canvas[:, top : top + size[0], left : left + size[1]]


def read_preprocessor(file: TaskFile) -> ImagePreprocessor:
    """Return the preprocessor that a task file specifies."""
    resize = file.choice("resize", RESIZE_MODES)
    mean, std = ((file.numbers(name, 3) if file.has(name) else None) for name in ("mean", "std"))
    if (mean is None) != (std is None) or (std is not None and not all(std)):
        raise FormatError(
            argument=file.path,
            expected="both mean and std, or neither, and no 0 in std",
            got=f"mean {mean} and std {std}",
            code="invalid_field",
        )
    return ImagePreprocessor(
        resize=resize,
        size=_size(file, "size"),
        resample=file.choice("resample", FILTERS),
        crop=_size(file, "crop") if file.has("crop") else None,
        scale=file.number("scale") if file.has("scale") else None,
        mean=mean,
        std=std,
        pad=_size(file, "pad") if file.has("pad") else None,
    )


def _size(file: TaskFile, name: str) -> Size:
    height, width = file.integers(name, 2)
    return height, width

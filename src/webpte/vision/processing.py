"""A picture as a model takes it: resized, cropped, scaled, normalised and padded, as transformers' processors do.

The filters of a resize are PIL's own, and what follows is computed in the same order and precision: equal to the bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, InputError
from ..task_file import TaskFile

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.float32]
Size = tuple[int, int]  # height, width
RESIZES = ("exact", "shortest", "fit", "none")
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # in the order of PIL's numbers
LONGEST_SIDE = 1 << 15  # pixels of a resized picture: an image of 1 x 60,000 would be enlarged without end


@dataclass(frozen=True)
class Processing:
    """What a processor's config says."""

    resize: str  # "exact": to `size`; "shortest": that side to size[0]; "fit": that, but no side over size[1]
    size: Size
    resample: str
    crop: Size | None  # around the centre
    scale: float | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    pad: Size | None  # with zeros, to the right and below

    @property
    def frame(self) -> Size:
        """What every picture ends as."""
        return self.pad or self.crop or self.size

    def __call__(self, image: Image.Image) -> tuple[Pixels, Size]:
        """(3, H, W), and how much of it, from the left upper corner, is picture."""
        from PIL import Image

        if self.resize != "none":
            height, width = self._resized((image.height, image.width))
            image = image.resize((width, height), Image.Resampling[self.resample.upper()])
        pixels = np.asarray(image).transpose(2, 0, 1)  # (3, H, W)
        if self.crop is not None:
            pixels = centre(pixels, self.crop)
        numbers = pixels.astype(np.float32)
        if self.scale is not None:
            numbers = (pixels.astype(np.float64) * self.scale).astype(np.float32)
        if self.mean is not None and self.std is not None:
            mean, std = (np.array(value, np.float32)[:, None, None] for value in (self.mean, self.std))
            numbers = (numbers - mean) / std
        there = numbers.shape[1], numbers.shape[2]
        if there != self.frame:
            numbers = self._padded(numbers)
        return np.ascontiguousarray(numbers), there

    def _resized(self, there: Size) -> Size:
        if self.resize == "exact":
            return self.size
        size = shortest(there, self.size[0]) if self.resize == "shortest" else fitting(there, *self.size)
        height, width = size
        if not (height and width) or max(height, width) > LONGEST_SIDE:
            raise InputError(f"a picture of {there[0]} x {there[1]} would be resized to {height} x {width}")
        return height, width

    def _padded(self, pixels: Pixels) -> Pixels:
        (_, height, width), (high, wide) = pixels.shape, self.frame
        if self.pad is None or height > high or width > wide:
            raise InputError(f"a picture becomes {height} x {width}; the program takes {high} x {wide}")
        return np.pad(pixels, ((0, 0), (0, high - height), (0, wide - width)))


def shortest(there: Size, side: int) -> Size:
    """The shorter side as given, the other in proportion, rounded down."""
    height, width = there
    if width <= height:
        return int(side * height / width), side
    return side, int(side * width / height)


def fitting(there: Size, side: int, longest: int) -> Size:
    """The same, unless the longer side were above `longest`: then that one is, up to rounding."""
    low, high = min(there), max(there)
    real = float(side)
    if high / low * side > longest:
        real = longest * low / high
        side = round(real)
    height, width = there
    if min(there) == side:
        return there
    return (int(real * height / width), side) if width < height else (side, int(real * width / height))


def centre(pixels: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """The middle of (3, H, W), with zeros around it where the picture is smaller."""
    height, width = (max(*sides) for sides in zip(pixels.shape[1:], size, strict=True))
    spare = [math.ceil((large - own) / 2) for large, own in zip((height, width), pixels.shape[1:], strict=True)]
    room = np.zeros((3, height, width), pixels.dtype)
    room[:, spare[0] : spare[0] + pixels.shape[1], spare[1] : spare[1] + pixels.shape[2]] = pixels
    top, left = ((own - wanted) // 2 + extra
                 for own, wanted, extra in zip(pixels.shape[1:], size, spare, strict=True))  # fmt: skip
    return room[:, top : top + size[0], left : left + size[1]]


def read_processing(file: TaskFile) -> Processing:
    """From NAME.task.json."""
    resize = file.choice("resize", RESIZES)
    mean, std = ((file.numbers(name, 3) if file.has(name) else None) for name in ("mean", "std"))
    if (mean is None) != (std is None) or (std is not None and not all(std)):
        raise FormatError(f"{file.path}: mean is {mean}, std is {std}; both are wanted, and no 0 to divide by")
    return Processing(
        resize,
        _size(file, "size"),
        file.choice("resample", FILTERS),
        _size(file, "crop") if file.has("crop") else None,
        file.number("scale") if file.has("scale") else None,
        mean,
        std,
        _size(file, "pad") if file.has("pad") else None,
    )


def _size(file: TaskFile, name: str) -> Size:
    height, width = file.integers(name, 2)
    return height, width

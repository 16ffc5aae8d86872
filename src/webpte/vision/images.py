"""What callers give as a picture, as a PIL image in colours."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, UnsupportedError
from ..runtime.checks import described, listed

if TYPE_CHECKING:
    from PIL import Image

    Picture = str | os.PathLike[str] | bytes | Image.Image | NDArray[np.uint8]


def pictures(given: Iterable[Picture]) -> list[Image.Image]:
    """All of them, each opened and turned as its file says; one that is none is refused by its number."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError(
            "pictures need the pillow package: pip install 'webpte[tasks]'", code="missing_package"
        ) from error
    single = isinstance(given, Image.Image)
    some = listed(() if single else given, "images", "pictures", "['cat.jpg']")
    if single:
        raise InputError("images is a list of pictures, such as ['cat.jpg'], not a single one")
    return [opened(picture, f"images[{number}]") for number, picture in enumerate(some)]


def opened(picture: Any, name: str) -> Image.Image:
    """A single one; `name` is what a message calls it."""
    from PIL import Image, ImageOps

    if isinstance(picture, (str, os.PathLike, bytes)):
        shown = f"{len(picture)} bytes" if isinstance(picture, bytes) else repr(os.fspath(picture))
        try:
            with Image.open(io.BytesIO(picture) if isinstance(picture, bytes) else picture) as file:
                return ImageOps.exif_transpose(file).convert("RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise InputError(f"{name}, {shown}, cannot be read as a picture: {error}", code="unreadable") from error
    if isinstance(picture, Image.Image):
        return ImageOps.exif_transpose(picture).convert("RGB")
    array = np.asarray(picture) if hasattr(picture, "__array__") else None
    if array is None:
        kinds = "a path, the bytes of a file, a PIL image or an array of pixels"
        raise InputError(f"{name} is {kinds}, not {described(picture)}")
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise InputError(
            f"{name} is an array of {array.dtype} {list(array.shape)}; pixels are uint8 (height, width, 3)"
        )
    return Image.fromarray(array)

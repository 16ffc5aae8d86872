"""Open image files of any origin: bounded formats, bounded pixels, typed errors.

Pillow has decoders for some 40 formats. Some of them are rarely tested, and the one of EPS starts Ghostscript, whatever
the name of the file. Only the formats of `FORMATS` are tried here.
"""

from __future__ import annotations

import io
import os
import reprlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")  # as Pillow calls them
MAX_IMAGE_PIXELS = 1 << 26  # 8192 x 8192, which Pillow decodes to 256 MB


def check_pillow() -> None:
    """Raise UnsupportedError if the pillow package is missing."""
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            "images require the pillow package", code="missing_package", hint="Run: pip install 'webpte[tasks]'."
        ) from error


def open_image(image: Any, argument: str) -> Image.Image:
    """Return one image in RGB: of a path, the bytes of a file, a PIL image or an array of pixels.

    `argument` is the name of the argument in errors.
    """
    check_pillow()
    from PIL import Image

    if isinstance(image, (str, os.PathLike, bytes)):
        return open_image_file(image, argument)
    if isinstance(image, Image.Image):
        return decode_image(image, argument)
    array = np.asarray(image) if hasattr(image, "__array__") else None
    if array is None:
        raise InputError(
            argument=argument,
            expected="a path, the bytes of a file, a PIL image or an array of pixels",
            got=reprlib.repr(image),
            code="wrong_type",
        )
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise InputError(
            argument=argument,
            expected="pixels as uint8 (height, width, 3)",
            got=f"{array.dtype} {list(array.shape)}",
            code="wrong_array",
        )
    return Image.fromarray(array)


def open_image_file(
    source: str | os.PathLike[str] | bytes, argument: str, mode: str = "RGB", max_pixels: int = MAX_IMAGE_PIXELS
) -> Image.Image:
    """Return an image file, or the bytes of one, decoded in `mode` and rotated by its EXIF orientation.

    `argument` is the name of the argument in errors.
    """
    check_pillow()
    from PIL import Image, UnidentifiedImageError

    name = f"{len(source)} bytes" if isinstance(source, bytes) else repr(os.fspath(source))
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as file:
            if file.width * file.height > max_pixels:  # known from the header: nothing is decoded yet
                raise _too_large(argument, f"{file.width} x {file.height} in {name}", max_pixels)
            return decode_image(file, argument, mode, name)
    except Image.DecompressionBombError as error:  # a multiple of our limit, raised by Pillow while it opens the file
        raise _too_large(argument, f"{name}: {error}", max_pixels) from error
    except UnidentifiedImageError as error:  # its text holds the address of an object, which differs from run to run
        raise _unreadable(argument, f"{name} in no such format") from error
    except InputError:
        raise
    except Exception as error:  # a plugin raises whatever its parser stumbles over
        raise _unreadable(argument, f"{name}: {_reason(error)}") from error


def decode_image(image: Image.Image, argument: str, mode: str = "RGB", name: str = "a PIL image") -> Image.Image:
    """Return an opened image in `mode`, rotated by its EXIF orientation. `name` describes it in errors."""
    from PIL import ImageOps

    try:
        return _opaque(ImageOps.exif_transpose(image)).convert(mode)
    except Exception as error:  # decoders raise OSError, ValueError, struct.error, IndexError and others
        raise _unreadable(argument, f"{name}: {_reason(error)}") from error


def _opaque(image: Image.Image) -> Image.Image:
    """Return an image with its transparent parts on white, as transformers' processors do."""
    from PIL import Image

    if "A" not in image.getbands() and image.info.get("transparency") is None:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def _too_large(argument: str, got: str, max_pixels: int) -> InputError:
    return InputError(
        argument=argument,
        expected=f"an image of at most {max_pixels} pixels",
        got=got,
        code="image_size",
        hint="Resize it first.",
    )


def _unreadable(argument: str, got: str) -> InputError:
    expected = f"an image file ({', '.join(FORMATS[:-1])} or {FORMATS[-1]})"
    return InputError(argument=argument, expected=expected, got=got, code="unreadable")


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__

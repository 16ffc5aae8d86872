"""Images as the tasks read them, through Pillow and without a model: files, arrays, rotation, resizing."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from webpte.errors import InputError
from webpte.vision.images import FILTERS, ImagePreprocessor, open_images

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 4, 3), np.uint8)  # (H, W, C)
ROTATED = 6  # the EXIF orientation of an image that is to be turned by 90 degrees
ORIENTATION = 0x0112


def png(pixels=PIXELS, **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", **options)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_open_images_any_mode_returns_rgb(mode):
    (image,) = open_images([Image.new(mode, (5, 3))])
    assert image.mode == "RGB" and image.size == (5, 3)


def test_open_images_bytes_path_and_array_return_the_same_pixels(tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    for image in open_images([png(), tmp_path / "a.png", PIXELS]):
        np.testing.assert_array_equal(np.asarray(image), PIXELS)


def test_open_images_with_orientation_returns_the_rotated_image():
    exif = Image.Exif()
    exif[ORIENTATION] = ROTATED
    (image,) = open_images([png(exif=exif)])
    np.testing.assert_array_equal(np.asarray(image), np.rot90(PIXELS, -1))


@pytest.mark.parametrize("data", [b"", b"not an image", png()[:40]])
def test_open_images_invalid_bytes_raises_input_error(data):
    with pytest.raises(InputError, match=r"images\[0\]"):
        open_images([data])


@pytest.mark.parametrize("resample", FILTERS)
def test_preprocessor_every_filter_returns_the_frame(resample):
    process = ImagePreprocessor("exact", (8, 10), resample, (6, 6), 1 / 255, None, None, None)
    pixels, there = process(Image.fromarray(PIXELS))
    assert pixels.shape == (3, 6, 6) and there == (6, 6)
    assert pixels.dtype == np.float32 and 0 <= pixels.min() <= pixels.max() <= 1

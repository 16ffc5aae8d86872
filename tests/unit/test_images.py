"""Images as the tasks read them, through Pillow and without a model: files, arrays, rotation, resizing."""

from __future__ import annotations

import io
import subprocess
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.support.harness.errors import raises
from webpte.errors import InputError
from webpte.image_files import FORMATS, MAX_IMAGE_PIXELS, open_image_file
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


def transparent(mode: str) -> Image.Image:
    """Return an image that is black in all modes, and becomes more transparent from row to row."""
    image = Image.new("RGBA", (2, 6))
    image.putalpha(Image.fromarray(np.repeat(np.array([[255], [254], [200], [128], [1], [0]], np.uint8), 2, axis=1)))
    return image if mode == "RGBA" else image.convert(mode)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_open_images_puts_transparent_parts_on_white(mode):
    file = io.BytesIO()
    transparent(mode).save(file, "PNG")
    for image in open_images([transparent(mode), file.getvalue()]):
        assert np.asarray(image)[:, 0].tolist() == [[grey] * 3 for grey in (0, 1, 55, 127, 254, 255)]


@pytest.mark.parametrize("mode", ["P", "L", "RGB"])
def test_open_images_puts_transparent_color_on_white(mode):
    """GIF and PNG may declare one color as transparent, without alpha."""
    image = Image.new(mode, (2, 1))
    image.putpixel((1, 0), 1 if mode != "RGB" else (1, 1, 1))
    if mode == "P":
        image.putpalette([9, 9, 9, 1, 1, 1])
    file = io.BytesIO()
    image.save(file, "PNG", transparency=0 if mode != "RGB" else (0, 0, 0))
    (opened,) = open_images([file.getvalue()])
    assert np.asarray(opened).tolist() == [[[255] * 3, [1] * 3]]


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


@pytest.mark.parametrize("kind", FORMATS)
def test_open_image_file_every_allowed_format_returns_its_pixels(kind):
    file = io.BytesIO()
    Image.new("RGB", (5, 3), (200, 30, 60)).save(file, kind)
    image = open_image_file(file.getvalue(), "image")
    assert image.size == (5, 3) and np.abs(np.asarray(image, int) - (200, 30, 60)).max() <= 3


def test_open_image_file_eps_named_jpg_is_refused_without_a_process(tmp_path, monkeypatch):
    """Pillow's decoder of EPS would start Ghostscript."""
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: started.append(args))
    Image.new("RGB", (5, 3)).save(tmp_path / "cat.jpg", "EPS")
    with raises(InputError, "images[0]", "PNG, JPEG", "cat.jpg", code="unreadable"):
        open_images([tmp_path / "cat.jpg"])
    assert not started


@pytest.mark.parametrize("kind", ["DDS", "ICO", "JPEG2000", "PPM", "TGA"])
def test_open_image_file_other_format_is_refused(kind):
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, kind)
    with raises(InputError, "image: ", "TIFF", f"{len(file.getvalue())} bytes", code="unreadable"):
        open_image_file(file.getvalue(), "image")


@pytest.mark.parametrize("side", [8193, 30_000])  # Pillow refuses the second itself
def test_open_image_file_too_many_pixels_is_refused_before_decoding(side, monkeypatch):
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda image: pytest.fail("decoded"))
    header = bytearray(png()[: 8 + 25])
    header[16:24] = side.to_bytes(4, "big") * 2  # width and height of IHDR
    header[29:33] = zlib.crc32(header[12:29]).to_bytes(4, "big")
    data = bytes(header) + png()[33:]
    with raises(InputError, "image: ", MAX_IMAGE_PIXELS, code="image_size"):
        open_image_file(data, "image")


def test_open_image_file_error_of_a_plugin_is_typed(monkeypatch):
    def load(image):
        raise IndexError("index out of range")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    with raises(InputError, "image: ", "index out of range", code="unreadable"):
        open_image_file(png(), "image")


def test_open_image_file_invalid_bytes_have_the_same_message_each_time():
    """`webpte batch` writes it into a block, and blocks of the same rows have the same bytes."""
    messages = set()
    for _ in range(2):
        with raises(InputError, code="unreadable") as raised:
            open_image_file(bytes(100), "value")
        messages.add(str(raised.value))
    assert len(messages) == 1 and "0x" not in messages.pop()


@pytest.mark.parametrize("resample", FILTERS)
def test_preprocessor_every_filter_returns_the_frame(resample):
    process = ImagePreprocessor("exact", (8, 10), resample, (6, 6), 1 / 255, None, None, None)
    pixels, there = process(Image.fromarray(PIXELS))
    assert pixels.shape == (3, 6, 6) and there == (6, 6)
    assert pixels.dtype == np.float32 and 0 <= pixels.min() <= pixels.max() <= 1

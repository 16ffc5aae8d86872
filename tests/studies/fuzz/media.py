"""Image and audio files that are changed, read as the tasks read them."""

from __future__ import annotations

import base64
import functools
import io
import json
import struct
from pathlib import Path
from random import Random

import numpy as np

from tests.studies.fuzz.changes import changed_bytes
from tests.studies.fuzz.checkpoints import scratch
from tests.support.models.tiny_vlm import PROCESSOR, ROWS, SIDE
from webpte.image_files import FORMATS, open_image_file
from webpte.serve.media_process import ImageFile, write_samples, write_tiles
from webpte.speech.audio import EXTENSIBLE, FLOAT, PCM

PIXELS = np.random.default_rng(0).integers(0, 256, (13, 17, 3), np.uint8)  # (H, W, C)
TIFF_OPTIONS: tuple[dict[str, str], ...] = (
    {},
    {"compression": "tiff_lzw"},
    {"compression": "jpeg"},
    {"compression": "tiff_deflate"},
)
SAMPLES = np.sin(np.arange(400) / 7)
MODEL_RATE = 16_000
MAX_SECONDS = 60.0
AUDIO = Path(__file__).parents[2] / "support" / "audio"


@functools.cache
def image_files() -> tuple[bytes, ...]:
    """Every allowed format in several modes and encodings, with EXIF and several frames where it has them."""
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: to be turned by 90 degrees
    variants: list[tuple[str, str, dict]] = [
        *(("PNG", mode, {"exif": exif}) for mode in ("RGB", "RGBA", "P", "L", "1", "I;16")),
        *(("JPEG", mode, {"exif": exif, "progressive": mode == "L"}) for mode in ("RGB", "L", "CMYK")),
        *(("WEBP", "RGBA", {"exif": exif, "lossless": lossless}) for lossless in (False, True)),
        *(("GIF", "P", {"save_all": more, "append_images": [_image("P")] if more else []}) for more in (False, True)),
        *(("BMP", mode, {}) for mode in ("RGB", "P", "1", "RGBA")),
        *(("TIFF", "RGB", options) for options in TIFF_OPTIONS),
    ]
    assert {variant[0] for variant in variants} == set(FORMATS)
    return tuple(_encoded(*variant) for variant in variants)


def _image(mode: str):
    from PIL import Image

    image = Image.fromarray(PIXELS)
    return image.convert("L").convert("I;16") if mode == "I;16" else image.convert(mode)


def _encoded(kind: str, mode: str, options: dict) -> bytes:
    file = io.BytesIO()
    _image(mode).save(file, kind, **options)
    return file.getvalue()


@functools.cache
def wav_files() -> tuple[bytes, ...]:
    """WAV files of every kind of sample, mono and stereo."""
    kinds = (
        (PCM, 8, (SAMPLES * 127 + 128).astype("u1").tobytes()),
        (PCM, 16, (SAMPLES * 32767).astype("<i2").tobytes()),
        (PCM, 24, (SAMPLES * 2**23).astype("<i4").view("u1").reshape(-1, 4)[:, :3].tobytes()),
        (PCM, 32, (SAMPLES * 2**31).astype("<i4").tobytes()),
        (FLOAT, 32, SAMPLES.astype("<f4").tobytes()),
        (FLOAT, 64, SAMPLES.astype("<f8").tobytes()),
    )
    return tuple(
        wav_bytes(data, kind, channels, bits, rate)
        for kind, bits, data in kinds
        for channels, rate in ((1, 16_000), (2, 44_100))
    )


@functools.cache
def compressed_files() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(AUDIO.iterdir()))


def wav_bytes(
    body: bytes, kind: int = PCM, channels: int = 1, bits: int = 16, rate: int = 8000, *, extensible=False, block=None
) -> bytes:
    """Return a WAV file with a chunk of odd length before its samples; `block` is a wrong number of bytes per frame."""
    block = channels * bits // 8 if block is None else block
    speed = rate * block & 0xFFFFFFFF
    header = struct.pack("<HHIIHH", EXTENSIBLE if extensible else kind, channels, rate, speed, block, bits)
    if extensible:
        header += struct.pack("<HHI", 22, bits, 0) + struct.pack("<H", kind) + bytes(14)
    chunks = [(b"LIST", b"odd"), (b"fmt ", header), (b"data", body)]
    content = b"".join(name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for name, data in chunks)
    return b"RIFF" + struct.pack("<I", len(content) + 4) + b"WAVE" + content


def run_image(random: Random) -> None:
    """Decode a mutant of an image, as tasks do and as the server's process does."""
    data = changed_bytes(random.choice(image_files()), random, 160)
    if random.random() < 0.5:
        open_image_file(data, "image", random.choice(["RGB", "L"]))
        return
    path, config = scratch() / "mutant.base64", scratch() / "preprocessor_config.json"
    path.write_bytes(base64.b64encode(data) if random.random() < 0.95 else data)
    config.write_text(json.dumps(PROCESSOR))
    encoder = {"config": str(config), "inputs": [[1, 3, SIDE, SIDE]], "max_rows": ROWS}
    image: ImageFile = {"argument": "image", "address": None, "path": str(path)}
    write_tiles(lambda: None, [image], str(scratch()), encoder, 1 << 20, 1 << 20)


def run_audio(random: Random) -> None:
    """Decode a mutant of an audio file as the server's process does. Every format has an equal share."""
    path = scratch() / "mutant.audio"
    base = random.choice(random.choice([wav_files(), *((each,) for each in compressed_files())]))
    path.write_bytes(changed_bytes(base, random, 60))
    write_samples(lambda: None, str(path), str(scratch() / "samples"), MODEL_RATE, MAX_SECONDS)

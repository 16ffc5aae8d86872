"""MP3, FLAC and Ogg files, decoded by libsndfile in the package soundfile."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from ..errors import FormatError, InputError
from ..typing import Array

CHUNK_FRAMES = 1 << 16
MAX_CHANNELS = 64
UNKNOWN_FRAMES = (1 << 63) - 1  # of libsndfile, for a stream without its length
FORMATS = ("MP3", "FLAC", "OGG")  # libsndfile reads more, which are not tested


def decode_compressed(path: Path, data: memoryview, max_seconds: float) -> tuple[Array, int]:
    """Return samples (N,) as f32, the mean of all channels, and their rate."""
    try:
        import soundfile
    except ImportError:
        raise InputError(
            f"{path} is not a WAV file, and other formats require the soundfile package",
            code="missing_package",
            hint="Run: pip install 'webpte[speech]'.",
        ) from None
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.format not in FORMATS or not 1 <= file.channels <= MAX_CHANNELS:
                raise _refused(path)
            if max_seconds * file.samplerate < file.frames < UNKNOWN_FRAMES:
                raise too_long(path, max_seconds)
            parts = [np.zeros(0, np.float32)]
            frames = 0
            while len(chunk := file.read(CHUNK_FRAMES, dtype="float32", always_2d=True)):
                frames += len(chunk)
                if frames > max_seconds * file.samplerate:  # of a file that does not say its length, or a wrong one
                    raise too_long(path, max_seconds)
                parts.append(chunk.mean(1, dtype=np.float32))
            return np.concatenate(parts), file.samplerate
    except soundfile.SoundFileError as error:
        raise _refused(path) from error


def _refused(path: Path) -> FormatError:
    return FormatError(
        "not a WAV, MP3, FLAC or Ogg file that can be decoded",
        argument=str(path),
        code="unreadable",
        hint="Decode other formats first, and pass the samples with rate=.",
    )


def too_long(path: Path, max_seconds: float) -> InputError:
    return InputError(
        argument=str(path), expected=f"at most {max_seconds:g} seconds of audio", got="more", code="too_long"
    )

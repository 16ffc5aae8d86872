"""WAV files: whole numbers of 8, 16, 24 or 32 bits, or floats, which the standard library's reader does not know."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError, UnsupportedError

Array = np.ndarray[Any, Any]
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
_KINDS = {(PCM, 8): "u1", (PCM, 16): "<i2", (PCM, 24): "u1", (PCM, 32): "<i4", (FLOAT, 32): "<f4", (FLOAT, 64): "<f8"}


def read_wav(path: Path) -> tuple[Array, int]:
    """Samples (N, channels) as f32 from -1 to 1, and their rate."""
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}", code="unreadable") from error
    if bytes(data[:4]) != b"RIFF" or bytes(data[8:12]) != b"WAVE":
        raise FormatError(
            f"{path} is not a WAV file; other formats have to be decoded first: pass the samples and rate=",
            code="bad_magic",
        )
    form: memoryview | None = None
    at = 12
    while at + 8 <= len(data):
        name, (size,) = bytes(data[at : at + 4]), struct.unpack_from("<I", data, at + 4)
        # A recorder that was stopped, or that writes to a pipe, leaves a size that is too large: take what is there.
        body = data[at + 8 : at + 8 + size]
        if name == b"fmt ":
            form = body
        elif name == b"data":
            return _samples(path, form, body)
        at += 8 + size + size % 2
    raise FormatError(f"{path} is a WAV file without samples: no 'data' in {len(data)} bytes", code="missing_data")


def _samples(path: Path, form: memoryview | None, body: memoryview) -> tuple[Array, int]:
    if form is None or len(form) < 16:
        raise FormatError(f"{path} is a WAV file that does not say how its samples are stored", code="missing_field")
    kind, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", form)
    if kind == EXTENSIBLE and len(form) >= 26:
        (kind,) = struct.unpack_from("<H", form, 24)
    if (kind, bits) not in _KINDS:
        known = "whole numbers of 8, 16, 24 or 32 bits and floats of 32 or 64 are read"
        raise UnsupportedError(
            f"{path} has samples of format {kind} with {bits} bits; {known}", [f"format {kind}"], code="sample_format"
        )
    if not channels or not rate or block != channels * bits // 8:
        raise FormatError(
            f"{path} contradicts itself: {channels} channels, {bits} bits, {block} bytes, {rate} a second",
            code="contradiction",
        )
    whole = bytes(body[: len(body) // block * block])
    stored = np.frombuffer(whole, _KINDS[kind, bits])
    if (kind, bits) == (PCM, 24):  # the three bytes above a fourth of zeros
        wide = np.zeros((len(stored) // 3, 4), np.uint8)
        wide[:, 1:] = stored.reshape(-1, 3)
        stored, bits = wide.view("<i4")[:, 0], 32
    samples: Array
    if kind == FLOAT:
        samples = stored.astype(np.float32)
    elif bits == 8:  # these alone have no sign
        samples = (stored.astype(np.float32) - 128) / 128
    else:
        samples = (stored / 2.0 ** (bits - 1)).astype(np.float32)
    return samples.reshape(-1, channels), rate

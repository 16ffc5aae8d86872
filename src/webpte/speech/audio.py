"""Audio input: read files, resample, and compute log-mel spectrograms."""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..errors import FormatError, InputError, UnsupportedError
from ..runtime.checks import check_path, wrong_argument
from ..typing import Array
from .compressed import MAX_CHANNELS, decode_compressed, too_long

# WAV: format tags, and the NumPy type of each tag with its number of bits.
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
_SAMPLE_TYPES = {
    (PCM, 8): "u1",
    (PCM, 16): "<i2",
    (PCM, 24): "u1",
    (PCM, 32): "<i4",
    (FLOAT, 32): "<f4",
    (FLOAT, 64): "<f8",
}
MAX_WAV_CHUNKS = 1000  # before the samples: an empty one has 8 bytes, and takes as long as any other

# Resampling.
ZERO_CROSSINGS = 32  # of the sinc on either side: aliases are at -80 dB
KAISER_BETA = 8.0  # side lobes of -80 dB
PASS_BAND = 0.94  # of the lower Nyquist frequency; the filter falls from there to all of it
PHASE_BATCH = 64  # phases whose taps are computed at once
MIN_RATE_HZ, MAX_RATE_HZ = 1_000, 768_000

# Pieces of audio.
SILENCE_SECONDS = 0.1  # in the middle of which audio is cut

# Spectrograms.
FFT_BATCH_FRAMES = 4096  # bounds the memory: an hour has 360,000 frames
MAX_MEL_HZ = 8000.0
MIN_BAND_POWER = 1e-10
MAX_RANGE_DECADES = 8.0  # below the loudest
# Slaney's scale: linear below 1,000 Hz, 15 mels there, then 27 mels for every factor of 6.4.
LINEAR_HZ, LINEAR_MELS, LOG_STEP = 1000.0, 15.0, math.log(6.4) / 27.0


def load_samples(audio: object, rate: int, model_rate: int, max_seconds: float = math.inf) -> Array:
    """Return a file or an array as f32 (N,) at the model's rate. `rate` is that of an array. A file that takes longer
    than `max_seconds` is an error."""
    with np.errstate(over="ignore", invalid="ignore"):  # samples beyond f32 are refused below, not warned about
        if isinstance(audio, (str, os.PathLike)):
            samples, rate = read_audio(Path(check_path(audio, "audio")), max_seconds)
        else:
            samples = _array(audio)
        if samples.ndim == 2:
            samples = samples.mean(1, dtype=np.float32)  # (N, channels) -> (N,)
    if not MIN_RATE_HZ <= rate <= MAX_RATE_HZ:
        raise InputError(
            argument="rate",
            expected=f"{MIN_RATE_HZ} to {MAX_RATE_HZ} samples per second",
            got=rate,
            code="out_of_range",
        )
    if not len(samples):
        raise InputError(argument="audio", expected="at least one sample", got="none", code="empty")
    if not np.isfinite(samples).all():
        first = int(np.argmin(np.isfinite(samples)))
        raise InputError(
            argument="audio", expected="finite samples", got=f"{samples[first]} at {first}", code="not_finite"
        )
    return resample(samples, rate, model_rate)


def _array(audio: object) -> Array:
    if not hasattr(audio, "__array__"):
        raise wrong_argument("audio", "the path of an audio file, or an array of samples", audio)
    samples = np.asarray(audio)
    if samples.ndim not in (1, 2) or (samples.ndim == 2 and not 1 <= samples.shape[1] <= MAX_CHANNELS):
        raise InputError(
            argument="audio",
            expected=f"shape (samples,), or (samples, channels) with at most {MAX_CHANNELS} channels",
            got=list(samples.shape),
            code="wrong_shape",
        )
    if samples.dtype == np.int16:
        return (samples / 32768).astype(np.float32)
    if samples.dtype.kind != "f":
        raise InputError(
            argument="audio", expected="floats from -1 to 1, or int16", got=samples.dtype, code="wrong_dtype"
        )
    return samples.astype(np.float32)


def resample(samples: Array, rate: int, new_rate: int) -> Array:
    """Return samples (N,) at another rate, (ceil(N * new_rate / rate),), by a polyphase windowed sinc.

    An output has one of `up` positions between two inputs, its phase. All outputs of a phase use the same taps, so
    each phase is one product of windows over the input with its taps. Frequencies above the lower Nyquist frequency
    are filtered out.
    """
    if rate == new_rate:
        return samples
    common = math.gcd(rate, new_rate)
    up, down = new_rate // common, rate // common
    cutoff = PASS_BAND * min(1.0, new_rate / rate)  # in units of the input's Nyquist frequency
    half = math.ceil(ZERO_CROSSINGS / cutoff)  # inputs on either side of an output
    count = -(-len(samples) * up // down)
    padded = np.pad(samples.astype(np.float64), (half - 1, half + down))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half)
    result = np.empty(count, np.float32)
    offsets = np.arange(-half + 1, half + 1)
    phases = range(min(up, count))
    for batch in (phases[start : start + PHASE_BATCH] for start in phases[::PHASE_BATCH]):
        first, rest = np.divmod(np.array(batch) * down, up)
        away = offsets - rest[:, None] / up  # distance of each input from the outputs of a phase: (phases, taps)
        taps = cutoff * np.sinc(cutoff * away) * _kaiser(away / half)
        taps /= taps.sum(1, keepdims=True)  # a constant stays constant
        for phase, start, weights in zip(batch, first, taps, strict=True):
            result[phase::up] = windows[start::down][: len(range(phase, count, up))] @ weights
    return result


def _kaiser(x: Array) -> Array:
    """Return the Kaiser window at x: 0 outside -1 to 1."""
    return np.i0(KAISER_BETA * np.sqrt(np.maximum(1 - x * x, 0))) / np.i0(KAISER_BETA) * (np.abs(x) <= 1)


def piece_length(samples: Array, longest: int, rate: int) -> int:
    """Return how many of the first samples (N,) are a piece of at most `longest`.

    Longer audio is cut in the middle of the quietest tenth of a second in the last third of the piece.
    """
    if len(samples) <= longest:
        return len(samples)
    first = longest - longest // 3
    width = max(1, min(int(SILENCE_SECONDS * rate), longest // 3))
    energy = np.cumsum(np.square(samples[first:longest], dtype=np.float64))
    loudness = energy[width - 1 :] - np.concatenate([[0.0], energy[:-width]])
    return first + int(loudness.argmin()) + width // 2


# -- files -------------------------------------------------------------------------------------------------------------


def read_audio(path: Path, max_seconds: float = math.inf) -> tuple[Array, int]:
    """Return samples (N,) or (N, channels) as f32 from -1 to 1, and their rate."""
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", argument=str(path), code="unreadable") from error
    if bytes(data[:4]) == b"RIFF" and bytes(data[8:12]) == b"WAVE":
        samples, rate = _read_wav(path, data)
        if len(samples) > max_seconds * rate:
            raise too_long(path, max_seconds)
        return samples, rate
    return decode_compressed(path, data, max_seconds)


def _read_wav(path: Path, data: memoryview) -> tuple[Array, int]:
    """Return samples (N, channels). The standard library reads neither floats nor truncated files."""
    header: memoryview | None = None
    at = 12
    for _ in range(MAX_WAV_CHUNKS):
        if at + 8 > len(data):
            break
        name, (size,) = bytes(data[at : at + 4]), struct.unpack_from("<I", data, at + 4)
        # A recorder that was stopped, or that writes to a pipe, leaves a size that is too large.
        body = data[at + 8 : at + 8 + size]
        if name == b"fmt ":
            header = body
        elif name == b"data":
            return _wav_samples(path, header, body)
        at += 8 + size + size % 2
    raise FormatError(
        f"WAV file without samples: no 'data' chunk among the first {MAX_WAV_CHUNKS} in {len(data)} bytes",
        argument=str(path),
        code="missing_data",
    )


def _wav_samples(path: Path, header: memoryview | None, body: memoryview) -> tuple[Array, int]:
    if header is None or len(header) < 16:
        raise FormatError(
            "WAV file without a 'fmt ' chunk before its samples", argument=str(path), code="missing_field"
        )
    kind, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", header)
    if kind == EXTENSIBLE and len(header) >= 26:
        (kind,) = struct.unpack_from("<H", header, 24)
    if (kind, bits) not in _SAMPLE_TYPES:
        raise UnsupportedError(
            "",
            [f"format {kind}"],
            argument=str(path),
            expected="integers of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits",
            got=f"format {kind} with {bits} bits",
            code="sample_format",
        )
    if not 1 <= channels <= MAX_CHANNELS:
        raise FormatError(
            argument=str(path), expected=f"1 to {MAX_CHANNELS} channels", got=channels, code="out_of_range"
        )
    if not rate or block != channels * bits // 8:
        raise FormatError(
            f"inconsistent header: {channels} channels of {bits} bits, {block} bytes per frame, {rate} frames per "
            "second",
            argument=str(path),
            code="contradiction",
        )
    frames = bytes(body[: len(body) // block * block])  # without a truncated one
    stored = np.frombuffer(frames, _SAMPLE_TYPES[kind, bits])
    if (kind, bits) == (PCM, 24):  # as the upper three bytes of 32 bits
        wide = np.zeros((len(stored) // 3, 4), np.uint8)
        wide[:, 1:] = stored.reshape(-1, 3)
        stored, bits = wide.view("<i4")[:, 0], 32
    samples: Array
    if kind == FLOAT:
        samples = stored.astype(np.float32)
    elif bits == 8:  # unsigned, unlike the others
        samples = (stored.astype(np.float32) - 128) / 128
    else:
        samples = (stored / 2.0 ** (bits - 1)).astype(np.float32)
    return samples.reshape(-1, channels), rate


# -- spectrograms ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogMel:
    """Log-mel spectrograms with a frame for every `hop` samples, as Whisper was trained on.

    The numbers are those of transformers' WhisperFeatureExtractor.
    """

    rate: int
    bands: int
    fft: int
    hop: int

    def __call__(self, samples: Array) -> Array:
        """Return the spectrogram of samples (N,): f32 (bands, N // hop)."""
        count = len(samples) // self.hop
        half = self.fft // 2
        padded = np.pad(samples.astype(np.float64), half, mode="reflect")
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.fft)[:: self.hop][:count]  # (frames, fft)
        power = np.empty((count, self.bands))
        for start in range(0, count, FFT_BATCH_FRAMES):
            spectrum = np.fft.rfft(windows[start : start + FFT_BATCH_FRAMES] * self._hann)  # (frames, 1 + fft / 2)
            power[start : start + FFT_BATCH_FRAMES] = (spectrum.real**2 + spectrum.imag**2) @ self.filters.T
        logs = np.log10(np.maximum(power, MIN_BAND_POWER))
        logs = np.maximum(logs, logs.max() - MAX_RANGE_DECADES)
        return np.ascontiguousarray(((logs + 4) / 4).T, np.float32)  # (bands, frames)

    @cached_property
    def _hann(self) -> Array:
        return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.fft) / self.fft)

    @cached_property
    def filters(self) -> Array:
        """Return triangles of equal area over the spectrum: (bands, 1 + fft / 2)."""
        hertz = np.linspace(0, self.rate // 2, 1 + self.fft // 2)
        edges = _hertz(np.linspace(0.0, _mels(MAX_MEL_HZ), self.bands + 2))
        low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
        rising, falling = (hertz - low) / (middle - low), (high - hertz) / (high - middle)
        triangles: Array = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
        return triangles


def _mels(hertz: float) -> float:
    """Return the mels of a frequency above the linear part."""
    return LINEAR_MELS + math.log(hertz / LINEAR_HZ) / LOG_STEP


def _hertz(mels: Array) -> Array:
    above = LINEAR_HZ * np.exp(LOG_STEP * (mels - LINEAR_MELS))
    return np.where(mels < LINEAR_MELS, mels * LINEAR_HZ / LINEAR_MELS, above)

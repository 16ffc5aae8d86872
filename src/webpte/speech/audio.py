"""Audio as a model wants it: one channel, f32, at the model's rate."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..runtime.checks import described, path_of
from .wav import read_wav

Array = np.ndarray[Any, Any]
ZERO_CROSSINGS = 32  # of the sinc on either side: -80 dB where the other side of the band would fold back
KAISER = 8.0  # the window's shape: side lobes of -80 dB
BAND = 0.94  # of the lower of both halves of the rates: from there to all of it the filter falls
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
MOST_CHANNELS = 64


def samples_of(audio: object, rate: int, wanted: int) -> Array:
    """What a caller gave, a WAV file or an array, as f32 (N,) at the wanted rate."""
    if isinstance(audio, (str, os.PathLike)):
        samples, rate = read_wav(Path(path_of(audio, "audio")))
    else:
        samples = _array(audio)
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise InputError(
            f"rate is {rate} samples a second; from {LOWEST_RATE} to {HIGHEST_RATE} are resampled", code="out_of_range"
        )
    if samples.ndim == 2:
        samples = samples.mean(1, dtype=np.float32)  # (N, channels) -> (N,)
    if not len(samples):
        raise InputError("audio has no samples", code="empty")
    if not np.isfinite(samples).all():
        raise InputError(
            f"audio has samples that are no numbers, the first at {int(np.argmin(np.isfinite(samples)))}",
            code="not_finite",
        )
    return resample(samples, rate, wanted)


def _array(audio: object) -> Array:
    if not hasattr(audio, "__array__"):
        raise InputError(
            f"audio is the path of a WAV file or an array of samples, not {described(audio)}", code="wrong_type"
        )
    samples = np.asarray(audio)
    if samples.ndim not in (1, 2) or (samples.ndim == 2 and not 1 <= samples.shape[1] <= MOST_CHANNELS):
        raise InputError(
            f"audio has shape {list(samples.shape)}; (samples,) or (samples, channels) with up to {MOST_CHANNELS} "
            "channels is wanted",
            code="wrong_shape",
        )
    if samples.dtype == np.int16:
        return (samples / 32768).astype(np.float32)
    if samples.dtype.kind != "f":
        raise InputError(
            f"audio has dtype {samples.dtype}; floats from -1 to 1 or int16 are wanted", code="wrong_dtype"
        )
    return samples.astype(np.float32)


def resample(samples: Array, rate: int, wanted: int) -> Array:
    """Samples (N,) at another rate, (ceil(N * wanted / rate),), by a windowed sinc that is cut into phases.

    An output lies at one of `up` places between two inputs; all outputs of a phase use the same taps, so each phase is
    one product of windows over the input with its taps. What lies above half of the lower rate is filtered out.
    """
    if rate == wanted:
        return samples
    common = math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    cutoff = BAND * min(1.0, wanted / rate)  # in units of half the input's rate
    half = math.ceil(ZERO_CROSSINGS / cutoff)  # inputs on either side of an output
    count = -(-len(samples) * up // down)
    padded = np.pad(samples.astype(np.float64), (half - 1, half + down))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half)
    result = np.empty(count, np.float32)
    offsets = np.arange(-half + 1, half + 1)
    for phase in range(min(up, count)):
        first, rest = divmod(phase * down, up)
        away = offsets - rest / up  # distance of each input from the outputs of this phase
        taps = cutoff * np.sinc(cutoff * away) * _kaiser(away / half)
        outputs = len(range(phase, count, up))
        result[phase::up] = windows[first::down][:outputs] @ (taps / taps.sum())  # a constant stays what it is
    return result


def _kaiser(x: Array) -> Array:
    """The window at x from -1 to 1, and nothing beyond."""
    return np.i0(KAISER * np.sqrt(np.maximum(1 - x * x, 0))) / np.i0(KAISER) * (np.abs(x) <= 1)

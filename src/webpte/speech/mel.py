"""Log-mel spectrograms, as Whisper was trained on: the numbers of transformers' WhisperFeatureExtractor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FRAMES_AT_ONCE = 4096  # bounds the memory: an hour has 360,000
HIGHEST_HERTZ = 8000.0
FLOOR = 1e-10  # of a band's power
RANGE = 8.0  # decades below the loudest that are kept
# Slaney's scale: linear below 1,000 Hz, 15 mels there, then 27 mels for every factor of 6.4.
LINEAR_HERTZ, LINEAR_MELS, LOG_STEP = 1000.0, 15.0, math.log(6.4) / 27.0


@dataclass(frozen=True)
class LogMel:
    """Samples to (bands, frames), a frame for every `hop` samples."""

    rate: int
    bands: int
    fft: int
    hop: int

    def __call__(self, samples: Array) -> Array:
        """(N,) to f32 (bands, N // hop)."""
        count = len(samples) // self.hop
        half = self.fft // 2
        padded = np.pad(samples.astype(np.float64), half, mode="reflect")
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.fft)[:: self.hop][:count]  # (frames, fft)
        power = np.empty((count, self.bands))
        for start in range(0, count, FRAMES_AT_ONCE):
            spectrum = np.fft.rfft(windows[start : start + FRAMES_AT_ONCE] * self._hann)  # (frames, 1 + fft / 2)
            power[start : start + FRAMES_AT_ONCE] = (spectrum.real**2 + spectrum.imag**2) @ self.filters.T
        logs = np.log10(np.maximum(power, FLOOR))
        logs = np.maximum(logs, logs.max() - RANGE)
        return np.ascontiguousarray(((logs + 4) / 4).T, np.float32)  # (bands, frames)

    @cached_property
    def _hann(self) -> Array:
        return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.fft) / self.fft)

    @cached_property
    def filters(self) -> Array:
        """Triangles over the spectrum (bands, 1 + fft / 2), each of the same area."""
        hertz = np.linspace(0, self.rate // 2, 1 + self.fft // 2)
        edges = _hertz(np.linspace(0.0, _mels(HIGHEST_HERTZ), self.bands + 2))
        low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
        rising, falling = (hertz - low) / (middle - low), (high - hertz) / (high - middle)
        triangles: Array = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
        return triangles


def _mels(hertz: float) -> float:
    """Of a frequency above the linear part."""
    return LINEAR_MELS + math.log(hertz / LINEAR_HERTZ) / LOG_STEP


def _hertz(mels: Array) -> Array:
    above = LINEAR_HERTZ * np.exp(LOG_STEP * (mels - LINEAR_MELS))
    return np.where(mels < LINEAR_MELS, mels * LINEAR_HERTZ / LINEAR_MELS, above)

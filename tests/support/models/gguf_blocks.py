"""Quantize matrices into GGUF blocks.

The package gguf quantizes Q4_0 and Q8_0. It only decodes Q4_K and Q6_K, so their blocks are filled here, from the
layouts in ggml's `block_q4_K` and `block_q6_K`. Every group has a step of its own, as in files of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np

FORMATS = ("Q4_0", "Q4_K", "Q6_K", "Q8_0")
BLOCK = 256  # weights of a block of Q4_K and Q6_K


def quantize(weight: np.ndarray, kind: str) -> np.ndarray:
    """Return the blocks of a matrix as rows of bytes."""
    fill = _FILLS.get(kind)
    if fill is None:
        return gguf.quants.quantize(weight, gguf.GGMLQuantizationType[kind])
    blocks = fill(weight.reshape(-1, BLOCK).astype(np.float32))
    return blocks.reshape(len(weight), -1)


def dequantize(blocks: np.ndarray, kind: str) -> np.ndarray:
    """Return what the package gguf reads from blocks."""
    return gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind])


def _q4_k(weight: np.ndarray) -> np.ndarray:
    """Return 144 bytes per block: two f16 factors, 8 steps and 8 minima of 6 bits, 256 codes of 4 bits."""
    groups = weight.reshape(-1, 8, 32)
    minima = np.maximum(-groups.min(-1), 0)  # subtracted, so they are not negative
    steps = (groups.max(-1) + minima) / 15
    factors = np.stack([steps.max(-1), minima.max(-1)], axis=1) / 63
    halves = factors.astype("<f2")  # (B, 2)
    step_codes, minimum_codes = (
        np.clip(np.rint(each / np.maximum(half, 1e-30)), 0, 63).astype(np.uint8)
        for each, half in zip((steps, minima), halves.astype(np.float32).T[..., None], strict=True)
    )
    exact_steps = halves[:, :1].astype(np.float32) * step_codes
    exact_minima = halves[:, 1:].astype(np.float32) * minimum_codes
    codes = np.rint((groups + exact_minima[..., None]) / np.maximum(exact_steps, 1e-30)[..., None])
    codes = np.clip(codes, 0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    scales = np.concatenate(
        [
            step_codes[:, :4] | step_codes[:, 4:] >> 4 << 6,
            minimum_codes[:, :4] | minimum_codes[:, 4:] >> 4 << 6,
            step_codes[:, 4:] & 15 | (minimum_codes[:, 4:] & 15) << 4,
        ],
        axis=1,
    )
    nibbles = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 128)
    return np.concatenate([halves.view(np.uint8), scales, nibbles], axis=1)


def _q6_k(weight: np.ndarray) -> np.ndarray:
    """Return 210 bytes per block: 256 codes of 4 and 2 bits, 16 steps of 8 bits with a sign, an f16 factor."""
    groups = weight.reshape(-1, 16, 16)
    furthest = np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], axis=-1)[..., 0]
    steps = furthest / -32  # the furthest weight has the lowest code
    factor = (np.abs(steps).max(-1, keepdims=True) / 127).astype("<f2")  # (B, 1)
    step_codes = np.rint(steps / np.maximum(factor.astype(np.float32), 1e-30)).astype(np.int8)
    exact = factor.astype(np.float32) * step_codes
    codes = np.rint(groups / np.where(exact == 0, 1, exact)[..., None])
    codes = (np.clip(codes, -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low, high = codes & 15, codes >> 4
    lower = (low[:, :, :2] | low[:, :, 2:] << 4).reshape(-1, 128)
    upper = np.bitwise_or.reduce(high << np.array([0, 2, 4, 6], np.uint8)[:, None], axis=2).reshape(-1, 64)
    return np.concatenate([lower, upper, step_codes.view(np.uint8), factor.view(np.uint8)], axis=1)


_FILLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"Q4_K": _q4_k, "Q6_K": _q6_k}

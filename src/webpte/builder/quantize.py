"""Quantize weights in NumPy: codes and scales with the least error, in the layouts of a program's constants."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checkpoints.ggml import GROUP
from ..checkpoints.recipe import WeightFormat
from ..errors import UnsupportedError

Array = np.ndarray[Any, Any]

CLIP_COUNT = 9  # tried with the sign that gives the larger end of the range to the largest value
OTHER_CLIP_COUNT = {4: 4, 8: 0}  # by bits: tried with the other sign, which matters with few codes
REFINEMENTS = 2  # of the codes by the best scale, and the scale by those codes
MIN_CLIP = {4: 0.5, 8: 0.9}  # by bits, relative to the largest value: smaller clips do not pay
MIN_VALUE = 1e-20  # a group of smaller values is zero
MAX_PART_WEIGHTS = 1 << 17  # processed together: as many as fit into a cache of the CPU
MAX_WEIGHT = 1e10
LONG_GROUP_WEIGHTS = 256  # groups from this size are summed in place; shorter ones are transposed first
SUM_ROWS = 16  # rows whose sums are added: fewer roundings than row by row
ROW_MULTIPLE = 4  # scales of a 4-bit layer are padded to a multiple of this number of rows
FOUR_BITS = WeightFormat("4w", GROUP)
FOUR_BITS_WITH_OFFSETS = WeightFormat("4w with 8-bit offsets", GROUP)  # a number more for each group


@dataclass(frozen=True)
class Grouped:
    """A weight (N, K) as integers times a scale for every `K / G` columns of a row."""

    codes: Array  # (N, K) int8
    scales: Array  # (N, G) f32

    @property
    def group(self) -> int:
        return int(self.codes.shape[1] // self.scales.shape[1])

    def values(self) -> Array:
        """Return the dequantized weight (N, K)."""
        count, groups = self.scales.shape
        product = self.codes.reshape(count, groups, -1) * self.scales[..., None]
        result: Array = product.reshape(count, -1)
        return result

    def rows(self, order: Array | slice) -> Grouped:
        """Return the weight with some of its rows, or with its rows in another order."""
        return Grouped(self.codes[order], self.scales[order])

    def times(self, factor: float) -> Grouped:
        return self if factor == 1.0 else Grouped(self.codes, self.scales * np.float32(factor))


def extremes(bits: int) -> tuple[int, int]:
    """Return the range of codes. Scales may be negative, so that either side can use the larger end."""
    return -(1 << bits - 1), (1 << bits - 1) - 1


def check_range(name: str, weight: Any) -> None:
    """Refuse a weight, of torch or NumPy, whose sum of squares may not be finite."""
    largest = float(abs(weight).max()) if math.prod(weight.shape) else 0.0
    if not largest <= MAX_WEIGHT:  # NaN compares as false
        raise UnsupportedError(
            items=[name],
            argument=name,
            expected=f"numbers of at most {MAX_WEIGHT:g} in a weight that is quantized",
            got=f"{largest:g}",
            code="weight_range",
            hint="Repair the checkpoint, or export without quantize.",
        )


# ---------------------------------------------------------------- codes and scales


def grouped(weight: Array, bits: int = 4, group: int = 32, importance: Array | None = None) -> Grouped:
    """Return the codes and scales of a weight (N, K) with the least squared error; `importance` (K,) weighs columns.

    For every group, several clips are tried with either sign, each with the best scale for its codes, and the best one
    is refined. One clip is the largest value itself, so the error is never above that of scaling by the maximum.
    """

    def fit(rows: Array) -> Grouped:
        scales = rounded_scales(_Fit(rows, group, bits, importance).scales(), bits)
        return Grouped(_nearest(rows, scales, bits), scales)

    count = part_rows(weight.shape[1])
    parts = [weight[start : start + count].astype(np.float32, copy=False) for start in range(0, len(weight), count)]
    fitted = _map(fit, parts)
    return Grouped(np.concatenate([part.codes for part in fitted]), np.concatenate([part.scales for part in fitted]))


def rounded_scales(scales: Array, bits: int) -> Array:
    """Return the scales of 4-bit codes as the nearest f16 numbers, in f32: 4.5 bits for a weight on devices with f16.

    Scales that are not normal numbers in f16 stay, because a device may take those for 0.
    """
    if bits != 4:
        return scales
    with np.errstate(over="ignore"):
        halves = scales.astype(np.float16)
    normal = np.isfinite(halves) & (np.abs(halves) >= np.finfo(np.float16).smallest_normal)
    result: Array = np.where(normal, halves.astype(np.float32), scales)
    return result


def part_rows(columns: int) -> int:
    """Return the number of rows that are processed together."""
    return max(1, MAX_PART_WEIGHTS // columns)


def _map(function: Callable[[Array], Grouped], parts: list[Array]) -> list[Grouped]:
    """Call the function with each part, in as many threads as there are processors: NumPy releases the lock."""
    jobs = min(len(parts), os.cpu_count() or 1)
    if jobs <= 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(function, parts))


def _nearest(weight: Array, scales: Array, bits: int) -> Array:
    """Return the codes (N, K) of a weight for scales (N, G)."""
    count, groups = scales.shape
    codes = weight.reshape(count, groups, -1) / scales[..., None]
    np.rint(codes, out=codes)
    np.clip(codes, *extremes(bits), out=codes)
    result: Array = codes.reshape(count, -1).astype(np.int8)
    return result


class _Fit:
    """The best scales of some rows so far."""

    def __init__(self, weight: Array, group: int, bits: int, importance: Array | None = None) -> None:
        self._bits = bits
        self._axis = -1 if group >= LONG_GROUP_WEIGHTS else 0
        self._values = self._in_groups(weight, group)
        self._importance = None if importance is None else self._in_groups(importance[None], group)
        self._target = self._values if self._importance is None else self._values * self._importance
        self._codes, self._products = np.empty_like(self._values), np.empty_like(self._values)

    def _in_groups(self, rows: Array, group: int) -> Array:
        """Return rows (N, K) as (N, G, group), or (group, N, G)."""
        split = rows.reshape(len(rows), -1, group)
        return split if self._axis else np.ascontiguousarray(split.transpose(2, 0, 1))

    def scales(self) -> Array:
        """Return the scales (N, G)."""
        low, high = extremes(self._bits)
        whole = (high - low) / 2
        top, bottom = self._values.max(self._axis), self._values.min(self._axis)  # (N, G)
        largest = np.maximum(top, -bottom)
        empty = largest < MIN_VALUE
        further = np.where(top > -bottom, -largest, largest) / np.float32(whole)
        best, gain = np.where(empty, np.float32(1), largest / np.float32(whole)), np.full_like(largest, -1)
        tried = [further * np.float32(clip) for clip in _clips(self._bits, CLIP_COUNT)]
        tried += [further * np.float32(-clip) for clip in _clips(self._bits, OTHER_CLIP_COUNT[self._bits])]
        with np.errstate(all="ignore"):
            for scale in [largest / np.float32(whole), largest / np.float32(high), *tried]:
                best, gain = self._better(np.where(empty, np.float32(1), scale), best, gain)
            for _ in range(REFINEMENTS):
                best, gain = self._better(best, best, gain)
        return best

    def _better(self, scale: Array, best: Array, best_gain: Array) -> tuple[Array, Array]:
        """Return the best scale for the codes of `scale`, and its gain, where the gain is above that of `best`."""
        codes = np.multiply(self._values, np.expand_dims(np.float32(1) / scale, self._axis), out=self._codes)
        np.rint(codes, out=codes)
        np.clip(codes, *extremes(self._bits), out=codes)
        # The scale that fits these codes best is <codes, w> / <codes, codes>; the error is <w, w> less the gain.
        inner = self._sum(np.multiply(codes, self._target, out=self._products))
        squares = np.multiply(codes, codes, out=self._products)
        if self._importance is not None:
            squares *= self._importance
        square = self._sum(squares)
        gain = inner * inner / np.maximum(square, np.finfo(np.float32).tiny)
        better = (square > 0) & (inner != 0) & (gain > best_gain)
        return np.where(better, inner / square, best), np.where(better, gain, best_gain)

    def _sum(self, products: Array) -> Array:
        if self._axis:
            result: Array = products.sum(-1)
            return result
        whole = len(products) // SUM_ROWS * SUM_ROWS
        total: Array = products[whole:].sum(0)
        if whole:
            total = total + products[:whole].reshape(-1, SUM_ROWS, *products.shape[1:]).sum(1).sum(0)
        return total


def _clips(bits: int, count: int) -> list[float]:
    """Return clips from the smallest to the largest value itself."""
    least = MIN_CLIP[bits]
    return [least + (1 - least) * (number + 1) / count for number in range(count)]


# ---------------------------------------------------------------- layouts of constants


def pack_linear(weight: Grouped) -> tuple[Array, Array]:
    """Return the constants of `et_vk.linear_q4gsw`: codes (N, K / 2) u8 and scales (G, N) f32.

    Even columns are in the lower half of a byte. N of the scales is padded to a multiple of ROW_MULTIPLE.
    """
    scales = np.ascontiguousarray(weight.scales.T)
    padding = -scales.shape[1] % ROW_MULTIPLE
    return _nibbles(weight.codes), np.pad(scales, ((0, 0), (0, padding))) if padding else scales


def group_sums(codes: Array, scales: Array) -> Array:
    """Return the sums of the codes in each group, (G, N) i32, of the constants of a 4-bit layer."""
    values = np.stack([codes & 15, codes >> 4], axis=-1).astype(np.int32) - 8  # (N, K / 2, 2)
    result = np.zeros(scales.shape, np.int32)
    result[:, : len(codes)] = values.reshape(len(codes), len(scales), -1).sum(-1).T
    return result


def pack_embedding(weight: Grouped) -> tuple[Array, Array]:
    """Return the constants of `et_vk.embedding_q4gsw`: codes (V, E / 2) u8 and scales (V, G) f32."""
    return _nibbles(weight.codes), weight.scales


def pack_rows(weight: Grouped) -> tuple[Array, Array]:
    """Return the constants of an 8-bit layer or embedding: codes (N, K) i8 and scales (N,) f32."""
    return weight.codes, np.ascontiguousarray(weight.scales[:, 0])


def _nibbles(codes: Array) -> Array:
    """Return pairs of 4-bit codes in bytes, the first in the lower half."""
    unsigned = (codes + np.int8(8)).view(np.uint8)
    result: Array = unsigned[:, 0::2] | unsigned[:, 1::2] << 4
    return result

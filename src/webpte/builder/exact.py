"""Find the codes and scales of weights that were quantized before, so that quantizing them again loses nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..typing import Array
from .quantize import Grouped, extremes, part_rows

RELATIVE_TOLERANCE = 2.0**-20  # of products of codes and a step after two roundings
ULP_OFFSETS = (0, 1, -1, 2, -2, 3, -3)  # of a step from the largest value divided by its code


def exact_codes(weight: Array, bits: int, group: int) -> Grouped | None:
    """Return codes that reproduce a weight (N, K) exactly, if every group has them.

    If a group's largest value is k steps, the step is that value divided by k, or a neighboring float: both product
    and quotient are rounded. Every k is tried, and a step must reproduce all values of the group to the last bit.
    """
    weight = weight.astype(np.float32, copy=False)
    if not _may_be_exact(weight.reshape(-1, group), bits):  # almost every weight ends here
        return None
    count, parts = part_rows(weight.shape[1]), []
    for start in range(0, len(weight), count):
        part = _exact_rows(weight[start : start + count], bits, group)
        if part is None:
            return None
        parts.append(part)
    return Grouped(np.concatenate([part.codes for part in parts]), np.concatenate([part.scales for part in parts]))


def _may_be_exact(groups: Array, bits: int) -> bool:
    """Return whether the first group that has values is close to multiples of some step."""
    used = groups.any(-1)
    if not used.any():
        return False
    values = groups[used.argmax()]
    low, high = extremes(bits)
    counts = np.array([*range(low, 0), *range(1, high + 1)], np.float32)  # (2 ** bits - 1,)
    with np.errstate(all="ignore"):
        return bool(_near(values[None], (values[np.abs(values).argmax()] / counts)[:, None]).any())


def _near(groups: Array, steps: Array) -> Array:
    """Return which groups are close to multiples of their steps: (..., group) and (..., 1) to (...)."""
    result: Array = (np.abs(np.rint(groups / steps) * steps - groups) <= np.abs(groups) * RELATIVE_TOLERANCE).all(-1)
    return result


def _counts(bits: int, largest: Array) -> Iterator[tuple[int, Array]]:
    """Yield the codes that the largest value may have, and for which groups: positive steps first, as torchao."""
    low, high = extremes(bits)
    negative = largest < 0
    above = [(code, negative) for code in range(low, 0)] + [(code, ~negative) for code in range(high, 0, -1)]
    yield from above
    yield from ((code, ~where) for code, where in above)


def _exact_rows(weight: Array, bits: int, group: int) -> Grouped | None:
    rows = len(weight)
    groups = weight.reshape(rows, -1, group)  # (N, G, group)
    largest = np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], -1)[..., 0]  # (N, G), with its sign
    steps = (largest == 0).astype(np.float32)  # 1 for a group of zeros; 0: not found yet
    codes = np.zeros(groups.shape, np.float32)
    low, high = extremes(bits)
    with np.errstate(all="ignore"):
        for code, where in _counts(bits, largest):
            pending = where & (steps == 0)
            if not pending.any():
                continue
            values, guess = groups[pending], (largest[pending] / np.float32(code))[:, None]  # (M, group), (M, 1)
            near = _near(values, guess)
            values, step = values[near], guess[near]
            whole = np.rint(values / step)
            fitted = np.zeros_like(step)
            for offset in ULP_OFFSETS:
                tried = (step.view(np.int32) + np.int32(offset)).view(np.float32)
                fits = (whole * tried == values).all(-1, keepdims=True)
                fitted = np.where(fits & (fitted == 0), tried, fitted)
            in_range = ((whole >= low) & (whole <= high)).all(-1, keepdims=True)
            indices = tuple(index[near] for index in np.nonzero(pending))
            steps[indices], codes[indices] = np.where(in_range, fitted, np.float32(0))[:, 0], whole
    return None if (steps == 0).any() else Grouped(codes.reshape(rows, -1).astype(np.int8), steps)

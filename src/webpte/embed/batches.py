"""Which texts to compute together: alike in length, so that little is padded, and in few shapes.

A shape that is new costs a planning of the whole program, so lengths and counts are rounded to a few numbers. A call
with many texts uses each shape often, and can afford lengths that are half as far apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

SHORTEST = 4  # tokens
STEPS = 4  # lengths between a power of two and the next: at most a fifth of the tokens is there for rounding
MANY = 8  # full batches: from so many on, steps are half as long
LEAST_FILL = 0.7  # of a row's tokens that are not padding, beside the longest row of its batch


def batches(lengths: Sequence[int], most_rows: int, most_tokens: int) -> Iterator[tuple[list[int], int]]:
    """Which texts, by their numbers, and how many tokens to pad them to; every text once."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    finer = 2 if len(lengths) >= MANY * most_rows else 1
    start = 0
    while start < len(order):
        tokens = padded(lengths[order[start]], most_tokens, finer)
        least = min(LEAST_FILL * tokens, shortest_of(tokens, finer))
        alike = start
        while alike < min(start + most_rows, len(order)) and lengths[order[alike]] >= least:
            alike += 1
        rows = whole_rows(alike - start, most_rows)
        yield order[start : start + rows], tokens
        start += rows


def padded(length: int, most: int, finer: int = 1) -> int:
    """The next length of those that are used."""
    step = step_of(length, finer)
    return min(-(-length // step) * step, most)


def shortest_of(tokens: int, finer: int = 1) -> int:
    """The shortest length that is padded to this one."""
    return 1 if tokens <= SHORTEST // finer else tokens - (tokens - 1) % step_of(tokens, finer)


def step_of(length: int, finer: int = 1) -> int:
    """How far apart the lengths are that are used there."""
    return max(SHORTEST, (1 << (length - 1).bit_length()) // (2 * STEPS)) // finer


def whole_rows(rows: int, most: int) -> int:
    """The most rows, of the counts that are used, that there are enough texts for: 1, 2, 3, 4, 6, 8, 12 and so on."""
    if rows == most:
        return most
    power = 1 << (rows.bit_length() - 1)
    return power + power // 2 if rows >= power + power // 2 else power

"""Attention of tokens of several sequences over a pool of slots."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.harness.cases import Case, Sym, T, case
from webpte.graph.names import INT8_SCALE_BYTES
from webpte.ops.attention.slot_attention import with_scales

HALF: dict[str, Any] = {"atol": 4e-3, "rtol": 2e-3}
CODES: dict[str, Any] = {"atol": 4e-3, "rtol": 2e-3}  # an element between two codes may become either
SEEN = {"images": True}
LARGER: dict[str, Any] = {"images": True, "slots": 13, "capacity": 613, "n": (13, 7, 1)}
LONG: dict[str, Any] = {"slots": 3, "capacity": 613, "n": (7, 1)}
FIVE: dict[str, Any] = {"slots": 5, "capacity": 613, "num_decode": 5, "n": (5, 1)}
FOUR: dict[str, Any] = {"slots": 4, "capacity": 2003, "num_decode": 4, "n": (4, 1)}


def decoding(dims: tuple[int, ...]) -> np.ndarray:
    """Return a token for each of as many slots, from the last on, at positions of their own."""
    rows = np.arange(dims[0])
    return np.stack([dims[0] - 1 - rows, rows * 3 % 8], axis=1)


def reading(start: int) -> Callable[[tuple[int, ...]], np.ndarray]:
    """Return a token of slot 0, then a piece of a prompt in slot 2 that begins at a position."""

    def make(dims: tuple[int, ...]) -> np.ndarray:
        rows = [(0, 5), *((2, start + i) for i in range(dims[0]))]
        return np.array(rows[: dims[0]])

    return make


def pieces(*starts: int) -> Callable[[tuple[int, ...]], np.ndarray]:
    """Return a token of slot 0, then a piece of a prompt in each further slot, of about the same number of tokens."""

    def make(dims: tuple[int, ...]) -> np.ndarray:
        parts = np.array_split(np.arange(dims[0] - 1), len(starts))
        rows = [(1 + k, starts[k] + i) for k, part in enumerate(parts) for i in range(len(part))]
        return np.array([(0, 3), *rows])

    return make


def with_images(mapping: Callable[[tuple[int, ...]], np.ndarray], *images: slice) -> Callable[..., np.ndarray]:
    """Let rows of a mapping see each other: each of `images` as far as the call has it, in one slot."""

    def make(dims: tuple[int, ...]) -> np.ndarray:
        rows = np.pad(mapping(dims), ((0, 0), (0, 2)))
        for image in images:
            part = rows[image]
            part[:, 2] = np.arange(len(part))[::-1]
        rows[:, 3] = 7  # has no effect
        return rows

    return make


def crossing(dims: tuple[int, ...]) -> np.ndarray:
    """Tokens at positions around 512, the keys of 512 elements from which on a GPU divides them."""
    return np.array([(1, 511), (0, 512), (2, 3), (4, 611), (3, 510)])[: dims[0]]


def primes(dims: tuple[int, ...]) -> np.ndarray:
    """Tokens that see 257, 1, 1999 and 2 keys."""
    return np.array([(1, 256), (3, 0), (0, 1998), (2, 1)])[: dims[0]]


def quantized(dims: tuple[int, ...]) -> np.ndarray:
    """Rows of int8 with their scales."""
    rows = np.random.default_rng(dims[-1]).standard_normal((*dims[:-1], dims[-1] - INT8_SCALE_BYTES))
    return with_scales(rows.astype(np.float32))


def slotted(
    heads: int, kv_heads: int, width: int, slot_mapping: Callable[[tuple[int, ...]], np.ndarray], **more
) -> Case:
    """`rotated` elements of a head rotate by halves, all of them by neighbors with "neighbors"."""
    slots, capacity, rotated = more.pop("slots", 11), more.pop("capacity", 16), more.pop("rotated", None)
    dtype, cache, scale = more.pop("dtype", "f32"), more.pop("cache", None), more.pop("scale", None)
    q, k, v = (T(1, "n", h, width, dtype=dtype) for h in (heads, kv_heads, kv_heads))
    kept = more.pop("kept", False)
    bytes_of_scale, make = (INT8_SCALE_BYTES, quantized) if cache == "i8" else (0, None)
    size = (slots, capacity, kv_heads, width + bytes_of_scale)
    caches = [T(*size, dtype=cache or dtype, constant=kept, make=make) for _ in "kv"]
    halves = isinstance(rotated, int)
    table = T(2, capacity + 5, rotated if halves else width // 2, dtype=dtype, constant=True) if rotated else None
    rows = T("n", 4 if more.pop("images", False) else 2, dtype="i32", make=slot_mapping)
    advance, num_decode = more.pop("advance", 0), more.pop("num_decode", 1)
    limits = more.pop("window", None), more.pop("cap", None)
    normed = more.pop("normed", False)
    limits += (capacity + 1, 1e-2) if normed else (None, None)
    angle_row = more.pop("angle_row", None)  # of a table of the batch's rows
    sink_row = capacity + 1 if more.pop("sinks", False) else None
    operands = (q, k, v, *caches, rows, advance, num_decode, scale, table, halves, *limits, angle_row, sink_row)
    return case("webpte.slot_attention", *operands, **more)


CASES = [
    slotted(4, 2, 16, decoding, num_decode=11, n=(11, 7, 2, 1)),
    slotted(9, 3, 64, decoding, rotated="neighbours", num_decode=4, n=(11, 7, 1)),
    slotted(3, 1, 8, decoding, rotated="neighbours", scale=0.3, advance=2, n=(5, 1)),
    slotted(6, 2, 16, decoding, rotated=16, advance=Sym("n"), n=(5, 2, 1)),
    slotted(5, 1, 20, decoding, rotated=8, num_decode=0, n=(5, 1)),
    slotted(4, 2, 16, reading(0), rotated="neighbours", n=(11, 3, 2, 1)),
    slotted(7, 7, 32, reading(4), rotated=32, n=(11, 5)),
    slotted(4, 2, 8, reading(1), rotated="neighbours", dtype="f16", n=(5, 1), **HALF),
    slotted(4, 2, 16, reading(1), rotated=8, cache="f16", n=(5, 1), **HALF),
    slotted(4, 2, 16, reading(1), rotated=8, cache="i8", n=(5, 1), **CODES),
    slotted(6, 2, 64, decoding, rotated="neighbours", cache="i8", num_decode=4, n=(5, 1), **CODES),
    slotted(4, 2, 16, with_images(reading(3), slice(2, 9)), rotated=8, window=5, always=True, **LARGER),
    *(
        built
        for variant in ("broadcast", "broadcast split", "rows", "lanes")
        for built in (
            slotted(8, 2, 32, reading(590), rotated="neighbours", variant=variant, **LONG),
            slotted(7, 1, 64, reading(41), rotated=32, variant=variant, **LONG),
            slotted(6, 2, 256, reading(131), cache="f16", variant=variant, **LONG, **HALF),
            slotted(6, 2, 64, reading(131), rotated=64, cache="i8", variant=variant, **LONG, **CODES),
            slotted(8, 2, 32, crossing, rotated=32, variant=variant, **FIVE),
            # Windows that begin in the middle of what a workgroup reads, before the first key, and of one key.
            slotted(8, 2, 32, reading(590), rotated="neighbours", window=101, variant=variant, **LONG),
            slotted(4, 1, 64, reading(4), rotated=64, window=5, cap=2.0, variant=variant, **LONG),
            slotted(3, 1, 32, reading(131), window=1, cap=0.5, cache="f16", variant=variant, **LONG, **HALF),
            slotted(8, 2, 32, crossing, window=300, variant=variant, **FIVE),
            slotted(6, 2, 64, reading(131), rotated="neighbours", normed=True, variant=variant, **LONG),
            slotted(3, 1, 32, reading(41), rotated=8, normed=True, window=30, variant=variant, **LONG),
            slotted(6, 2, 64, decoding, rotated=64, normed=True, cache="i8", variant=variant, n=(7, 1), **CODES),
            slotted(6, 2, 64, reading(131), rotated="neighbours", normed=True, angle_row=5, variant=variant, **LONG),
            slotted(4, 2, 16, decoding, rotated=16, angle_row=0, cache="i8", variant=variant, n=(7, 1), **CODES),
            slotted(8, 2, 32, reading(590), rotated="neighbours", sinks=True, window=101, variant=variant, **LONG),
            slotted(6, 2, 64, decoding, rotated=64, sinks=True, cache="i8", variant=variant, n=(7, 1), **CODES),
            slotted(7, 1, 32, crossing, rotated=8, sinks=True, variant=variant, slots=5, capacity=613, n=(5, 1)),
            slotted(1, 1, 64, decoding, cap=1.5, cache="i8", num_decode=7, variant=variant, n=(7, 1), **CODES),
            # Rows that see each other: before and after a split, beyond a window, and beside text.
            slotted(8, 2, 32, with_images(reading(590), slice(3, 10)), rotated="neighbours", variant=variant, **LARGER),
            slotted(3, 1, 32, with_images(reading(131), slice(2, 11)), window=3, cap=2.0, variant=variant, **LARGER),
            slotted(
                7, 1, 32, with_images(reading(254), slice(1, 8)), rotated=8, normed=True, variant=variant, **LARGER
            ),
            slotted(6, 2, 8, with_images(pieces(3, 9), slice(2, 6)), cache="i8", variant=variant, **LARGER, **CODES),
            slotted(4, 4, 32, with_images(decoding), num_decode=13, variant=variant, **LARGER),
            slotted(4, 1, 256, with_images(reading(40), slice(1, 9)), variant=variant, **LARGER),
        )
    ),
    # A GPU's workgroup has all of a few thousand keys, and divides those of rows of 512 elements from 512 on.
    *(
        slotted(9, 3, 64, primes, rotated=64, variant="lanes split", **FOUR, **more)
        for more in ({}, {"cache": "f16", **HALF}, {"cache": "i8", **CODES}, {"window": 1021, "cap": 2.0})
    ),
    *(
        slotted(3, 1, 512, crossing, variant="lanes split", **FIVE, **more)
        for more in (
            {"rotated": 32, "sinks": True},
            {"cache": "f16", "normed": True, "rotated": "neighbours", **HALF},
            {"cache": "i8", "cap": 2.0, **CODES},
            {"window": 541},
        )
    ),
    slotted(1, 1, 512, with_images(reading(506), slice(2, 11)), variant="lanes split", **LARGER),
    *(  # Gemma 4
        slotted(8, 1, 512, reading(4), rotated="neighbours", normed=True, variant=variant, n=(5, 1))
        for variant in ("broadcast", "lanes split")
    ),
    # Tiles: more rows than 16, in one slot and in several, with 1 to 8 query heads per key head.
    *(
        slotted(*heads, slot_mapping, variant="tile", n=(67, 29, 17), capacity=capacity, slots=4, **more)
        for heads, slot_mapping, capacity, more in (
            ((3, 1, 64), reading(0), 71, {"rotated": "neighbours"}),
            ((8, 2, 64), reading(541), 613, {"rotated": 32, "cache": "f16", **HALF}),
            ((4, 4, 128), pieces(0, 61, 7), 97, {"rotated": 128}),
            ((8, 1, 32), pieces(5, 0, 131), 157, {"rotated": "neighbours", "num_decode": 0}),
            ((2, 2, 80), pieces(2, 33), 71, {"rotated": 32, "scale": 0.3}),
            ((4, 1, 96), reading(64), 137, {"dtype": "f16", **HALF}),
            ((5, 1, 20), pieces(0, 1, 2), 71, {"advance": 2}),
            ((4, 1, 256), reading(97), 167, {"rotated": "neighbours", "cache": "f16", **HALF}),
            ((4, 1, 256), pieces(0, 61), 131, {"rotated": 256, "num_decode": 0}),  # Gemma 3
            ((8, 1, 512), pieces(0, 61), 131, {"rotated": "neighbours", "normed": True}),
            ((6, 2, 8), pieces(0, 40), 79, {"num_decode": 0}),
            ((3, 1, 64), reading(41), 113, {"rotated": "neighbours", "window": 37, "cap": 2.0}),
            ((4, 1, 256), pieces(0, 161), 241, {"rotated": "neighbours", "window": 100}),
            ((6, 2, 128), pieces(0, 61), 97, {"rotated": 128, "normed": True}),
            ((3, 1, 64), reading(41), 113, {"rotated": "neighbours", "normed": True, "window": 50}),
            ((6, 2, 128), pieces(0, 61), 97, {"rotated": 128, "normed": True, "angle_row": 5}),
            ((8, 1, 32), pieces(5, 0, 131), 157, {"window": 1, "num_decode": 0}),
            ((3, 1, 64), reading(41), 113, {"rotated": "neighbours", "sinks": True, "window": 37, "cap": 2.0}),
            ((8, 1, 32), pieces(5, 0, 131), 157, {"rotated": 32, "sinks": True, "num_decode": 0}),
            ((6, 2, 128), pieces(0, 61), 97, {"rotated": "neighbours", "sinks": True, "cache": "f16", **HALF}),
            ((4, 1, 256), with_images(pieces(0, 61), slice(3, 30), slice(35, 60)), 131, {"rotated": 256, **SEEN}),
            ((6, 2, 64), with_images(reading(40), slice(20, 60)), 113, {"normed": True, "rotated": 64, **SEEN}),
            ((8, 1, 32), with_images(pieces(5, 0, 90), slice(1, 20)), 157, {"window": 9, "cap": 1.5, **SEEN}),
            # Tiles read the own key and value of a token from the cache, rounded by up to 0.02.
            ((6, 2, 64), pieces(3, 40), 79, {"rotated": 64, "cache": "i8", "atol": 0.2}),
        )
    ),
]

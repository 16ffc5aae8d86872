"""Values that arithmetic treats in its own way, and arrays with some of them planted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray
FLOATS = ("f32", "f16")

# By name: from what a dtype can hold.
VALUES: dict[str, Callable[[np.finfo], float]] = {
    "nan": lambda info: float("nan"),
    "inf": lambda info: float("inf"),
    "-inf": lambda info: -float("inf"),
    "0": lambda info: 0.0,
    "-0": lambda info: -0.0,
    "denormal": lambda info: float(info.smallest_normal) * 0.37,
    "-denormal": lambda info: float(info.smallest_normal) * -0.37,
    "largest": lambda info: float(info.max),
    "-largest": lambda info: float(info.min),
}
# How many of an array's elements are replaced: a few, or the whole first half, so that whole rows are; and by several
# values at once, without and with those that let sums overflow.
PLANTINGS = [
    *((name, place) for name in VALUES for place in ("few", "half")),
    *((name, place) for name in ("mixed", "mixed with largest") for place in ("few", "most", "all")),
]
SOME_PLANTINGS = [
    *((name, "few") for name in VALUES),
    ("nan", "half"),
    ("-inf", "half"),
    ("mixed", "most"),
    ("mixed with largest", "most"),
]
_MIXED = {"mixed": [name for name in VALUES if "largest" not in name], "mixed with largest": list(VALUES)}
_SHARES = {"few": 1 / 16, "most": 2 / 3, "all": 1.0}


def planted(array: Array, value: str, place: str, random: np.random.Generator) -> Array:
    """Return a copy of `array`, which holds floats, with `value` at some places."""
    info = np.finfo(array.dtype)
    flat = array.reshape(-1).copy()
    if place == "half":
        where = np.arange(-(-flat.size // 2))
    else:
        where = random.permutation(flat.size)[: max(1, round(flat.size * _SHARES[place]))]
    names = _MIXED.get(value, [value])
    chosen = random.permutation(np.resize(np.arange(len(names)), where.size))
    flat[where] = np.array([VALUES[name](info) for name in names], array.dtype)[chosen]
    return flat.reshape(array.shape)


def doubled(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def narrowed(array: Array, dtype: np.dtype) -> Array:
    """Wide floats as a device holds them; integers and truth values stay."""
    with np.errstate(over="ignore"):
        return array.astype(dtype) if dtype.kind == "f" else array


def flushed(array: Array) -> Array:
    """Denormals as zeros of their sign, as a device may read and write them."""
    if array.dtype.kind != "f":
        return array
    tiny = np.finfo(array.dtype).smallest_normal
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(array) < tiny, np.copysign(array.dtype.type(0), array), array)


def differences(got: Array, want: Array, atol: float, rtol: float) -> dict[str, Array]:
    """By kind of difference: the elements that have it."""
    if got.dtype.kind != "f":
        return {"value": got != want}
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        close = (np.abs(a - b) <= atol) | (np.abs(a - b) <= rtol * np.abs(b)) | (a == b)
    numbers = ~np.isnan(a) & ~np.isnan(b)
    return {
        "NaN lost": ~np.isnan(a) & np.isnan(b),
        "NaN made": np.isnan(a) & ~np.isnan(b),
        "infinity": numbers & (np.isinf(a) | np.isinf(b)) & (a != b),
        "sign of zero": (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)),
        "value": numbers & ~np.isinf(a) & ~np.isinf(b) & ~close,
    }

"""Pooling in two dims."""

from typing import Any

import numpy as np

from tests.support.harness.cases import Sym, T, case


def _few_values(dims):
    """Many equal elements: the first of a window has to win."""
    return np.random.default_rng(5).integers(-1, 2, dims)


def _lowest(dims):
    """Nothing is larger than what padding might be taken for."""
    return np.where(np.arange(np.prod(dims)).reshape(dims) % 4 == 0, -3e38, -np.inf)


HALF: dict[str, Any] = {"dtype": "f16", "low": -1, "high": 1}
ROUGH = {"atol": 2e-3, "rtol": 2e-3}
IMAGE = T(2, 3, "h", "w")
SIZES = {"h": (13, 11, 7), "w": (17, 8, 7)}

# kernel, stride, padding
WINDOWS = [
    ([3, 3], [2, 2], [1, 1]),
    ([2, 3], [], [0, 0]),
    ([3, 2], [1, 2], [1, 0]),
    ([5, 4], [3, 3], [2, 2]),
    ([2], [3], [1]),
    ([1, 1], [1, 1], [0, 0]),
]
CASES = [
    case("aten.avg_pool2d.default", IMAGE, *window, ceil, counted, divisor, **SIZES)
    for window in WINDOWS
    for ceil in (False, True)
    for counted, divisor in ((True, None), (False, None), (True, 5))
]
CASES += [
    case("aten.avg_pool2d.default", T(3, "h", 7), [2, 2], [2, 2], [0, 0], False, True, None, h=(9, 6, 2)),
    case("aten.avg_pool2d.default", T("n", 3, 5, 7), [3, 3], [2, 2], [1, 1], True, False, None, n=(5, 2, 1)),
    case("aten.avg_pool2d.default", T(2, 3, 9, "w", **HALF), [3, 3], [], [1, 1], True, True, None, w=(8, 5), **ROUGH),
    case("aten.avg_pool2d.default", T(1, 2, 7, 7), [7, 7], [1, 1], [0, 0], False, True, None),
]

# kernel, stride, padding, dilation
DILATED = [
    *((*window, [1, 1]) for window in WINDOWS),
    ([3, 3], [1, 1], [1, 1], [2, 2]),
    ([3, 2], [2, 1], [1, 1], [2, 3]),
    ([2], [2], [0], [3]),
]
MAXIMA = ("aten.max_pool2d_with_indices.default", "aten.max_pool2d.default")
CASES += [case(name, IMAGE, *window, ceil, **SIZES) for name in MAXIMA for window in DILATED for ceil in (False, True)]
for maximum in MAXIMA:
    CASES += [
        case(maximum, T(3, "h", 7), [2, 2], [2, 2], [0, 0], [1, 1], False, h=(9, 6, 2)),
        case(maximum, T("n", 3, 5, 7, make=_few_values), [3, 3], [2, 2], [1, 1], [1, 1], True, n=(5, 2, 1)),
        case(maximum, T("n", 3, 5, 7, make=_lowest), [3, 3], [2, 2], [1, 1], [1, 1], True, n=(5, 2, 1)),
        case(maximum, T(2, "h", 7, dtype="i32", low=-9, high=-1), [3, 3], [2, 2], [1, 1], [1, 1], False, h=(9, 5, 3)),
        case(maximum, T(2, 3, 9, "w", **HALF), [3, 3], [], [1, 1], [1, 1], True, w=(8, 5)),
    ]

CASES += [
    case("aten._adaptive_avg_pool2d.default", T("n", 3, "h", "w"), size, n=(5, 2), **SIZES)
    for size in ([1, 1], [3, 5], [7, 7])
]
CASES += [
    case("aten._adaptive_avg_pool2d.default", T(3, "h", 7), [2, 3], h=(9, 5, 1)),
    case("aten._adaptive_avg_pool2d.default", T(3, "h", 7), [Sym("h"), 3], h=(9, 5, 1)),
    case("aten._adaptive_avg_pool2d.default", T(3, 4, 5), [6, 7]),
    case("aten._adaptive_avg_pool2d.default", T(3, "h", 7, **HALF), [2, 3], h=(9, 5, 1), **ROUGH),
]

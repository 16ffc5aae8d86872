"""Reductions, running sums and the indices of extremes."""

from typing import Any

import numpy as np

from tests.support.harness.cases import T, case


def _few_values(dims):
    """Many equal elements, so that the first of them has to be distinguished from the others."""
    return np.random.default_rng(5).integers(-1, 2, dims)


def _infinite(dims):
    """Rows with infinities; the first row has nothing else."""
    counted = np.arange(np.prod(dims)).reshape(dims)
    values = np.where(counted % 3 == 0, -np.inf, np.where(counted % 5 == 0, np.inf, counted - 7))
    values[:1] = -np.inf
    return values


def _undefined(dims):
    """NaN here and there; PyTorch takes the first of them for the extreme."""
    counted = np.arange(np.prod(dims)).reshape(dims)
    return np.where(counted % 9 == 4, np.nan, counted % 5)


INT: dict[str, Any] = {"dtype": "i32", "low": -9, "high": 9}
HALF: dict[str, Any] = {"dtype": "f16", "low": -1, "high": 1}
ROUGH = {"atol": 2e-3, "rtol": 2e-3}
N: dict[str, Any] = {"n": (11, 7, 2)}

# Shapes and the sets of dims to reduce over; an empty list means all.
WALKS: list[tuple[T, list[int], dict[str, Any]]] = [
    (T("n", 29), [1], N),
    (T("n", 29), [-2], N),
    (T("n", 3, 5), [0, 1], N),
    (T(3, "n", 5), [-1, 1], N),
    (T(3, "n", 5), [1], N),
    (T(3, "n", 5), [2, 0], N),
    (T(2, 3, "n", 5), [1, 3], N),
    (T("n", 7), [], N),
    (T("n", "m"), [0, 1], N | {"m": (13, 5, 1)}),
    (T(2, 3, 2, 1, 3, 2, 2, 3), [0, 2, 4, 6], {}),
    (T(2, 3, 2, 1, 3, 2, 2, 3), [1, 3, 5, 7], {}),
    (T(2, 3, 1, 5), [2], {}),
    (T(), [], {}),
    (T(), [0], {}),
    (T("n", **INT), [0], {"n": (1031, 7, 1)}),
    (T("n", 5, **INT), [-1], N),
    (T(70001, 2), [1], {}),
]
CASES = [
    case(name, x, dim, keepdim, None, **sizes)
    for name in ("aten.sum.dim_IntList", "aten.mean.dim")
    for x, dim, sizes in WALKS
    for keepdim in (False, True)
    if x.dtype == "f32" or name == "aten.sum.dim_IntList"
]
CASES += [
    case(name, x, dim, keepdim, **sizes)
    for name in ("aten.amax.default", "aten.amin.default")
    for x, dim, sizes in WALKS
    for keepdim in (False, True)
]
CASES += [
    case("aten.sum.dim_IntList", T("n", 7), None, False, None, **N),
    case("aten.mean.dim", T("n", 7), None, True, None, **N),
    case("aten.sum.dim_IntList", T("n", 7, dtype="bool"), [0], False, None, **N),
    case("aten.sum.dim_IntList", T("n", 7, dtype="bool"), None, True, None, **N),
    case("aten.sum.dim_IntList", T("n", 7, **INT), [1], True, 6, **N),
    case("aten.sum.dim_IntList", T("n", 7, dtype="bool"), [1], False, 6, **N),
    case("aten.mean.dim", T("n", 7, **INT), [1], True, 6, **N),
    case("aten.sum.dim_IntList", T("n", 29, **HALF), [1], False, None, **N, **ROUGH),
    case("aten.mean.dim", T("n", 29, **HALF), [0], False, None, **N, **ROUGH),
    case("aten.sum.dim_IntList", T(200003, low=0, high=1), [0], False, None),
    case("aten.mean.dim", T(3, 60001, low=0, high=1), [0, 1], False, None),
    case("aten.mean.default", T("n", 7), None, **N),
    case("aten.mean.default", T("n", 7, **HALF), None, **N, **ROUGH),
    case("aten.prod.default", T("n", 3), None, **N),
    case("aten.prod.default", T("n", dtype="i32", low=1, high=3), None, **N),
    case("aten.prod.dim_int", T("n", 3, 5), 0, False, None, **N),
    case("aten.prod.dim_int", T("n", 3, 5), -2, True, None, **N),
    case("aten.prod.dim_int", T(), 0, True, None),
]
for extreme in ("aten.amax.default", "aten.amin.default"):
    CASES += [
        case(extreme, T("n", 7, dtype="bool"), [1], False, **N),
        case(extreme, T("n", 7, **HALF), [0], True, **N),
        case(extreme, T("n", 7, make=_infinite), [1], False, **N),
        case(extreme, T("n", 7, low=-3e38, high=3e38), [1], False, **N),
    ]
for extreme in ("aten.max.default", "aten.min.default"):
    CASES += [case(extreme, T("n", 7), **N), case(extreme, T("n", 3, **INT), **N), case(extreme, T())]

CASES += [
    case("aten.var.correction", x, dim, correction, keepdim, **sizes)
    for x, dim, sizes in WALKS
    if x.dtype == "f32" and x.dims
    for correction, keepdim in ((0, True), (None, False))
    if correction == 0 or dim != [2]  # one element has no unbiased variance
]
CASES += [
    case("aten.var.correction", T("n", 29), [1], 1.5, False, **N),
    case("aten.var.correction", T("n", 29), None, 0, True, **N),
    case("aten.var.correction", T("n", 29, **HALF), [1], 1, True, **N, **ROUGH),
    case("aten.var.correction", T("n", 13, low=999, high=1001), [1], 1, False, **N, atol=1e-3),
    case("aten.var.dim", T("n", 29), [1], True, False, **N),
    case("aten.var.dim", T(3, "n", 5), [0, 2], False, True, **N),
]

# One dim: (input, dim, sizes).
ROWS: list[tuple[T, int | None, dict[str, Any]]] = [
    (T("n", 29), 1, N),
    (T("n", 29), -2, N),
    (T(3, "n", 5, make=_few_values), 1, N),
    (T("n", 29, make=_few_values), -1, N),
    (T(2, 3, 1, 2, 3, 2, 1, 5), 4, {}),
    (T("n", 5, **INT), 1, N),
    (T("n", 7, make=_infinite), 1, N),
    (T("n", 7, **HALF), 0, N),
    (T(), 0, {}),
    (T("n"), 0, {"n": (1031, 7, 1)}),
]
# Only of the indices: no dim means the flattened tensor, and NaN is the extreme but equals no expectation.
INDEXED: list[tuple[T, int | None, dict[str, Any]]] = [
    (T("n", 29), None, N),
    (T(3, "n", 5, make=_few_values), None, N),
    (T("n", 7, make=_undefined), 1, N),
    (T("n", 7, make=_undefined), None, N),
    (T(), None, {}),
]
CASES += [
    case(name, x, dim, keepdim, **sizes)
    for name, rows in {
        "aten.argmax.default": ROWS + INDEXED,
        "aten.argmin.default": ROWS + INDEXED,
        "aten.max.dim": ROWS,
        "aten.min.dim": ROWS,
    }.items()
    for x, dim, sizes in rows
    for keepdim in (False, True)
]

CASES += [
    case("aten.cumsum.default", T("n", 29), 1, None, **N),
    case("aten.cumsum.default", T(3, "n", 5), -2, None, **N),
    case("aten.cumsum.default", T("n", 5, **INT), 0, None, **N),
    case("aten.cumsum.default", T("n", 5, dtype="bool"), 1, None, **N),
    case("aten.cumsum.default", T("n", 5, **INT), 1, 6, **N),
    case("aten.cumsum.default", T("n", 5, **HALF), 0, None, **N, **ROUGH),
    case("aten.cumsum.default", T(), 0, None),
]

# Every number of invocations that may share an output.
SHARED: list[tuple[str, tuple[Any, ...]]] = [
    *((name, (T("n", 131), [1], False, None)) for name in ("aten.sum.dim_IntList", "aten.mean.dim")),
    *((name, (T(3, "n", 67), [0, 2], True)) for name in ("aten.amax.default", "aten.amin.default")),
    ("aten.sum.dim_IntList", (T(3, "n", 67), [2, 0], True, None)),
    ("aten.sum.dim_IntList", (T("n", 67, **INT), [0], False, None)),
    ("aten.prod.dim_int", (T("n", 67, low=0.9, high=1.1), 1, True, None)),
    ("aten.amax.default", (T("n", 131, make=_infinite), [1], False)),
    ("aten.var.dim", (T(3, "n", 67), [0, 2], True, False)),
    ("aten.var.dim", (T("n", 131), [1], False, True)),
    *((name, (T("n", 131, make=_few_values), 1, False)) for name in ("aten.argmax.default", "aten.argmin.default")),
    ("aten.argmax.default", (T("n", 67, make=_undefined), 1, True)),
    ("aten.max.dim", (T("n", 67, make=_few_values), 1, True)),
    ("aten.argmax.default", (T("n", 67, **INT), None, False)),
]
CASES += [
    case(name, *args, n=(11, 7, 2), variant=variant) for variant in ("alone", "by 8", "by 64") for name, args in SHARED
]

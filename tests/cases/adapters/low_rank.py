"""Low-rank products of rows with different adapters, and with none."""

from typing import Any

from tests.support.harness.cases import T, case

HALF: dict[str, Any] = {"dtype": "f16", "low": -1, "high": 1}
ROUGH = {"atol": 2e-3, "rtol": 2e-3}
ROWS = {"n": (13, 5, 1)}


def numbers(last):
    """Of adapters, and 0 for rows without one."""
    return T("n", dtype="i32", low=0, high=last)


DOWN, UP = "webpte.adapter_down", "webpte.adapter_up"
CASES = [
    case(DOWN, T(1, "n", 29), T(3, 29, 8), numbers(3), **ROWS),
    case(DOWN, T("n", 36), T(2, 36, 20), numbers(2), always=True, **ROWS),
    case(DOWN, T("n", 260), T(2, 260, 4), numbers(2), **ROWS),
    case(DOWN, T("n", 36, **HALF), T(2, 36, 8), numbers(2), **ROWS, **ROUGH),
    *(case(DOWN, T("n", 260), T(2, 260, 4), numbers(2), variant=lanes, **ROWS) for lanes in ("by 8", "by 64")),
    case(UP, T(1, "n", 29), T("n", 12), T(3, 8, 29), numbers(3), 4, **ROWS),
    case(UP, T("n", 36), T("n", 20), T(2, 20, 36), numbers(2), 0, always=True, **ROWS),
    case(UP, T("n", 36, **HALF), T("n", 8, **HALF), T(2, 8, 36), numbers(2), 0, **ROWS, **ROUGH),
]

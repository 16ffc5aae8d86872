from typing import Any

import numpy as np

from tests.support.harness.cases import T, case


def _masked(dims):
    """Every third element is minus infinity, but never a whole row."""
    values = np.arange(np.prod(dims), dtype=np.float32).reshape(dims) % 11 - 5
    return np.where(np.arange(np.prod(dims)).reshape(dims) % 3 == 0, -np.inf, values)


# Arguments and sizes.
ROWS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((T("n", 29, low=-50, high=50), -1, False), {"n": (11, 7, 1)}),
    ((T(3, "n", 5), 1, False), {"n": (11, 7, 1)}),
    ((T("n", 3, 5), -3, False), {"n": (11, 7, 1)}),
    ((T(2, 3, 1, 2, 3, 2, 1, 5), 4, False), {}),
    ((T(), 0, False), {}),
    ((T("n"), -1, False), {"n": (1031, 7, 1)}),
    ((T("n", 7, make=_masked), 1, False), {"n": (5, 3)}),
    ((T("n", 7, low=-1e4, high=1e4), 1, False), {"n": (5, 3)}),
    ((T("n", 7, low=-1.5e38, high=1.5e38), 1, False), {"n": (5, 3)}),
    ((T("n", 13, dtype="f16"), -1, False), {"n": (5, 3), "atol": 2e-3, "rtol": 2e-3}),
    ((T("n", 13, dtype="f16"), -1, True), {"n": (5, 3)}),
    ((T("n", 50021), -1, False), {"n": (2, 1), "atol": 1e-9}),  # an element is about 1e-5
]
CASES = [
    case(name, *args, **sizes)
    for name in ("aten._softmax.default", "aten._log_softmax.default")
    for args, sizes in ROWS
]
# Every number of invocations that may share a row.
SHARED: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((T("n", 128, make=_masked), -1, False), {"n": (67, 5, 1)}),
    ((T("n", 1031, low=-50, high=50), -1, False), {"n": (5, 1)}),
    ((T("n", 64, dtype="f16"), -1, False), {"n": (5, 1), "atol": 2e-3, "rtol": 2e-3}),
    ((T("n", 64, dtype="f16"), -1, True), {"n": (5, 1)}),
]
CASES += [
    case(name, *args, **sizes, variant=variant)
    for variant in ("alone", "by 8", "by 64")
    for name in ("aten._softmax.default", "aten._log_softmax.default")
    for args, sizes in SHARED
]

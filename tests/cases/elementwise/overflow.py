import numpy as np

from tests.support.harness.cases import T, case

EXACT = {"atol": 0, "rtol": 0}
SMALL = {"dtype": "i32", "low": -40000, "high": 40000}
WIDE = {"dtype": "i32", "low": -(2**31), "high": 2**31 - 1}
EDGES = (0, 1, -1, 2, -2, 46340, 46341, -46341, 65536, 2**30, -(2**30), 2**31 - 1, -(2**31), -(2**31) + 1)


def _edges(first):
    """Return every edge with every other, by rows or by columns."""

    def make(dims):
        table = np.repeat(EDGES, len(EDGES)) if first else np.tile(EDGES, len(EDGES))
        return np.resize(table, dims)

    return make


def _floats(dims):
    edges = (0, -0.5, 2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, np.inf, -np.inf, np.nan, 1e30, 7.9)
    return np.resize(np.array(edges, np.float32), dims)


def _halves(dims):
    return np.resize(np.array((0, -0.5, 65504, -65504, np.inf, -np.inf, np.nan), np.float16), dims)


_A = T("n", dtype="i32", make=_edges(True))
_B = T("n", dtype="i32", make=_edges(False))
_N = {"n": (len(EDGES) ** 2, 13, 1)}
CASES = [
    *(case("webpte.overflow", "add", _A, _B, alpha, None, **_N, **EXACT) for alpha in (1, -1, 3, 2**31 - 1, -(2**31))),
    *(case("webpte.overflow", kind, _A, _B, 1, None, **_N, **EXACT) for kind in ("mul", "div")),
    case("webpte.overflow", "pow", _A, T("n", dtype="i32", low=-3, high=33), 1, None, **_N, **EXACT),
    case("webpte.overflow", "pow", 2, T("n", dtype="i32", low=29, high=33), 1, None, n=(37, 5), **EXACT),
    case("webpte.overflow", "cast", T("n", make=_floats), 0, 1, None, n=(29, 5), **EXACT),
    case("webpte.overflow", "cast", T("n", dtype="f16", make=_halves), 0, 1, None, n=(29, 5), **EXACT),
    case("webpte.overflow", "mul", T("n", 1, 7, **SMALL), T(5, 1, **SMALL), 1, None, n=(11, 2), **EXACT),
    case("webpte.overflow", "add", T("n", 7, **WIDE), T(7, dtype="bool"), 1, None, n=(11, 2), **EXACT),
    case("webpte.overflow", "mul", T("n", 7, **SMALL), -53681, 1, None, n=(409, 2), **EXACT),
]

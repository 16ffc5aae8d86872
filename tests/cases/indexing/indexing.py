from typing import Any

from tests.support.harness.cases import T, case


def _i(*dims, size):
    """Indices in [-size, size)."""
    return T(*dims, dtype="i32", low=-size, high=size - 1)


def _p(*dims, size):
    """Indices in [0, size): index_select and gather take no negative ones."""
    return T(*dims, dtype="i32", low=0, high=size - 1)


Rows = list[tuple[tuple[Any, ...], dict[str, tuple[int, ...]]]]

INDEX: Rows = [
    # One index, in every place, of every rank.
    ((T("n"), [_i("m", size=2)]), {"n": (11, 7, 2), "m": (5, 1)}),
    ((T("n", 5), [_i(3, "m", size=2)]), {"n": (11, 2), "m": (5, 1)}),
    ((T(3, "n", 5), [None, _i("m", size=2)]), {"n": (11, 2), "m": (5, 1)}),
    ((T("n", 3, 5), [None, None, _i("m", 2, size=5)]), {"n": (11, 2), "m": (5, 1)}),
    ((T("n", 5), [_i(size=2), None]), {"n": (11, 2)}),
    # Several: neighbors, neighbors in the middle, apart, with broadcasting.
    ((T("n", 5), [_i("m", size=2), _i("m", size=5)]), {"n": (11, 2), "m": (5, 1)}),
    ((T(3, "n", 5, 2), [None, _i("m", size=2), _i("m", size=5)]), {"n": (11, 2), "m": (5, 1)}),
    ((T(3, "n", 5), [_i("m", size=3), None, _i("m", size=5)]), {"n": (11, 2), "m": (5, 1)}),
    ((T(2, 3, "n", 5), [None, _i("m", 1, size=3), None, _i(2, size=5)]), {"n": (11, 2), "m": (5, 1)}),
    ((T(3, "n"), [_i(3, 1, size=3), _i(1, "m", size=2)]), {"n": (11, 2), "m": (5, 1)}),
    ((T(3, 5, "n", 2), [_i(size=3), _i("m", 1, size=5), _i(3, size=2)]), {"n": (11, 2), "m": (5, 1)}),
    ((T(2, 3, 2, 3, 2, 3, 2, 3), [_i(5, size=2 + a % 2) for a in range(8)]), {}),
    # Bits move unchanged.
    ((T("n", 5, dtype="f16"), [_i(3, size=2)]), {"n": (11, 2)}),
    ((T("n", 5, dtype="bool"), [_i(3, size=2), _i(3, size=5)]), {"n": (11, 2)}),
    ((T("n", 5, dtype="i32", low=-9, high=9), [None, _i(3, size=2)]), {"n": (11, 2)}),
]
SELECT: Rows = [
    ((T("n", 5), 0, _p("m", size=2)), {"n": (11, 2), "m": (7, 1)}),
    ((T(3, "n", 5), -1, _p("m", size=5)), {"n": (11, 2), "m": (7, 1)}),
    ((T(3, 5, "n"), 1, _p("m", size=5)), {"n": (11, 2), "m": (7, 1)}),
    ((T("n", 5), 1, _p(size=5)), {"n": (11, 2)}),
    ((T(), 0, _p(1, size=1)), {}),
    ((T("n", 5, dtype="f16"), 1, _p(4, size=5)), {"n": (11, 2)}),
    ((T("n", 5, dtype="bool"), 1, _p(4, size=5)), {"n": (11, 2)}),
    ((T("n", 5, dtype="i32", low=-9, high=9), 1, _p(4, size=5)), {"n": (11, 2)}),
    ((T(2, 1, 3, 2, 5, 2, 1, 3), -4, _p(7, size=5)), {}),
]
GATHER: Rows = [
    ((T("n", 5), 1, _p("n", 3, size=5)), {"n": (11, 2)}),
    ((T("n", 5), -2, _p(3, 4, size=2)), {"n": (11, 7, 2)}),
    ((T(3, "n", 5), 1, _p(2, "m", 4, size=2)), {"n": (11, 2), "m": (7, 3)}),
    ((T(3, "n", 5), 0, _p(7, "n", 2, size=3)), {"n": (11, 2)}),
    ((T("n"), 0, _p("m", size=2)), {"n": (11, 2), "m": (7, 1)}),
    ((T("n"), 0, _p(size=2)), {"n": (11, 2)}),
    ((T(), -1, _p(3, size=1)), {}),
    ((T(), 0, _p(size=1)), {}),
    ((T("n", 5, dtype="f16"), 1, _p("n", 3, size=5)), {"n": (11, 2)}),
    ((T("n", 5, dtype="bool"), 1, _p("n", 3, size=5)), {"n": (11, 2)}),
    ((T("n", 5, dtype="i32", low=-9, high=9), 1, _p("n", 3, size=5)), {"n": (11, 2)}),
    ((T(2, 1, 3, 2, 3, 2, 1, 3), 4, _p(1, 1, 3, 2, 5, 2, 1, 2, size=3)), {}),
]
CASES = [case("aten.index.Tensor", *args, **sizes) for args, sizes in INDEX]
CASES += [case("aten.index_select.default", *args, **sizes) for args, sizes in SELECT]
CASES += [case("aten.gather.default", *args, False, **sizes) for args, sizes in GATHER]

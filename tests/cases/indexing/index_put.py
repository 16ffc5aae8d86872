from tests.support.harness.cases import T, case


def _i(*dims, size):
    """Indices in [-size, size), some of them more than once: the last one counts."""
    return T(*dims, dtype="i32", low=-size, high=size - 1)


NAME = "aten.index_put.default"

CASES = [
    case(NAME, T("n", 5), [_i("m", size=2)], T("m", 5), False, n=(11, 2), m=(5, 1)),
    case(NAME, T(3, "n", 5), [None, _i("m", size=2)], T(3, "m", 5), False, n=(11, 2), m=(5, 1)),
    case(NAME, T(2, 3, 13, 5), [None, None, _i("m", size=13)], T(2, 3, "m", 5), False, m=(7, 3, 1)),
    case(NAME, T("n", 3, 5), [None, None, _i("m", 2, size=5)], T("n", 3, "m", 2), False, n=(11, 2), m=(5, 1)),
    # Values that are repeated, of fewer dims, and a single one; an index of no dims.
    case(NAME, T(3, "n", 5), [None, _i("m", size=2)], T(5), False, n=(11, 2), m=(5, 1)),
    case(NAME, T(3, "n", 5), [None, _i("m", size=2)], T("m", 1), False, n=(11, 2), m=(5, 1)),
    case(NAME, T("n", 5), [_i("m", size=2)], T(), False, n=(11, 2), m=(5, 1)),
    case(NAME, T("n", 5), [_i(size=2), None], T(5), False, n=(11, 2)),
    case(NAME, T("n"), [_i("m", size=2)], T("m"), False, n=(11, 2), m=(5, 1)),
    # More dims than a kernel walks, if they were not merged.
    case(NAME, T(2, 3, 2, 3, 2, 3, 2, 3), [None] * 4 + [_i(5, size=2)], T(2, 3, 2, 3, 5, 3, 2, 3), False),
    # Bits move unchanged.
    case(NAME, T("n", 5, dtype="f16"), [_i(3, size=2)], T(3, 5, dtype="f16"), False, n=(11, 2)),
    case(NAME, T("n", 5, dtype="bool"), [_i(3, size=2)], T(3, 5, dtype="bool"), False, n=(11, 2)),
    case(
        NAME,
        T("n", 5, dtype="i32", low=-9, high=9),
        [None, _i(3, size=5)],
        T("n", 3, dtype="i32", low=-9, high=9),
        False,
        n=(11, 2),
    ),
]

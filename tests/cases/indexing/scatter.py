from tests.support.harness.cases import Sym, T, case

END = 2**63 - 1  # how exporters write "to the end"
SLICE, SELECT = "aten.slice_scatter.default", "aten.select_scatter.default"

CASES = [
    case(SLICE, T("n", 7), T(3, 7), 0, 2, 5, 1, n=(11, 7, 5)),
    case(SLICE, T("n", 7), T(3, 7), 0, -3, END, 1, n=(11, 7, 3)),
    case(SLICE, T(3, 13, 5), T(3, "n", 5), 1, 0, Sym("n"), 1, n=(13, 7, 2)),
    case(SLICE, T(3, 13, 5), T(3, "n", 5), 1, None, Sym("n"), 1, n=(13, 7, 2)),
    case(SLICE, T("n", 7), T("n", 3), -1, None, None, 3, n=(5, 2)),
    case(SLICE, T("n", 7), T("n", 7), 1, None, None, 1, n=(5, 2)),
    case(SLICE, T("n", 7, dtype="bool"), T("n", 3, dtype="bool"), 1, 1, 4, 1, n=(5, 2)),
    case(SLICE, T("n", 7, dtype="f16"), T("n", 2, dtype="f16"), 1, 1, 100, 3, n=(5, 2)),
    case(SLICE, T(7, "n", dtype="i32", low=-9, high=9), T(2, "n", dtype="i32", low=-9, high=9), 0, -6, -4, 1, n=(5, 2)),
    case(SELECT, T("n", 7), T(7), 0, -1, n=(11, 7, 1)),
    case(SELECT, T(3, "n", 5), T(3, 5), 1, 0, n=(7, 2)),
    case(SELECT, T("n", dtype="i32", low=-5, high=5), T(dtype="i32", low=-5, high=5), 0, -2, n=(7, 3)),
    case(SELECT, T("n", 2, 3, dtype="bool"), T("n", 3, dtype="bool"), -2, 1, n=(7, 3)),
    case(SELECT, T("n", 5, dtype="f16"), T("n", dtype="f16"), -1, 3, n=(7, 3)),
]

from tests.support.harness.cases import Sym, T, case

END = 2**63 - 1  # how exporters write "to the end"

CASES = [
    case("aten.slice_copy.Tensor", T("n", 7), 0, 2, 5, 1, n=(11, 7, 3)),
    case("aten.slice_copy.Tensor", T("n", 7), 0, -3, END, 1, n=(11, 7, 2)),
    case("aten.slice_copy.Tensor", T(3, "n", 5), 1, 1, Sym("n"), 2, n=(13, 7, 2)),
    case("aten.slice_copy.Tensor", T("n", 7), -1, None, None, 3, n=(5, 2)),
    case("aten.slice_copy.Tensor", T("n", 7, dtype="bool"), 1, 1, 4, 1, n=(5, 2)),
    case("aten.slice_copy.Tensor", T("n", 3, dtype="i32", low=-9, high=9), 0, -100, -1, 1, n=(5, 2)),
    case("aten.slice_copy.Tensor", T("n", 3, dtype="f16"), 0, 1, 100, 2, n=(7, 2)),
    case("aten.slice_copy.Tensor", T(2, 3, 2, 2, 3, 1, 2, 5), -4, 1, 3, 1),
    # Nothing is left.
    case("aten.slice_copy.Tensor", T("n", 3), 0, 5, 2, 1, n=(7, 2)),
    # The whole dim at the bound and at every size, or at the bound alone.
    case("aten.slice_copy.Tensor", T("n", 5), 0, 0, END, 1, n=(7, 3, 1)),
    case("aten.slice_copy.Tensor", T("n", 5), 0, None, None, 1, n=(7, 3)),
    case("aten.slice_copy.Tensor", T("n", 5), 0, -7, 7, 1, n=(7, 3)),
    case("aten.narrow_copy.default", T("n", 5), 0, 1, 2, n=(7, 3)),
    case("aten.narrow_copy.default", T(3, "n", 5), 1, -3, 3, n=(7, 4, 3)),
    case("aten.narrow_copy.default", T(3, "n", dtype="f16"), -1, 0, 2, n=(7, 4, 3)),
    case("aten.select_copy.int", T("n", 7), 0, -1, n=(11, 7, 1)),
    case("aten.select_copy.int", T(3, "n", 5), 1, 0, n=(7, 2)),
    case("aten.select_copy.int", T("n", dtype="i32", low=-5, high=5), 0, -2, n=(7, 3)),
    case("aten.select_copy.int", T("n", 1, 3), 1, -1, n=(7, 3)),
    case("aten.select_copy.int", T("n", 2, 3, dtype="bool"), -2, 1, n=(7, 3)),
    case("aten.select_copy.int", T("n", 5, dtype="f16"), -1, 3, n=(7, 3)),
]

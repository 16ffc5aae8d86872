from tests.support.cases import Sym, T, case

CASES = [
    case("aten.slice_copy.Tensor", T("n", 7), 0, 2, 5, 1, n=(11, 7, 3)),
    case("aten.slice_copy.Tensor", T("n", 7), 0, -3, 2**62, 1, n=(11, 7, 2)),
    case("aten.slice_copy.Tensor", T(3, "n", 5), 1, 1, Sym("n"), 2, n=(13, 7, 2)),
    case("aten.slice_copy.Tensor", T("n", 7), -1, None, None, 3, n=(5, 2)),
    case("aten.slice_copy.Tensor", T("n", 7, dtype="bool"), 1, 1, 4, 1, n=(5, 2)),
    case("aten.select_copy.int", T("n", 7), 0, -1, n=(11, 7, 1)),
    case("aten.select_copy.int", T(3, "n", 5), 1, 0, n=(7, 2)),
    case("aten.select_copy.int", T("n", dtype="i32", low=-5, high=5), 0, -2, n=(7, 3)),
    case("aten.permute_copy.default", T("n", 3, 5), [2, 0, 1], n=(7, 2, 1)),
    case("aten.permute.default", T(2, "n", 3, 5), [0, -2, 1, 3], n=(7, 2)),
    case("aten.permute_copy.default", T(2, 3, 1, 2, 3, 2, 1, 5), [7, 0, 6, 1, 5, 2, 4, 3]),
    case("aten.expand_copy.default", T("n", 1, 5), [Sym("n"), 3, 5], False, n=(7, 2)),
    case("aten.expand_copy.default", T(1, 5), [3, -1, 5], False),
    case("aten.expand_copy.default", T("n", 5), [Sym("n"), 5], False, n=(7, 2)),
    case("aten.expand_copy.default", T(), [7], False),
]

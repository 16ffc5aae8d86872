from tests.support.harness.cases import T, case

CASES = [
    case("aten.unfold_copy.default", T("n", 5), 0, 3, 2, n=(11, 7, 3)),
    case("aten.unfold_copy.default", T(3, "n", 5), 1, 2, 1, n=(11, 7, 2)),
    case("aten.unfold_copy.default", T("n", 5), -1, 3, 1, n=(7, 2)),
    case("aten.unfold_copy.default", T("n", 7), 1, 2, 3, n=(7, 2)),
    case("aten.unfold_copy.default", T("n", dtype="i32", low=-9, high=9), 0, 4, 3, n=(13, 7, 5)),
    case("aten.unfold_copy.default", T(2, "n", dtype="bool"), 1, 2, 2, n=(7, 4)),
    case("aten.unfold_copy.default", T(2, "n", dtype="f16"), 1, 2, 2, n=(7, 4)),
    case("aten.unfold_copy.default", T(2, 1, 3, 2, 1, 3, 5), -1, 3, 1),
    case("aten.unfold_copy.default", T(), 0, 1, 1),
]

from tests.support.harness.cases import Sym, T, case

CASES = [
    case("aten.as_strided_copy.default", T("n", 5), [Sym("n"), 5], [5, 1], None, n=(7, 2, 1)),
    case("aten.as_strided_copy.default", T("n", 5), [Sym("n"), 2], [5, 3], 1, n=(7, 2)),
    case("aten.as_strided_copy.default", T(3, "n"), [3, Sym("n")], [Sym("n"), 1], 0, n=(7, 2)),
    case("aten.as_strided_copy.default", T("n", 13), [3, 4, 2], [0, 2, 3], 3, n=(7, 2, 1)),
    case("aten.as_strided_copy.default", T(11), [], [], 3),
    case("aten.as_strided_copy.default", T(11), [2, 3], [5, 1], 3),
    case("aten.as_strided_copy.default", T("n", 5, dtype="i32", low=-9, high=9), [Sym("n"), 3], [5, 2], 0, n=(7, 2)),
    case("aten.as_strided_copy.default", T("n", 5, dtype="f16"), [Sym("n"), 3], [5, 2], 0, n=(7, 2)),
    case("aten.as_strided_copy.default", T("n", 5, dtype="bool"), [Sym("n"), 3], [5, 2], 0, n=(7, 2)),
]

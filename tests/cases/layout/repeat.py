from tests.support.harness.cases import Sym, T, case

CASES = [
    case("aten.expand_copy.default", T("n", 1, 5), [Sym("n"), 3, 5], False, n=(7, 2)),
    case("aten.expand_copy.default", T(1, 5), [3, -1, 5], False),
    case("aten.expand_copy.default", T("n", 5), [Sym("n"), 5], False, n=(7, 2)),
    case("aten.expand_copy.default", T("n", 1), [2, 3, -1, 5], False, n=(7, 2, 1)),
    case("aten.expand_copy.default", T(), [7], False),
    case("aten.expand_copy.default", T(3, 1, dtype="bool"), [3, 4], False),
    case("aten.expand_copy.default", T("n", 1, dtype="f16"), [-1, 3], False, n=(7, 2)),
    case("aten.expand_copy.default", T(2, 1, 3, 1, 2, 1, 3, 1), [2, 2, 3, 3, 2, 2, 3, 2], False),
    case("aten.repeat.default", T("n", 5), [2, 3], n=(7, 2, 1)),
    case("aten.repeat.default", T("n", 5), [3, 1, 1, 2], n=(7, 2, 1)),
    case("aten.repeat.default", T("n", 5), [1, 1], n=(7, 2)),
    case("aten.repeat.default", T("n", 5), [2, 0], n=(7, 2)),
    case("aten.repeat.default", T(), [3, 2]),
    case("aten.repeat.default", T(), []),
    case("aten.repeat.default", T("n", dtype="bool"), [3], n=(7, 2)),
    case("aten.repeat.default", T("n", 3, dtype="i32", low=-9, high=9), [1, 2], n=(7, 2)),
    case("aten.repeat.default", T("n", 3, dtype="f16"), [2, 2, 2], n=(7, 2)),
    case("aten.repeat.default", T("n"), [Sym("n")], n=(7, 2)),
    case("aten.repeat.default", T(1, 2, 1, 3, 1, 2, 1, 2), [2, 1, 2, 2, 2, 2, 1, 2]),
]

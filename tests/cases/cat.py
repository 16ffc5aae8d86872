from tests.support.cases import T, case

CASES = [
    case("aten.cat.default", [T("n", 3), T("n", 5)], 1, n=(7, 2)),
    case("aten.cat.default", [T("n", 3), T("m", 3), T(2, 3)], 0, n=(7, 2), m=(5, 1)),
    case("aten.cat.default", [T(3, "n", 2), T(3, 5, 2)], -2, n=(7, 2, 1)),
    case("aten.cat.default", [T("n", dtype="bool"), T(3, dtype="bool")], 0, n=(7, 2)),
]

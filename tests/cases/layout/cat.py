from tests.support.harness.cases import T, case

MANY = [T("n", size) for size in (1, 2, 3, 1, 2, 1, 5, 1, 2, 3, 1)]  # more than a dispatch can bind

CASES = [
    case("aten.cat.default", [T("n", 3), T("n", 5)], 1, n=(7, 2)),
    case("aten.cat.default", [T("n", 3), T("m", 3), T(2, 3)], 0, n=(7, 2), m=(5, 1)),
    case("aten.cat.default", [T(3, "n", 2), T(3, 5, 2)], -2, n=(7, 2, 1)),
    case("aten.cat.default", [T("n", dtype="bool"), T(3, dtype="bool")], 0, n=(7, 2)),
    case("aten.cat.default", [T("n", 3, dtype="f16"), T("n", 2, dtype="f16")], 1, n=(7, 2)),
    case("aten.cat.default", [T("n", 3, dtype="i32"), T("n", 2, dtype="i32")], -1, n=(7, 2)),
    case("aten.cat.default", [T("n", 3)], 0, n=(7, 2)),
    case("aten.cat.default", [T(0, constant=True), T("n", 3), T("n", 2)], 1, n=(7, 2)),
    case("aten.cat.default", MANY, 1, n=(7, 2)),
    case("aten.cat.default", [T(2, 1, 2, 3, 1, 2, 1, 2), T(2, 1, 2, 3, 3, 2, 1, 2)], 4),
    case("aten.cat.default", [T("n", 3, dtype="i8"), T("n", 5, dtype="i8"), T("n", 2, dtype="i8")], 1, n=(7, 2, 1)),
    case("aten.cat.default", [T("n", 3, dtype="u8"), T(2, 3, dtype="u8")], 0, n=(7, 2, 1)),
    case("aten.cat.default", [T("n", 4, dtype="i8"), T("n", 8, dtype="i8")], 1, n=(7, 2, 1)),
    case("aten.stack.default", [T("n", 3), T("n", 3)], 0, n=(7, 2)),
    case("aten.stack.default", [T("n", 3), T("n", 3), T("n", 3)], -1, n=(7, 2)),
    case("aten.stack.default", [T("n", 3, dtype="i32"), T("n", 3, dtype="i32")], 1, n=(7, 2)),
    case("aten.stack.default", [T(), T()], 0),
]

from tests.support.harness.cases import T, case

CASES = [
    case("aten.flip.default", T("n", 5), [0], n=(7, 2, 1)),
    case("aten.flip.default", T("n", 5), [0, 1], n=(7, 2)),
    case("aten.flip.default", T(3, "n", 5), [-1, 0], n=(7, 2)),
    case("aten.flip.default", T("n", 5), [], n=(7, 2)),
    case("aten.flip.default", T(), []),
    case("aten.flip.default", T(2, "n", 3, dtype="bool"), [1], n=(7, 2)),
    case("aten.flip.default", T(2, "n", dtype="i32", low=-9, high=9), [-1], n=(7, 2)),
    case("aten.flip.default", T(2, "n", dtype="f16"), [-1], n=(7, 2)),
    case("aten.flip.default", T(2, 3, 2, 1, 2, 3, 2, 3), [0, 2, 5, 7]),
    case("aten.roll.default", T("n", 5), [2], [0], n=(7, 2, 1)),
    case("aten.roll.default", T(3, "n", 5), [-1, 9], [0, -2], n=(7, 2)),
    case("aten.roll.default", T(3, "n"), [4], [], n=(7, 2)),
    case("aten.roll.default", T(3, "n", dtype="f16"), [1, 1], [1, 1], n=(7, 2)),
    case("aten.roll.default", T(2, "n", dtype="bool"), [-2], [1], n=(7, 3)),
]

from tests.support.cases import T, case

CASES = [
    case("aten.linear.default", T("n", 29), T(11, 29, constant=True), None, n=(7, 5, 1)),
    case("aten.linear.default", T("n", 12), T(13, 12, constant=True), T(13, constant=True), n=(7, 4, 1)),
    case("aten.linear.default", T(2, "n", 12), T(5, 12, constant=True), None, n=(7, 4, 1)),
    case("aten.linear.default", T("n", 8), T(4, 8), T(4), n=(5, 2)),
    case("aten.mm.default", T("n", 7), T(7, 5), n=(11, 3, 1)),
    case("aten.bmm.default", T(3, "n", 7), T(3, 7, "m"), n=(11, 3), m=(5, 2)),
    case("aten.bmm.default", T("b", 5, "n"), T("b", "n", 3), n=(11, 3), b=(2, 1)),
]

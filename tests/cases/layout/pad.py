from tests.support.harness.cases import Sym, T, case

EIGHT = [1, 0, 0, 1, -1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 0]
INF = float("inf")

CASES = [
    case("aten.constant_pad_nd.default", T("n", 5), [1, 2], 0, n=(7, 2, 1)),
    case("aten.constant_pad_nd.default", T("n", 5), [1, 2, 3, 0], 1.5, n=(7, 2)),
    case("aten.constant_pad_nd.default", T("n", 5, dtype="i8"), [1, 2, 3, 0], -7, n=(7, 2, 1)),
    case("aten.constant_pad_nd.default", T(2, "n", 3, 8, dtype="i8"), [0, 0, 1, 2, 0, 1], -7, n=(7, 2, 1)),
    case("aten.constant_pad_nd.default", T(3, "n", 5), [-1, 2, 1, -1], -2.5, n=(7, 2)),
    case("aten.constant_pad_nd.default", T(3, "n", 5), [-2, -1, 0, 0, -1, -1], 0, n=(7, 2)),
    case("aten.constant_pad_nd.default", T(3, "n"), [0, -2], 0.5, n=(7, 2)),
    case("aten.constant_pad_nd.default", T(2, 3, "n", 5), [2, 0, 0, 1, 1, 1], -INF, n=(7, 2)),
    case("aten.constant_pad_nd.default", T(2, 3, "n", 5), [2, 0, 0, 1, 1, 1], INF, n=(7, 2)),
    case("aten.constant_pad_nd.default", T("n", 5, dtype="i32", low=-9, high=9), [1, 1], -7, n=(7, 2)),
    case("aten.constant_pad_nd.default", T("n", 5, dtype="bool"), [1, 1, 2, 0], True, n=(7, 2)),
    case("aten.constant_pad_nd.default", T("n", 5, dtype="bool"), [1, 1, 2, 0], 0, n=(7, 2)),
    case("aten.constant_pad_nd.default", T("n", 5, dtype="f16"), [1, 2], 0.3, n=(7, 2)),
    case("aten.constant_pad_nd.default", T("n", 5, dtype="f16"), [1, 2], -INF, n=(7, 2)),
    case("aten.constant_pad_nd.default", T("n", 5), [], 3.0, n=(7, 2)),
    case("aten.constant_pad_nd.default", T("n"), [0, Sym("n")], 3.0, n=(7, 2)),
    case("aten.constant_pad_nd.default", T(1, 2, 1, 2, 1, 3, 2, 1), EIGHT, 4),
]

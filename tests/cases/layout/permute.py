from tests.support.harness.cases import T, case

CASES = [
    case("aten.permute_copy.default", T("n", 3, 5), [2, 0, 1], n=(7, 2, 1)),
    case("aten.permute.default", T(2, "n", 3, 5), [0, -2, 1, 3], n=(7, 2)),
    case("aten.permute.default", T(2, "n", 3, dtype="bool"), [-1, 0, 1], n=(7, 2)),
    case("aten.permute_copy.default", T("n", 3, dtype="f16"), [1, 0], n=(7, 2)),
    case("aten.permute_copy.default", T("n", 3, dtype="i32", low=-9, high=9), [1, 0], n=(7, 2)),
    case("aten.permute_copy.default", T(2, 3, 1, 2, 3, 2, 1, 5), [7, 0, 6, 1, 5, 2, 4, 3]),
    case("aten.permute_copy.default", T(), []),
    # The last dim stays and is moved four elements at a time; or would be, but for its neighbor.
    case("aten.permute_copy.default", T(2, "n", 3, 8), [0, 2, 1, 3], n=(7, 2, 1)),
    case("aten.permute_copy.default", T(2, "n", 3, 8, dtype="f16"), [2, 1, 0, 3], n=(7, 2, 1)),
    case("aten.permute_copy.default", T("n", 3, 2, 6), [1, 0, 2, 3], n=(7, 2, 1)),
    # Only a dim of 1 moves, at every size; then a dim that is 1 only below the bound.
    case("aten.permute_copy.default", T(1, "n", 5), [1, 0, 2], n=(7, 2)),
    case("aten.permute_copy.default", T("m", "n", 5), [1, 0, 2], n=(7, 2), m=(3, 1)),
    case("aten.transpose_copy.int", T(3, "n", 5), 0, -1, n=(7, 2, 1)),
    case("aten.transpose_copy.int", T("n", 5), -2, 0, n=(7, 2)),
    case("aten.transpose_copy.int", T(dtype="i32"), 0, -1),
    case("aten.t_copy.default", T("n", 5), n=(7, 2, 1)),
    case("aten.t_copy.default", T("n"), n=(7, 2)),
    case("aten.t_copy.default", T()),
]

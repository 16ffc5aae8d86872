from tests.support.harness.cases import Sym, T, case

CASES = [
    case("aten.split_with_sizes_copy.default", T("n", 7), [2, 4, 1], 1, n=(5, 2)),
    case("aten.split_with_sizes_copy.default", T(3, 7, "n"), [3, 0, 4], -2, n=(5, 2, 1)),
    case("aten.split_with_sizes_copy.default", T("n", 3), [Sym("n")], 0, n=(5, 2)),
    case("aten.split_with_sizes_copy.default", T(5, "n", dtype="i32", low=-9, high=9), [2, 3], 0, n=(5, 2)),
    case("aten.split_with_sizes_copy.default", T("n", 5, dtype="bool"), [2, 3], 1, n=(5, 2)),
    case("aten.split_with_sizes_copy.default", T("n", 5, dtype="f16"), [2, 3], 1, n=(5, 2)),
    case("aten.split_with_sizes_copy.default", T(2, 1, 3, 2, 1, 5, 2, 3), [1, 2], 2),
    case("aten.split_copy.Tensor", T("n", 7), 3, -1, n=(5, 2)),
    case("aten.split_copy.Tensor", T("n", 6), 3, 1, n=(5, 2)),
    case("aten.split_copy.Tensor", T("n", 3), 4, 0, n=(7, 6, 5)),
    case("aten.unbind_copy.int", T("n", 3, 5), 1, n=(7, 2)),
    case("aten.unbind_copy.int", T(2, "n", dtype="bool"), 0, n=(7, 2)),
    case("aten.unbind_copy.int", T("n", 2, dtype="f16"), -1, n=(7, 2)),
]

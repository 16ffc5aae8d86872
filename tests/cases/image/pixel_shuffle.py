from tests.support.harness.cases import T, case

CASES = [
    case("aten.pixel_shuffle.default", T(1, 12, "n", 5), 2, n=(7, 3, 1)),
    case("aten.pixel_shuffle.default", T(2, 9, 3, "n"), 3, n=(7, 2)),
    case("aten.pixel_shuffle.default", T(8, "n", 3), 2, n=(7, 2)),
    case("aten.pixel_shuffle.default", T(2, 3, 4, "n", 3), 2, n=(5, 2)),
    case("aten.pixel_shuffle.default", T(3, "n", 2), 1, n=(5, 2)),
    case("aten.pixel_shuffle.default", T(2, 8, "n", 3, dtype="f16"), 2, n=(5, 2)),
    case("aten.pixel_shuffle.default", T(8, "n", 3, dtype="i32", low=-9, high=9), 2, n=(5, 2)),
    case("aten.pixel_unshuffle.default", T(1, 3, "n", 10), 2, n=(14, 6, 2)),
    case("aten.pixel_unshuffle.default", T(2, "n", 9), 3, n=(15, 6, 3)),
    case("aten.pixel_unshuffle.default", T(2, "n", 4, dtype="f16"), 2, n=(6, 2)),
]

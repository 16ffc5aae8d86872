from tests.support.harness.cases import Sym, T, case

SIZES: list[tuple[T, list[int | Sym] | None, list[float] | None, dict[str, tuple[int, ...]]]] = [
    (T(1, 2, "n", 5), [11, 13], None, {"n": (7, 3, 1)}),
    (T(2, 3, "n", 7), [3, 2], None, {"n": (13, 7, 5)}),
    (T(1, 2, "n", 5), [Sym("n"), 10], None, {"n": (7, 3)}),
    (T(1, 2, "n", 5), None, [2.0, 2.0], {"n": (7, 3, 1)}),
    (T(1, 2, "n", "m"), None, [1.5, 2.7], {"n": (7, 3), "m": (5, 2)}),
    (T(1, 2, "n", 11), None, [0.7, 0.6], {"n": (7, 3)}),
    (T(1, 1, "n", 5), None, [2.1, 2.1], {"n": (7, 3)}),  # twice the size, yet not a scale of 2
    (T(1, 1, "n", 5), None, [1.1, 1.0], {"n": (7, 3)}),
    (T(1, 2, "n", 5), [1, 1], None, {"n": (7, 3)}),
    (T(1, 2, "n", 5, dtype="f16"), [9, 8], None, {"n": (7, 3)}),
]
CASES = [case("aten.upsample_nearest2d.vec", x, size, scales, **dims) for x, size, scales, dims in SIZES]
CASES += [case("aten.upsample_nearest2d.vec", T(1, 2, "n", 5, dtype="i32", low=-9, high=9), [9, 8], None, n=(7, 3))]
CASES += [
    case("aten.upsample_bilinear2d.vec", x, size, aligned, scales, atol=2e-3 if x.dtype == "f16" else 1e-5, **dims)
    for aligned in (False, True)
    for x, size, scales, dims in SIZES
]

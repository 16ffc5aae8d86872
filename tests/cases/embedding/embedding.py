from tests.support.harness.cases import T, case

OPERANDS: list[tuple[tuple[T, T], dict[str, tuple[int, ...]]]] = [
    ((T(13, 7, constant=True), T(2, "n", dtype="i32", low=0, high=12)), {"n": (11, 3)}),
    ((T(13, 7), T("n", dtype="i32", low=0, high=12)), {"n": (11, 3, 1)}),
    ((T(13, 7, dtype="f16", constant=True), T("n", dtype="i32", low=0, high=12)), {"n": (11, 3)}),
    ((T(13, 8, dtype="i32", low=-9, high=9), T("n", 3, dtype="i32", low=0, high=12)), {"n": (11, 3)}),
    ((T("v", 5), T("n", 3, dtype="i32", low=0, high=2)), {"n": (11, 2), "v": (7, 3)}),
    ((T(13, 7), T(dtype="i32", low=0, high=12)), {}),
]
CASES = [case("aten.embedding.default", *args, -1, False, False, **sizes) for args, sizes in OPERANDS]

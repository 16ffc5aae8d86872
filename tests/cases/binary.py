from tests.support.cases import T, case

OPS: dict[str, tuple[int, ...]] = {"aten.add.Tensor": (2,), "aten.sub.Tensor": (3,), "aten.mul.Tensor": ()}
SHAPES: list[tuple[tuple[T, ...], dict[str, tuple[int, ...]]]] = [
    ((T("n", 29), T("n", 29)), {"n": (11, 7, 1)}),
    ((T("n", 1, 5), T(3, 5)), {"n": (7, 2)}),
    ((T(1, "n"), T("m", 1)), {"n": (7, 2, 5), "m": (11, 3, 1)}),
    ((T(2, 1, 3, 1, 2, 1, 3, 1), T(1, 2, 1, 3, 1, 2, 1, 3)), {}),
    ((T(), T("n")), {"n": (13, 3)}),
    ((T("n", 5, dtype="i32", low=-9, high=9), T(5, dtype="i32", low=-9, high=9)), {"n": (7, 3)}),
    ((T(70001), T(70001)), {}),
]
CASES = [case(name, *args, *rest, **sizes) for name, rest in OPS.items() for args, sizes in SHAPES]
CASES += [
    case("aten.add.Scalar", T("n", 5), 1.5, 2, n=(7, 3)),
    case("aten.sub.Scalar", T("n", 5), 1.5, 2, n=(7, 3)),
    case("aten.mul.Scalar", T("n", 5), 0.5, n=(7, 3)),
    case("aten.mul.Scalar", T("n", 5, dtype="i32", low=-9, high=9), 3, n=(7, 3)),
]

from tests.support.cases import Sym, T, case

CASES = [
    case("aten.view_copy.default", T("n", 6), [Sym("n"), 2, 3], n=(11, 7, 1)),
    case("aten.view_copy.default", T("n", 6), [-1, 3], n=(11, 7)),
    case("aten.view_copy.default", T(5, dtype="bool"), [5, 1]),
    case("aten.unsqueeze_copy.default", T("n", 5), 1, n=(7, 2)),
    case("aten.unsqueeze_copy.default", T("n", 5), -1, n=(7, 2)),
    case("aten.unsqueeze_copy.default", T(), 0),
    case("aten.squeeze_copy.dims", T("n", 1, 5, 1), [1, 3], n=(7, 3)),
    case("aten.squeeze_copy.dims", T("n", 1, 5, 1), [-1, 2], n=(7, 3)),
    case("aten.clone.default", T("n", 5), None, n=(7, 2)),
    case("et_vk.prepack.default", T(7, 5, constant=True)),
    case("et_vk.prepack.default", T(constant=True)),
    case("et_vk.prepack.default", T(3, 5, dtype="bool", constant=True)),
]

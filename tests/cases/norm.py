from tests.support.cases import T, case

CASES = [
    case("et_vk.rms_norm.default", T(1, "n", 29), T(29, constant=True), 1e-5, n=(11, 7, 1)),
    case("et_vk.rms_norm.default", T("n", 64, low=-1e-4, high=1e-4), T(64), 1e-6, n=(5, 2)),
    case("aten._softmax.default", T("n", 29, low=-50, high=50), -1, False, n=(11, 7, 1)),
    case("aten._softmax.default", T(3, "n", 5), 1, False, n=(11, 7, 1)),
    case("aten._softmax.default", T(), 0, False),
]

import numpy as np

from tests.cases.elementwise.unary import INFINITE, among
from tests.support.harness.cases import T, case

NAN = float("nan")
BOOL = {"dtype": "bool"}
FEW = {"dtype": "i32", "low": -1, "high": 1}
WIDE = {"dtype": "i32", "low": -(2**31), "high": 2**31 - 1}
EXACT = {"atol": 0, "rtol": 0}


def _masked(dims):
    """Numbers among which some are minus infinity."""
    values = np.arange(np.prod(dims), dtype=np.float32).reshape(dims) - 3
    return np.where(values % 3 == 0, -np.inf, values)


CASES = [
    case("aten.logical_not.default", T("n", 5, **BOOL), n=(7, 2, 1)),
    case("aten.logical_not.default", T("n", 5, **FEW), n=(7, 2, 1)),
    case("aten.logical_not.default", T(5, make=among(NAN, 0, -0.0, 1e-40, INFINITE))),
    case("aten.bitwise_not.default", T("n", 5, **BOOL), n=(7, 2, 1)),
    case("aten.bitwise_not.default", T("n", 5, **WIDE), n=(7, 2, 1), **EXACT),
]
for _name in ("and", "or", "xor"):
    CASES += [
        case(f"aten.logical_{_name}.default", T("n", 5, **BOOL), T("n", 5, **BOOL), n=(11, 7, 1)),
        case(f"aten.logical_{_name}.default", T("n", 1, **BOOL), T(5, **BOOL), n=(7, 2, 1)),
        case(f"aten.logical_{_name}.default", T("n", 5, **FEW), T("n", 5, make=among(NAN, 0, 2)), n=(7, 2, 1)),
        case(f"aten.bitwise_{_name}.Tensor", T("n", 5, **BOOL), T("n", 5, **BOOL), n=(11, 7, 1)),
        case(f"aten.bitwise_{_name}.Tensor", T("n", 1, **BOOL), T(5, **BOOL), n=(7, 2, 1)),
        case(f"aten.bitwise_{_name}.Tensor", T("n", 5, **WIDE), T("n", 1, **WIDE), n=(7, 2, 1), **EXACT),
        case(f"aten.bitwise_{_name}.Tensor", T("n", 5, **WIDE), T(5, **BOOL), n=(7, 2, 1), **EXACT),
        case(f"aten.bitwise_{_name}.Scalar", T("n", 5, **WIDE), 12345, n=(7, 2, 1), **EXACT),
        case(f"aten.bitwise_{_name}.Scalar", T("n", 5, **BOOL), True, n=(7, 2, 1)),
    ]
_C = T("n", 5, **BOOL)
CASES += [
    case("aten.where.self", T("n", 1, **BOOL), T("n", 5), T("n", 5), n=(7, 2, 1)),
    case("aten.where.self", _C, T(), T(5, make=_masked), n=(7, 2, 1)),
    case("aten.where.self", T(3, 1, 1, **BOOL), T("n", 1), T(5), n=(7, 2, 1)),
    case("aten.where.self", T(**BOOL), T("n", 5), T("n", 5), n=(7, 2, 1)),
    case("aten.where.self", _C, T("n", 5, **WIDE), T("n", 5, **WIDE), n=(7, 2, 1), **EXACT),
    case("aten.where.self", _C, T("n", 5, **BOOL), T("n", 5, **BOOL), n=(7, 2, 1)),
    case("aten.where.self", _C, T("n", 5, dtype="f16"), T(dtype="f16"), n=(7, 2, 1)),
    case("aten.where.self", _C, T("n", 5, **FEW), T("n", 5), n=(7, 2, 1)),
    case("aten.where.self", _C, T("n", 5, dtype="f16"), T("n", 5), n=(7, 2, 1)),
    case("aten.where.self", _C, T("n", 5, **BOOL), T(5, **FEW), n=(7, 2, 1)),
    case("aten.any.dim", T("n", 5, **BOOL), -1, True, n=(7, 2, 1)),
    case("aten.any.dim", T(3, "n", 2, make=lambda d: np.arange(np.prod(d)).reshape(d) % 7), 1, False, n=(7, 2, 1)),
]

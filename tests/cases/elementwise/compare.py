import numpy as np

from tests.cases.elementwise.unary import INFINITE, among
from tests.support.harness.cases import T, case

OPS = ("eq", "ne", "lt", "le", "gt", "ge")
FEW = {"dtype": "i32", "low": -2, "high": 2}
COARSE = T("n", 5, make=lambda dims: np.arange(np.prod(dims)).reshape(dims) % 5 / 2 - 1)
ODD = (float("nan"), -INFINITE, INFINITE, 0.0, -0.0, 1e-40, 3.5)
EVEN = (0.0, -INFINITE, float("nan"), -0.0, 3e-41, 1e-40, INFINITE)

CASES = []
for _name in OPS:
    _op, _scalar = f"aten.{_name}.Tensor", f"aten.{_name}.Scalar"
    CASES += [
        case(_op, T("n", 29), T("n", 29), n=(11, 7, 1)),
        case(_op, COARSE, T(5, make=among(-1, 0.5, 0, 1, -0.5)), n=(7, 2)),
        case(_op, T("n", 1, 5, **FEW), T(3, 1, **FEW), n=(7, 2)),
        case(_op, T(**FEW), T("n", **FEW), n=(13, 3)),
        case(_op, T("n", 5, dtype="f16"), T("n", 5, dtype="f16"), n=(7, 2)),
        case(_op, T("n", 5, dtype="bool"), T("n", 5, dtype="bool"), n=(7, 2)),
        case(_op, T("n", 5, **FEW), COARSE, n=(7, 2)),
        case(_op, T(7, 1, make=among(*ODD)), T(1, 7, make=among(*EVEN))),
        case(
            _op, T(3, dtype="i32", make=among(2**31 - 1, 7, -(2**31))), T(3, dtype="i32", make=among(2**31 - 2, 7, 1))
        ),
        case(_scalar, COARSE, 0.5, n=(7, 2, 1)),
        case(_scalar, T("n", 5, **FEW), 1, n=(7, 2)),
        case(_scalar, T("n", 5, **FEW), 0.5, n=(7, 2)),
        case(_scalar, T("n", 5, dtype="bool"), True, n=(7, 2)),
        case(_scalar, T("n", dtype="f16", make=among(0.1, 0.2, -0.1)), 0.1, n=(7, 2)),
        case(_scalar, T("n", dtype="f16", make=among(65504, INFINITE)), 1e6, n=(7, 2)),
        case(_scalar, T("n", 7, make=among(*ODD)), -INFINITE, n=(7, 2)),
        case(_scalar, T("n", 7, make=among(*ODD)), INFINITE, n=(7, 2)),
        case(_scalar, T("n", 7, make=among(*ODD)), float("nan"), n=(7, 2)),
        case(_scalar, T("n", 5, **FEW), -INFINITE, n=(7, 2)),
        case(_scalar, T(3, dtype="i32", make=among(2**31 - 1, 0, -(2**31))), 2**40),
    ]

"""Sums, differences, products and quotients with a clamp after or before them, as ExecuTorch 1.0 fuses them."""

import sys

from tests.cases.elementwise.unary import INFINITE, among
from tests.support.harness.cases import T, case

HALF = {"atol": 1e-3, "rtol": 2e-3}
EXTREME = T(6, make=among(INFINITE, -INFINITE, 7, 1e38, -0.0, 3))

CASES = []
for _name in ("add", "sub", "mul", "div"):
    _after, _before = f"et_vk.binary_{_name}_with_clamp.default", f"et_vk.clamp_with_binary_{_name}.default"
    _other = {"low": 0.5, "high": 3}
    CASES += [
        case(_after, T("n", 5), T("n", 5, **_other), -0.5, 0.75, n=(7, 3, 1)),
        case(_after, T("n", 1, 5), T(3, 5, **_other), 0.0, sys.float_info.max, n=(7, 2)),  # what relu becomes
        case(_after, T("n", 5), 3.0, 0, 6, n=(7, 3, 1)),
        case(_after, T("n", 5), T(**_other), None, 0.5, n=(7, 3, 1)),
        case(_after, T("n", 5), T("n", 5, **_other), 0.25, None, n=(7, 3, 1)),
        case(_after, EXTREME, T(6, **_other), -2.0, 2.0),
        case(_after, T("n", 5, dtype="f16"), T("n", 5, dtype="f16", low=0.5, high=3), -0.5, 0.5, n=(7, 3, 1), **HALF),
        case(_before, T("n", 5), -0.5, 0.75, T("n", 5, **_other), n=(7, 3, 1)),
        case(_before, T("n", 1, 5), 0.0, sys.float_info.max, T(3, 5, **_other), n=(7, 2)),
        case(_before, T("n", 5), None, 0.5, 3.0, n=(7, 3, 1)),
        case(_before, EXTREME, -2.0, None, T(6, **_other)),
        case(_before, T("n", 5, dtype="f16"), -0.5, 0.5, T("n", 5, dtype="f16", low=0.5, high=3), n=(7, 3, 1), **HALF),
    ]

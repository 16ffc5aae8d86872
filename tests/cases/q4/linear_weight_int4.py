"""Layers of ExecuTorch 0.7: each group of weights has a scale and a zero."""

import numpy as np

from tests.support.harness.cases import T, case

INT4 = "et_vk.linear_weight_int4.default"
HALF = {"atol": 5e-3, "rtol": 2e-3}
LOOSE = {"atol": 1e-4}


def weight(rows, inner, **options):
    return T(rows, inner // 2, dtype="u8", low=0, high=255, constant=True, **options)


def coding(groups, rows, dtype="f32"):
    """Scales beside zeros, which have either sign."""

    def pairs(dims):
        scales = 0.005 + 0.04 * np.linspace(0, 1, groups * rows)
        return np.stack((scales, 0.3 * np.cos(np.arange(groups * rows))), axis=-1).reshape(dims)

    return T(groups, rows, 2, dtype=dtype, make=pairs, constant=True)


CASES = [
    case(INT4, T("n", 64), weight(24, 64), 32, coding(2, 24), 8, n=(11, 4, 1), **LOOSE),
    case(INT4, T("n", 128), weight(7, 128), 64, coding(2, 7), 8, n=(7, 3, 1), **LOOSE),
    case(INT4, T(2, "n", 256), weight(8, 256), 256, coding(1, 8), 2, n=(5, 2, 1), **LOOSE),
    case(INT4, T(64), weight(5, 64), 32, coding(2, 5), 4, **LOOSE),
    case(INT4, T("n", 40), weight(3, 40), 8, coding(5, 3), 8, n=(3, 1), **LOOSE),
    case(INT4, T("n", 64, dtype="f16"), weight(9, 64), 32, coding(2, 9, "f16"), 8, n=(5, 1), **HALF),
]

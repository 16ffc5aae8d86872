import numpy as np

from tests.support.harness.cases import T, case

ADAMW, LOSS, GRADIENT = "et_vk.adamw_step.default", "et_vk.fused_ce.default", "et_vk.linear_dW.default"
BACKWARD, REQUANT = "et_vk.linear_q4gsw_backward.default", "et_vk.q4gsw_requant.default"
EXACT = {"atol": 0, "rtol": 0}
HALF = {"atol": 2e-3, "rtol": 2e-3}


def codes(rows, row_bytes, **options):
    return T(rows, row_bytes, dtype="u8", low=0, high=255, **{"constant": True} | options)


def scales(*dims, **options):
    return T(*dims, low=0.005, high=0.05, **{"constant": True} | options)


def state(*dims, dtype="f32"):
    """Return a parameter, its two moments, its gradient."""
    return (
        T(*dims, dtype=dtype),
        T(*dims, dtype=dtype, low=-0.1),
        T(*dims, dtype=dtype, low=0, high=0.01),
        T(*dims, dtype=dtype),
    )


DEFAULTS = (1e-3, 0.9, 0.999, 1e-8)
STEPS = [
    case(ADAMW, *state("n"), *DEFAULTS, 0.01, 0.1, 0.001, n=(67, 11, 1)),
    case(ADAMW, *state("n", 7), *DEFAULTS, 0.0, 0.65, 0.00995, n=(9, 4, 1)),
    case(ADAMW, *state(3, "n", 5), 0.1, 0.5, 0.25, 1e-3, 0.5, 1.0, 1.0, n=(4, 2)),
    case(ADAMW, *state(), *DEFAULTS, 0.01, 0.1, 0.001),
    case("adamw_step.default", *state("n", 7), *DEFAULTS, 0.01, 0.1, 0.001, n=(9, 4, 1)),
    case(ADAMW, *state("n", 4, dtype="f16"), 1e-2, 0.9, 0.99, 1e-3, 0.01, 0.5, 0.5, n=(9, 2), **HALF),
]


def some(dims):
    """Labels of which every third does not count."""
    labels = np.arange(dims[0]) * 5 % 7
    return np.where(labels % 3 == 2, -1 - labels, labels)


def none(dims):
    return np.full(dims, -100)


def spread(dims):
    return np.linspace(-200, 300, np.prod(dims)).reshape(dims)


def labels(high, *dims):
    return T(*dims, dtype="i32", low=0, high=high)


LOSSES = [
    case(LOSS, T("n", 7), labels(6, "n"), 11.0, n=(11, 5, 1)),
    case(LOSS, T("n", 7), T("n", dtype="i32", make=some), 4.0, n=(11, 5, 1)),
    case(LOSS, T("n", 7), T("n", dtype="i32", make=none), 1.0, n=(5, 1)),
    case(LOSS, T("n", 1031), labels(1030, "n"), 3.0, n=(7, 2)),
    case(LOSS, T("n", 7, make=spread), labels(6, "n"), 3.0, n=(7, 2)),
    case(LOSS, T("n", 1), labels(0, "n"), 2.5, n=(7, 2)),
    case(LOSS, T("n", 7, dtype="f16"), labels(6, "n"), 11.0, n=(11, 1), **HALF),
]
BACKWARDS = [
    case(BACKWARD, T("n", 24), codes(24, 32), scales(2, 24), 32, n=(11, 4, 1)),
    case(BACKWARD, T("n", 29), codes(29, 16), scales(2, 32), 16, n=(7, 2, 1)),
    case(BACKWARD, T(2, "n", 5), codes(5, 32), scales(1, 5), 64, n=(7, 2, 1)),
    case(BACKWARD, T("n", 5), codes(5, 12), scales(3, 8), 8, n=(7, 1)),
    case(BACKWARD, T("n", 5), codes(5, 6), scales(3, 8), 4, n=(7, 1)),
    case(BACKWARD, T("n", 5), codes(5, 5), scales(2, 5), 5, n=(7, 1)),
    case(BACKWARD, T(13), codes(13, 8), scales(1, 13), 16),
    case(BACKWARD, T("n", 24), codes(24, 32, constant=False), scales(2, 24, constant=False), 32, n=(5, 1)),
    case(BACKWARD, T("n", 9, dtype="f16"), codes(9, 16), scales(1, 12, dtype="f16"), 32, n=(7, 1), **HALF),
]
GRADIENTS = [
    case(GRADIENT, T("n", 5), T("n", 7), n=(11, 4, 1)),
    case(GRADIENT, T("n", 8), T("n", 12), n=(11, 4, 1)),
    case(GRADIENT, T(2, "n", 5), T(2, "n", 8), n=(11, 4, 1)),
    case(GRADIENT, T(5), T(7)),
    case(GRADIENT, T("n", "a"), T("n", "b"), n=(131, 2, 1), a=(13, 4, 1), b=(9, 8, 1), atol=1e-4),
    case(GRADIENT, T("n", 5, dtype="f16"), T("n", 8, dtype="f16"), n=(11, 1), atol=1e-2, rtol=2e-3),
]


def ties(dims):
    """Halves in units of the scale, some beyond -8 and 7."""
    return (np.arange(np.prod(dims)).reshape(dims) % 41 - 20) * 0.5 * 0.03125


def power_of_two(dims):
    return np.full(dims, 0.03125)


def with_zeros(dims):
    return np.where(np.arange(np.prod(dims)).reshape(dims) % 3 == 0, 0, 0.25)


def latent(*dims, **options):
    return T(*dims, **{"low": -0.4, "high": 0.4} | options)


REQUANTS = [
    case(REQUANT, latent("n", 32), scales(2, "n", constant=False), 16, n=(11, 4, 1), **EXACT),
    case(REQUANT, latent(5, 64), scales(1, 5), 64, **EXACT),
    case(REQUANT, latent(6, 129), scales(3, 6), 64, **EXACT),
    case(REQUANT, latent(7, 6), scales(1, 8), 8, **EXACT),
    case(REQUANT, latent(3, 1), scales(1, 3), 1, **EXACT),
    case(REQUANT, latent("n", 5), scales(2, 12), 3, n=(11, 4, 1), **EXACT),
    case(REQUANT, latent("n", 16, make=ties), scales(2, 12, make=power_of_two), 8, n=(11, 4, 1), **EXACT),
    case(REQUANT, latent("n", 16), scales(2, 12, make=with_zeros), 8, n=(11, 4, 1), **EXACT),
    case(REQUANT, latent("n", 16, dtype="f16"), scales(2, 12, dtype="f16"), 8, n=(11, 4, 1), **EXACT),
]

CASES = STEPS + LOSSES + BACKWARDS + GRADIENTS + REQUANTS

import numpy as np

from tests.support.harness.cases import T, case

INFINITE = float("inf")
_FLOATS = {"exp": (-9, 9), "log": (0.01, 50), "log10": (0.01, 50), "sqrt": (0, 50), "rsqrt": (0.01, 50)}
_FLOATS |= {"reciprocal": (0.1, 9), "sin": (-99, 99), "cos": (-99, 99), "tanh": (-20, 20), "erf": (-5, 5)}
_FLOATS |= {"sigmoid": (-100, 100), "silu": (-100, 100), "hardswish": (-5, 5)}
_ANY = ("abs", "neg", "sign", "round", "ceil", "floor", "trunc", "relu")


def among(*values):
    """Data that repeats the given values."""
    return lambda dims: np.resize(np.array(values), dims)


def _shapes(name: str, low: float, high: float, *args: object):
    """Dynamic, of rank 0 and 4, and in half precision."""
    op = f"aten.{name}.default"
    yield case(op, T("n", 29, low=low, high=high), *args, n=(11, 7, 1))
    yield case(op, T(low=low, high=high), *args)
    yield case(op, T(2, 3, "n", 7, low=low, high=high), *args, n=(5, 2))
    yield case(op, T("n", 5, low=low, high=high, dtype="f16"), *args, n=(7, 3), atol=1e-3, rtol=2e-3)


CASES = [c for name, (low, high) in _FLOATS.items() for c in _shapes(name, low, high)]
CASES += [c for name in _ANY for c in _shapes(name, -30, 30)]
CASES += [case("webpte.round_bf16", T("n", 29, low=-9, high=9), n=(11, 7, 1), atol=0, rtol=0)]
_TIES = (1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8 - 2**-20, 3.4e38, -3.4e38, 3.38e38, 0.0, -0.0, INFINITE, -INFINITE)
CASES += [case("webpte.round_bf16", T(10, make=among(*_TIES)), atol=0, rtol=0)]
CASES += [c for mode in ("none", "tanh") for c in _shapes("gelu", -6, 6, mode)]
CASES += [c for c in _shapes("leaky_relu", -3, 3, 0.01)]
CASES += [c for c in _shapes("elu", -6, 6, 1.3, 1, 1)]
CASES += [case("aten.elu.default", T(6, make=among(-INFINITE, -90, -1e-3, 0, 2, INFINITE)), 1.5, 1.25, 0.5)]
CASES += [c for c in _shapes("hardshrink", -1, 1, 0.5)]
CASES += [c for c in _shapes("hardtanh", -3, 3, -1, 1)]
CASES += [c for low, high in [(-0.5, 0.75), (None, 0.5), (-1, None)] for c in _shapes("clamp", -3, 3, low, high)]

# Integers stay integers; functions like sqrt make floats of them.
CASES += [case(f"aten.{name}.default", T("n", 5, dtype="i32", low=-9, high=9), n=(7, 2)) for name in _ANY]
CASES += [case("aten.sqrt.default", T("n", 5, dtype="i32", low=0, high=99), n=(7, 2))]
CASES += [case("aten.sigmoid.default", T("n", dtype="bool"), n=(7, 2))]

# Halves round to even; signs of zero, steps and ends.
CASES += [
    case("aten.round.default", T("n", make=among(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.49, 8388609)), n=(8, 3)),
    case("aten.sign.default", T(5, make=among(-INFINITE, -0.5, 0, 2, INFINITE))),
    case("aten.hardshrink.default", T(5, make=among(-0.1, 0.1, 0.11, 0, -0.11)), 0.1),
    case("aten.hardswish.default", T(6, make=among(-1e30, -3, -2.99, 2.99, 3, 1e30))),
    case("aten.leaky_relu.default", T(4, make=among(-INFINITE, -1, 0, INFINITE)), 0.25),
    case("aten.relu.default", T(4, make=among(-INFINITE, -0.0, 1e-40, INFINITE))),
]
# Large arguments: overflow goes to the right end and nothing becomes NaN.
CASES += [
    case("aten.exp.default", T(7, make=among(-INFINITE, -1e30, -104, 88, 89, 1e30, INFINITE))),
    case("aten.tanh.default", T(7, make=among(-INFINITE, -1e30, -45, 1e-20, 1e-3, 90, INFINITE)), atol=0),
    case("aten.sigmoid.default", T(6, make=among(-INFINITE, -1e30, -90, 90, 1e30, INFINITE))),
    case("aten.erf.default", T(7, make=among(-INFINITE, -9, -1, 1e-20, 0.999999, 1, 9)), atol=0),
    case("aten.silu.default", T(4, make=among(-1e30, -90, 90, 1e30))),
    case("aten.gelu.default", T(6, make=among(-1e15, -30, -6, 6, 30, 1e15)), "none"),
    case("aten.gelu.default", T(6, make=among(-1e15, -30, -6, 6, 30, 1e15)), "tanh"),
    case("aten.log.default", T(5, make=among(0, 1e-30, 1, 1e30, INFINITE))),
    case("aten.rsqrt.default", T(4, make=among(0, 1e-30, 1e30, INFINITE))),
    case("aten.sqrt.default", T(4, make=among(0, 1e-30, 1e30, INFINITE))),
]
# Precision: erf within 1e-6, sin and cos within 5e-7 where rotary tables need them.
CASES += [case("aten.erf.default", T(20011, low=-5, high=5), atol=1e-6, rtol=0)]
CASES += [case("aten.gelu.default", T(20011, low=-5, high=5), "none", atol=1e-6, rtol=1e-6)]
CASES += [case("aten.gelu.default", T(20011, low=-5, high=5), "tanh", atol=1e-6, rtol=1e-6, always=True)]
CASES += [case(f"aten.{name}.default", T(20011, low=-5e4, high=5e4), atol=5e-7, rtol=0) for name in ("sin", "cos")]
CASES += [case("aten.tanh.default", T(20011, low=-1, high=1), atol=0, rtol=2e-6)]
# Bounds: infinite data, infinite and crossed bounds, integers, and what an int64 bound becomes.
CASES += [
    case("aten.clamp.default", T(4, make=among(-INFINITE, -1, 1, INFINITE)), None, 0.5),
    case("aten.clamp.default", T(4, make=among(-INFINITE, -1, 1, INFINITE)), -0.5, INFINITE),
    case("aten.clamp.default", T(7), 1.5, -1.0),
    case("aten.clamp.default", T("n", 5, dtype="i32", low=-9, high=9), -3, 4, n=(7, 2)),
    case("aten.clamp.default", T("n", 5, dtype="i32", low=-9, high=9), 2, None, n=(7, 2)),
    case("aten.clamp.default", T("n", 5, dtype="i32", low=-9, high=9), None, 2**63 - 1, n=(7, 2)),
    case("aten.clamp.default", T("n", 5, dtype="i32", low=-9, high=9), -2.5, 2.5, n=(7, 2)),
    case("aten.hardtanh.default", T("n", 5, low=-9, high=9), 0.0, 6.0, n=(7, 2)),
]

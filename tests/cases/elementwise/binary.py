import numpy as np

from tests.cases.elementwise.unary import INFINITE, among
from tests.support.harness.cases import T, case

SMALL = {"dtype": "i32", "low": -9, "high": 9}
LARGE = T(7, dtype="i32", low=2**30, high=2**31 - 1)
HALF = {"atol": 1e-3, "rtol": 2e-3}
ARITHMETIC: dict[str, tuple[int, ...]] = {"add": (2,), "sub": (3,), "mul": ()}
SHAPES: list[tuple[tuple[T, ...], dict[str, tuple[int, ...]]]] = [
    ((T("n", 29), T("n", 29)), {"n": (11, 7, 1)}),
    ((T("n", 1, 5), T(3, 5)), {"n": (7, 2)}),
    ((T(1, "n"), T("m", 1)), {"n": (7, 2, 5), "m": (11, 3, 1)}),
    ((T(2, 1, 3, 1, 2, 1, 3, 1), T(1, 2, 1, 3, 1, 2, 1, 3)), {}),
    ((T(), T("n")), {"n": (13, 3)}),
    ((T("n", 5, **SMALL), T(5, **SMALL)), {"n": (7, 3, 1)}),
    ((T(70001), T(70001)), {}),
    ((T("n", 5, dtype="f16"), T("n", 1, dtype="f16")), {"n": (7, 3, 1)}),
    # PyTorch's promotion: the higher kind wins; without dims a tensor only adds its kind.
    ((T("n", 5, **SMALL), T(5)), {"n": (7, 3, 1)}),
    ((T("n", 5, dtype="f16"), T("n", 5)), {"n": (7, 3, 1)}),
    ((T("n", dtype="f16"), T(**SMALL)), {"n": (7, 3, 1)}),
]


def _of(*names: str) -> list[str]:
    return [f"aten.{name}" for name in names]


CASES = [
    case(f"aten.{name}.Tensor", *args, *rest, **sizes, **(HALF if any(a.dtype == "f16" for a in args) else {}))
    for name, rest in ARITHMETIC.items()
    for args, sizes in SHAPES
]
CASES += [
    case("aten.rsub.Tensor", T("n", 5), T("n", 1), 3, n=(7, 3, 1)),
    case("aten.add.Tensor", T("n", 5, dtype="bool"), T("n", 5, dtype="bool"), 1, n=(7, 3, 1)),
    case("aten.mul.Tensor", T("n", 5, dtype="bool"), T("n", 5, dtype="bool"), n=(7, 3, 1)),
    case("aten.add.Tensor", T("n", 5, dtype="bool"), T("n", 5, **SMALL), 2, n=(7, 3, 1)),
    case("aten.mul.Tensor", T("n", 5, dtype="bool"), T("n", 5), n=(7, 3, 1)),
    case("aten.mul.Tensor", LARGE, LARGE, atol=0, rtol=0),
]

# A number in place of a tensor: its kind counts, its size does not.
for _name, *_rest in [("add", 2), ("sub", 2), ("rsub", 2), ("mul",), ("div",)]:
    CASES += [
        case(f"aten.{_name}.Scalar", T("n", 5), 1.5, *_rest, n=(7, 3, 1)),
        case(f"aten.{_name}.Scalar", T("n", 5, **SMALL), 3, *_rest, n=(7, 3, 1)),
        case(f"aten.{_name}.Scalar", T("n", 5, **SMALL), 0.5, *_rest, n=(7, 3, 1)),
        case(f"aten.{_name}.Scalar", T("n", 5, dtype="f16"), 0.3, *_rest, n=(7, 3, 1), **HALF),
    ]
CASES += [case("aten.mul.Scalar", T("n", 5), float(2**40), n=(7, 3, 1)), case("aten.mul.Scalar", T(3), 2**40)]
CASES += [case("aten.add.Scalar", T(3), -INFINITE, 1)]

# Division. Integers give floats unless rounded; signs; quotients that division alone rounds to the wrong side.
_A, _B = T("n", 5, low=-9, high=9), T("n", 5, low=0.5, high=3)
_I, _J = T("n", 5, **SMALL), T("n", 5, dtype="i32", make=among(1, -2, 3, -4, 5, 7, -1))
CASES += [
    case("aten.div.Tensor", _A, _B, n=(7, 3, 1)),
    case("aten.div.Tensor", T("n", 1, low=-9, high=9), T(5, low=0.5, high=3), n=(7, 3, 1)),
    case("aten.div.Tensor", _I, _J, n=(7, 3, 1)),
    case("aten.div.Tensor", T("n", dtype="f16"), T("n", dtype="f16", low=0.5, high=2), n=(7, 3, 1), **HALF),
    case("aten.div.Tensor", T(3, make=among(1, -2, 3)), T(3, make=among(0, 0, INFINITE))),
]
_TENTHS = (T(6, make=among(1, -1, 6, 0.3, -7, 1e6)), T(6, make=among(0.1, 0.1, 3, 0.1, 2, 0.7)))
for _mode in (None, "floor", "trunc"):
    CASES += [
        case("aten.div.Tensor_mode", _A, _B, _mode, n=(7, 3, 1)),
        case("aten.div.Tensor_mode", _A, T(5, low=-3, high=-0.5), _mode, n=(7, 3, 1)),
        case("aten.div.Tensor_mode", _I, _J, _mode, n=(7, 3, 1)),
        case("aten.div.Tensor_mode", _I, T(low=1.5, high=2), _mode, n=(7, 3, 1)),
        case("aten.div.Scalar_mode", _I, -2, _mode, n=(7, 3, 1)),
        case("aten.div.Scalar_mode", _A, 0.7, _mode, n=(7, 3, 1)),
    ]
_WHOLE = (T(4001, make=lambda d: 3.0 * np.arange(d[0])), T(1, make=among(3)))
CASES += [case("aten.div.Tensor_mode", *_WHOLE, mode, atol=0, rtol=0) for mode in ("floor", "trunc")]
for _name in _of("floor_divide.default", "remainder.Tensor", "fmod.Tensor"):
    CASES += [
        case(_name, _A, _B, n=(7, 3, 1)),
        case(_name, _A, T(5, low=-3, high=-0.5), n=(7, 3, 1)),
        case(_name, _I, _J, n=(7, 3, 1)),
        case(_name, *_TENTHS, atol=0, rtol=1e-6),
        case(_name, T(2003, low=-1e6, high=1e6), T(2003, low=1e-3, high=9), atol=0, rtol=1e-6),
    ]
for _name in _of("floor_divide.Scalar", "remainder.Scalar", "fmod.Scalar"):
    CASES += [case(_name, _A, 0.7, n=(7, 3, 1)), case(_name, _I, -4, n=(7, 3, 1)), case(_name, _I, 2.5, n=(7, 3, 1))]
_EXTREME = (
    T(7, make=among(3e38, 1e-40, -3e38, 5, 1.5e-39, 0, 2**-120 * (1 + 2**-22))),
    T(7, make=among(1e-30, 3e-41, 7, INFINITE, 1e-45, 3, 2**-124)),
)
CASES += [case("aten.fmod.Tensor", *_EXTREME, atol=0, rtol=0)]
CASES += [
    case("aten.remainder.Scalar_Tensor", 7.5, _B, n=(7, 3, 1)),
    case("aten.remainder.Scalar_Tensor", -7, _J, n=(7, 3, 1)),
]

# Minimum and maximum: infinities count.
_ENDS = (T(4, make=among(-INFINITE, INFINITE, 1, -0.0)), T(4, make=among(1, 1, -INFINITE, 3)))
for _name in _of("minimum.default", "maximum.default"):
    CASES += [
        case(_name, T("n", 29), T("n", 29), n=(11, 7, 1)),
        case(_name, T("n", 5), T(5), n=(7, 3, 1)),
        case(_name, T("n", 5, **SMALL), T("n", 1, **SMALL), n=(7, 3, 1)),
        case(_name, T("n", 5, dtype="f16"), T("n", 5, dtype="f16"), n=(7, 3, 1)),
        case(_name, T("n", 5, dtype="bool"), T("n", 5, dtype="bool"), n=(7, 3, 1)),
        case(_name, *_ENDS),
    ]

# Powers: negative bases with whole exponents, zero, one, fractions, roots, large results.
_BASES = T("n", make=among(-2, -1.5, -1, 0, 0.5, 1, 3))
CASES += [case("aten.pow.Tensor_Scalar", _BASES, e, n=(7, 3, 1)) for e in (0, 1, 2, 3, 2.0, 7, 65.0, 101)]
CASES += [
    case("aten.pow.Tensor_Scalar", T("n", 5, low=0.01, high=9), e, n=(7, 3, 1))
    for e in (-3, -1.0, -0.5, 0.5, 0.3, 2.7, -1.3, 33.3)
]
CASES += [
    case("aten.pow.Tensor_Scalar", T("n", 5, dtype="f16", low=0.5, high=3), 2.5, n=(7, 3, 1), **HALF),
    case("aten.pow.Tensor_Scalar", T("n", 5, **SMALL), 3, n=(7, 3, 1)),
    case("aten.pow.Tensor_Scalar", T("n", 5, dtype="i32", low=0, high=9), 0.5, n=(7, 3, 1)),
    case("aten.pow.Tensor_Scalar", T(4, make=among(0, -INFINITE, INFINITE, 2)), 3),
    case("aten.pow.Tensor_Scalar", T(3, make=among(0, 2, INFINITE)), -0.7),
    case("aten.pow.Tensor_Tensor", T("n", 5, low=0.1, high=5), T("n", 5, low=-3, high=3), n=(7, 3, 1)),
    case("aten.pow.Tensor_Tensor", T("n", 1, low=-5, high=5), T(5, make=among(-2, -1, 0, 2, 3)), n=(7, 3, 1)),
    case("aten.pow.Tensor_Tensor", T("n", 5, **SMALL), T(5, dtype="i32", make=among(0, 1, 2, 9, 13)), n=(7, 3, 1)),
    case(
        "aten.pow.Tensor_Tensor", T(6, dtype="i32", make=among(1, -1, -1, 2, 7, -3)), T(6, dtype="i32", low=-3, high=-3)
    ),
    case(
        "aten.pow.Tensor_Tensor",
        T(6, make=among(1e30, 1.9, 0.5, 1.0001, 1e-30, 2.5)),
        T(6, make=among(1.27, 130, -127.5, 1e4, -1.2, 96.78)),
        rtol=2e-5,
    ),
    case(
        "aten.pow.Tensor_Tensor",
        T(4, make=among(0.5, 2, -0.5, 1)),
        T(4, make=among(INFINITE, -INFINITE, -INFINITE, INFINITE)),
    ),
    case("aten.pow.Scalar", 2.0, T("n", 5, low=-9, high=9), n=(7, 3, 1)),
    case("aten.pow.Scalar", -3, T("n", 5, dtype="i32", low=0, high=9), n=(7, 3, 1)),
    case("aten.pow.Scalar", 10000.0, T("n", low=-1, high=0), n=(7, 3, 1)),
]

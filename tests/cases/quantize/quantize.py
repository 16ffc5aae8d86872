"""Codes are compared exactly. Sizes leave words partly filled; values lie beyond what codes can hold, and on ties."""

import numpy as np

from tests.support.harness.cases import T, case

OPS = "quantized_decomposed."
U8, I8, I32 = 0, 1, 3  # PyTorch's numbers for the dtypes
SIGNED, NARROW, UNSIGNED = (-128, 127, I8), (-127, 127, I8), (0, 255, U8)
HALF = {"atol": 2e-3, "rtol": 2e-3}


def halves(dims):
    """Multiples of 1/2: with a scale of 1 every other one is a tie."""
    return (np.arange(int(np.prod(dims))) - 40).reshape(dims) / 2


def edges(dims):
    """Nothing, hardly anything, and far more than fits."""
    return np.resize([0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, 3e38, -3e38, 0.4999, -0.5001], dims)


def codes(*dims, dtype="i8", **options):
    low, high = {"i8": (-128, 127), "u8": (0, 255), "i32": (-100000, 100000)}[dtype]
    return T(*dims, dtype=dtype, low=low, high=high, **options)


def scales(*dims, **options):
    return T(*dims, low=0.01, high=0.1, **options)


def zeros(*dims, **options):
    return T(*dims, dtype="i32", low=-20, high=20, **options)


PER_TENSOR = [
    *(
        case(OPS + "quantize_per_tensor.default", T("n", 7), 0.02, zero, *limits, n=(11, 7, 2, 1))
        for zero, limits in ((0, SIGNED), (-128, SIGNED), (17, NARROW), (128, UNSIGNED), (3, (-8, 7, I8)))
    ),
    case(OPS + "quantize_per_tensor.default", T(low=-3, high=3), 0.02, 3, *SIGNED),
    case(OPS + "quantize_per_tensor.default", T("n"), 0.0157, -3, -128, 127, None, n=(1031, 4, 3, 2, 1)),
    case(OPS + "quantize_per_tensor.default", T("n", make=halves), 1.0, 1, *SIGNED, n=(83, 61, 3)),
    case(OPS + "quantize_per_tensor.default", T("n", make=halves), 0.5, 128, *UNSIGNED, n=(83, 61, 3)),
    case(OPS + "quantize_per_tensor.default", T("n", make=edges), 0.1, 5, *SIGNED, n=(83, 61, 3)),
    case(OPS + "quantize_per_tensor.default", T(2, "b", 3, "n", 5, dtype="f16"), 0.02, -7, *SIGNED, b=(3, 2), n=(7, 2)),
    case(OPS + "quantize_per_tensor.default", T(1, 2, 1, 2, "n", 3, 1, 2), 0.02, -7, *SIGNED, n=(5, 3, 1)),
    case(OPS + "quantize_per_tensor.default", T("n", 3), 1e-4, 0, -(2**31), 2**31 - 1, I32, n=(7, 4, 1)),
    *(
        case(OPS + "quantize_per_tensor.tensor", T("n", 7), scales(*dims), zeros(*dims), *limits, n=(11, 7, 2))
        for dims, limits in (((1,), SIGNED), ((), NARROW), ((1,), UNSIGNED))
    ),
    case(OPS + "quantize_per_tensor.tensor", T("n", dtype="f16"), scales(1, dtype="f16"), zeros(1), *SIGNED, n=(9, 6)),
    *(
        case(
            OPS + "dequantize_per_tensor.default",
            codes("n", 7, dtype=dtype),
            0.02,
            zero,
            0,
            0,
            None,
            None,
            n=(11, 6, 1),
        )
        for dtype, zero in (("i8", 0), ("i8", -128), ("u8", 127), ("i32", -5))
    ),
    case(OPS + "dequantize_per_tensor.default", codes(), 0.02, 3, -128, 127, I8, None),
    case(OPS + "dequantize_per_tensor.default", codes("n"), 0.0157, 3, -128, 127, I8, None, n=(1031, 5, 4, 3, 2, 1)),
    case(OPS + "dequantize_per_tensor.default", codes("n", 5), 0.02, 3, -128, 127, I8, 5, n=(7, 3), **HALF),
    case(
        OPS + "dequantize_per_tensor.default", codes(2, 1, 2, 1, "n", 3, 1, 2), 0.02, 3, -128, 127, I8, None, n=(5, 3)
    ),
    *(
        case(
            OPS + "dequantize_per_tensor.tensor",
            codes("n", 7, dtype=dtype),
            scales(1),
            zeros(1),
            0,
            0,
            None,
            None,
            n=(11, 6),
        )
        for dtype in ("i8", "u8", "i32")
    ),
    case(OPS + "dequantize_per_tensor.tensor", codes(5, "n"), scales(), zeros(), -128, 127, I8, None, n=(7, 3, 1)),
]

CHANNEL = OPS + "quantize_per_channel.default"
BACK = OPS + "dequantize_per_channel.default"
PER_CHANNEL = [
    case(CHANNEL, T(5, "n", 3), scales(5), zeros(5), 0, *SIGNED, n=(7, 4, 1)),
    case(CHANNEL, T(5, "n", 3), scales("n"), zeros("n"), 1, *UNSIGNED, n=(7, 4, 1)),
    case(CHANNEL, T(5, "n", 3), scales(3), zeros(3), -1, *NARROW, n=(7, 4, 1)),
    case(
        CHANNEL, T("b", 6, "n", 5), scales(6, constant=True), zeros(6, constant=True), 1, *SIGNED, b=(3, 2, 1), n=(7, 3)
    ),
    case(CHANNEL, T("n", dtype="f16"), scales("n"), zeros("n"), 0, *SIGNED, n=(13, 6, 1)),
    case(BACK, codes(5, "n", 3), scales(5), zeros(5), 0, -128, 127, I8, None, n=(7, 4, 1)),
    case(BACK, codes(5, "n", 3), scales(5), None, 0, -128, 127, I8, None, n=(7, 4, 1)),
    case(BACK, codes(5, "n", 3, dtype="u8"), scales("n"), zeros("n"), -2, 0, 255, U8, None, n=(7, 4, 1)),
    case(BACK, codes("n", 6, 3), scales(3, dtype="f16"), zeros(3), 2, -128, 127, I8, 5, n=(7, 4, 1), **HALF),
    case(BACK, codes("n", 5, dtype="i32"), scales("n"), zeros("n"), 0, 0, 0, I32, None, n=(7, 4, 1)),
    case(
        BACK,
        codes(7, 5, 3, 2, constant=True),
        scales(7, constant=True),
        zeros(7, constant=True),
        0,
        -127,
        127,
        I8,
        None,
    ),
]

TOKEN = OPS + "quantize_per_token.default"
UNTOKEN = OPS + "dequantize_per_token.default"


def ones(dims):
    return np.ones(dims)


PER_TOKEN = [
    case(TOKEN, T("n", 7), scales("n", 1), zeros("n", 1), *SIGNED, n=(11, 4, 1)),
    case(TOKEN, T(2, "n", 5), scales(2, "n", 1), zeros(2, "n", 1), *UNSIGNED, n=(11, 4, 1)),
    case(TOKEN, T("n", 8), scales("n"), zeros("n"), *SIGNED, n=(11, 4, 1)),
    # An odd zero point sends ties the other way than in every other op: it is added before rounding.
    case(TOKEN, T("n", 83, make=halves), T("n", 1, make=ones), zeros("n", 1), *SIGNED, n=(3, 2, 1)),
    case(TOKEN, T("n", 7, dtype="f16"), scales("n", 1), T("n", 1, low=-9, high=9), *SIGNED, n=(11, 4)),
    case(UNTOKEN, codes("n", 7), scales("n", 1), zeros("n", 1), -128, 127, I8, 6, n=(11, 4, 1)),
    case(UNTOKEN, codes(2, "n", 5, dtype="u8"), scales(2, "n", 1), zeros(2, "n", 1), 0, 255, U8, None, n=(11, 4, 1)),
    case(
        UNTOKEN, codes("n", 8), scales("n"), T("n", dtype="i8", low=-9, high=9), -128, 127, I8, 5, n=(11, 4, 1), **HALF
    ),
]

CHOOSE = OPS + "choose_qparams.tensor"
CHOOSE_TOKEN = OPS + "choose_qparams_per_token_asymmetric.default"
EPS = 1.1920928955078125e-07
EXACT = {"atol": 0, "rtol": 1e-7}


def nearly_nothing(dims):
    return np.random.default_rng(1).uniform(-1e-9, 1e-9, dims)


def positive(dims):
    return np.random.default_rng(2).uniform(1, 2, dims)


def negative(dims):
    return -positive(dims)


CHOOSING = [
    case(CHOOSE, T("n", 7), -128, 127, EPS, I8, n=(11, 4, 1), **EXACT),
    case(CHOOSE, T("n"), 0, 255, 1e-5, U8, n=(4099, 1031, 257, 2, 1), **EXACT),
    case(CHOOSE, T(3, "n"), -127, 127, EPS, None, n=(70001, 50, 1), **EXACT),
    case(CHOOSE, T("n", 5, dtype="f16"), -128, 127, EPS, I8, n=(9, 4), **EXACT),
    case(CHOOSE, T(), -128, 127, EPS, I8, **EXACT),
    *(
        case(CHOOSE, T("n", 5, make=make), -128, 127, EPS, I8, n=(9, 4, 1), **EXACT)
        for make in (nearly_nothing, positive, negative)
    ),
    case(CHOOSE_TOKEN, T("n", 7), I8, n=(11, 4, 1), **EXACT),
    case(CHOOSE_TOKEN, T(2, "n", 1031), I8, n=(5, 3, 1), **EXACT),
    case(CHOOSE_TOKEN, T(2, 3, "n"), None, n=(600, 5, 1), **EXACT),
    case(CHOOSE_TOKEN, T("n", 5, dtype="f16"), I8, n=(9, 4), **EXACT),
    *(
        case(CHOOSE_TOKEN, T("n", 5, make=make), I8, n=(9, 4, 1), **EXACT)
        for make in (nearly_nothing, positive, negative)
    ),
]


def permuted(x, dims, zero=-7, limits=SIGNED, **options):
    return case("webpte.permuted_quantize", x, 0.02, zero, *limits, list(dims), **options)


def permuted_back(x, dims, dtype=None, **options):
    return case("webpte.permuted_dequantize", x, 0.02, 3, -128, 127, I8, dtype, list(dims), **options)


IMAGE = {"b": (3, 2, 1), "h": (7, 5, 1), "w": (5, 3, 1)}
PERMUTED = [
    permuted(T("b", 3, "h", "w"), (0, 2, 3, 1), **IMAGE),
    permuted(T("b", 4, "h", "w", dtype="f16"), (0, -2, -1, 1), **IMAGE),
    permuted(T("n", 7), (1, 0), 128, UNSIGNED, n=(11, 3, 1)),
    permuted(T("n", 5, 3), (0, 1, 2), 0, (-(2**31), 2**31 - 1, I32), n=(7, 4, 1)),
    permuted(T(1, 1, 1), (2, 0, 1)),
    permuted(T(2, 1, 2, 1, "n", 3, 1, 2), (7, 5, 4, 2, 0, 1, 3, 6), n=(5, 3, 1)),
    permuted_back(codes("b", "h", "w", 3), (0, 3, 1, 2), **IMAGE),
    permuted_back(codes("b", "h", "w", 4), (0, 3, 1, 2), 5, **IMAGE, **HALF),
    permuted_back(codes("n", 7, dtype="u8"), (1, 0), n=(11, 3, 1)),
    permuted_back(codes("n", 5, 3, dtype="i32"), (2, 0, 1), n=(7, 4, 1)),
    permuted_back(codes(2, 1, 2, 1, "n", 3, 1, 2), (7, 5, 4, 2, 0, 1, 3, 6), n=(5, 3, 1)),
]

CASES = PER_TENSOR + PERMUTED + PER_CHANNEL + PER_TOKEN + CHOOSING

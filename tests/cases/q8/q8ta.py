"""Codes are compared exactly. Every product has a size at which words of output span channels or rows."""

import dataclasses
import math

import numpy as np

from tests.support.harness.cases import T, case

ET = "et_vk."


def codes(*dims, **options):
    return T(*dims, dtype="i8", low=-128, high=127, **options)


def padded(count):
    """The exporter pads what there is one of per channel, and rows of weights, to a multiple of 4."""
    return -(-count // 4) * 4


def per_channel(count, biased, dtype="f32"):
    """Sums (not looked at), scales and bias."""
    size = padded(count)
    sums = T(size, dtype="i32", constant=True)
    scales = T(size, low=0.002, high=0.01, dtype=dtype, constant=True)
    return sums, scales, T(size, low=-1, high=1, dtype=dtype, constant=True) if biased else None


def spread(terms):
    """Return a scale by which sums of that many products fill the range of codes, and some of them leave it."""
    return 0.016 * math.sqrt(terms)


def linear(x, columns, *, zero=9, out_zero=-5, biased=True, activation="none", op="q8ta_linear", dtype="f32", **sizes):
    inner = x[-1]
    sums, scales, bias = per_channel(columns, biased, dtype)
    inputs = (codes(*x), 0.02, zero, codes(columns, inner, constant=True), sums, scales)
    return case(f"{ET}{op}.default", *inputs, spread(inner), out_zero, bias, activation, **sizes)


def extreme(value):
    return lambda dims: np.full(dims, value)


# 1100 products of -128 and 127 need more bits than an f32 has.
WIDE = (
    T("m", 1100, dtype="i8", make=extreme(-128)),
    0.02,
    127,
    T(4, 1100, dtype="i8", make=extreme(-127), constant=True),
    *per_channel(4, False)[:2],
)

LINEARS = [
    linear(("m", 16), 8, m=(11, 6, 1)),
    linear(("m", 16), 8, biased=False, activation="relu", m=(11, 6, 1)),
    linear(("m", 16), 10, m=(11, 6, 1)),  # words span rows
    linear(("m", 16), 10, biased=False, activation="relu", m=(11, 6, 1)),
    linear(("m", 13), 8, m=(11, 6, 1)),  # rows span words
    linear(("m", 13), 7, activation="relu", m=(11, 6, 1)),
    linear(("b", "m", 20), 12, zero=-128, out_zero=127, b=(3, 2, 1), m=(7, 4, 1)),
    linear(("b", 2, "m", 20), 3, zero=127, out_zero=-128, activation="relu", b=(3, 2, 1), m=(7, 4, 1)),
    linear((20,), 12, op="q8ta_linear_gemv"),
    linear((20,), 5, op="q8ta_linear_gemv", activation="relu"),
    linear((1, 68), 36, op="q8ta_linear_gemv", biased=False),
    linear(("m", 68), 67, op="q8ta_linear_gemv", m=(3, 2, 1)),
    linear(("m", 16), 8, dtype="f16", m=(5, 3)),
    linear(("m", 16), 1, m=(5, 3, 1)),
    linear(("m", 4), 4, m=(67, 33, 2)),
    linear(("m", 260), 132, m=(19, 5)),
    case(f"{ET}q8ta_linear.default", *WIDE, 3e3, 3, None, "none", m=(5, 3, 1)),
]


def float_linear(x, columns, *, biased=True, dtype="f32", floats=False, **sizes):
    """`floats` if the input is not quantized yet, as before ExecuTorch 1.2."""
    sums, scales, bias = per_channel(columns, biased, dtype)
    inputs = (
        T(*x, low=-3, high=3) if floats else codes(*x),
        0.02,
        9,
        codes(columns, x[-1], constant=True),
        sums,
        scales,
        bias,
    )
    return case(f"{ET}linear_q8ta_q8csw.default", *inputs, atol=1e-6, rtol=1e-6, **sizes)


FLOAT_LINEARS = [
    float_linear(("m", 16), 8, m=(11, 6, 1)),
    float_linear(("m", 16), 8, biased=False, m=(11, 6, 1)),
    float_linear(("m", 16), 10, m=(11, 6, 1)),
    float_linear(("m", 13), 8, biased=False, m=(11, 6, 1)),
    float_linear(("b", "m", 36), 20, b=(3, 2, 1), m=(7, 4, 1)),
    float_linear((16,), 8),
    float_linear(("m", 16), 8, floats=True, m=(11, 6, 1)),
    float_linear(("m", 13), 7, floats=True, biased=False, m=(11, 6, 1)),
    case(f"{ET}linear_q8ta_q8csw.default", *WIDE, None, rtol=1e-6, m=(5, 3, 1)),
]


def conv(
    x, channels, kernel, *, s=(1, 1), p=(0, 0), d=(1, 1), groups=1, zero=9, out_zero=-5, biased=True,
    activation="none", op="q8ta_conv2d", o=None, dtype="f32", **sizes
):  # fmt: skip
    depth = x[-3] // groups
    terms = math.prod(kernel) * depth
    rows = (*kernel, channels) if op == "q8ta_conv2d_dw" else (channels, padded(terms))
    sums, scales, bias = per_channel(channels, biased, dtype)
    quantized = (codes(*x), 0.02, zero, codes(*rows, constant=True), sums, scales, spread(terms), out_zero, bias)
    lists = [list(kernel), list(s), list(p), *([list(o)] if o is not None else []), list(d)]
    return case(f"{ET}{op}.default", *quantized, *lists, groups, activation, **sizes)


SAME = {"p": (1, 1), "h": (8, 7, 3, 1), "w": (8, 5, 3, 1)}
PLAIN = [
    conv((1, 4, "h", "w"), 8, (3, 3), **SAME),
    conv((1, 3, "h", "w"), 8, (3, 3), biased=False, activation="relu", **SAME),
    conv(("b", 5, "h", "w"), 6, (3, 3), b=(3, 2, 1), h=(9, 6, 3), w=(10, 5, 4)),
    conv(
        ("b", 5, "h", "w"), 7, (3, 2), zero=-128, out_zero=127, s=(2, 1), p=(1, 0), b=(2, 1), h=(9, 6, 3), w=(10, 5, 4)
    ),
    conv(
        (2, 4, "h", "w"), 5, (3, 3), s=(2, 2), p=(2, 1), d=(2, 3), zero=127, out_zero=-128, h=(12, 7, 5), w=(11, 9, 7)
    ),
    conv((1, 8, "h", "w"), 8, (3, 3), groups=2, activation="relu", **SAME),
    conv((1, 8, "h", "w"), 16, (3, 1), groups=4, p=(1, 0), h=(8, 5, 2), w=(7, 4, 1)),
    conv((2, 6, "h", "w"), 6, (2, 2), groups=3, h=(9, 5, 2), w=(9, 5, 2)),  # two channels per group, in words of four
    conv((2, 4, "h", "w"), 16, (3, 3), groups=4, **SAME),  # depthwise with a multiplier
    conv((4, "h", "w"), 4, (3, 3), **SAME),  # unbatched
    conv((1, 3, "h", "w"), 9, (7, 7), s=(2, 2), p=(3, 3), activation="relu", h=(31, 16, 7), w=(29, 13, 4)),
    conv((1, 4, "h", "w"), 8, (1, 1), s=(2, 2), h=(7, 4, 1), w=(8, 5, 1)),
    conv((1, 4, "h", "w"), 8, (1, 1), p=(1, 1), h=(6, 4, 1), w=(8, 5, 1)),
    conv((1, 4, "h", "w"), 5, (3, 3), dtype="f16", **SAME),
]


def float_conv(x, channels, kernel, *, s=(1, 1), p=(0, 0), groups=1, biased=True, dtype="f32", **sizes):
    """ExecuTorch 1.0's convolution, from floats to floats."""
    rows = (channels, padded(math.prod(kernel) * x[-3] // groups))
    sums, scales, bias = per_channel(channels, biased)
    quantized = (T(*x, low=-3, high=3, dtype=dtype), 0.02, 9, codes(*rows, constant=True), sums, scales, bias)
    shape = ([*kernel], [*s], [*p], [1, 1], groups)
    tolerance = {"atol": 1e-6, "rtol": 1e-6} if dtype == "f32" else {"atol": 1e-2, "rtol": 1e-3}
    return case(f"{ET}conv2d_q8ta_q8csw.default", *quantized, *shape, **tolerance, **sizes)


FLOAT_CONVOLUTIONS = [
    float_conv((1, 4, "h", "w"), 8, (3, 3), **SAME),
    float_conv(("b", 3, "h", "w"), 7, (3, 2), s=(2, 1), p=(1, 0), biased=False, b=(2, 1), h=(9, 6, 3), w=(10, 5, 4)),
    float_conv((1, 8, "h", "w"), 8, (3, 3), groups=8, **SAME),  # depthwise, with a row for each channel
    float_conv((1, 4, "h", "w"), 8, (1, 1), h=(6, 4, 1), w=(8, 5, 1)),
    float_conv((1, 4, "h", "w"), 8, (3, 3), dtype="f16", **SAME),
]


HW = {"h": (6, 4, 3, 1), "w": (8, 5, 3, 1)}
POINTWISE = [
    conv((1, 4, "h", "w"), 8, (1, 1), op="q8ta_conv2d_pw", **HW),
    conv((1, 7, "h", "w"), 5, (1, 1), op="q8ta_conv2d_pw", biased=False, **HW),
    conv(("b", 9, "h", "w"), 11, (1, 1), op="q8ta_conv2d_pw", zero=-128, activation="relu", b=(3, 2, 1, 1), **HW),
    conv((2, 8, "h", "w"), 8, (1, 1), op="q8ta_conv2d_pw", groups=2, out_zero=-128, activation="relu", **HW),
    conv((2, 6, "h", "w"), 6, (1, 1), op="q8ta_conv2d_pw", groups=3, **HW),
    conv((8, "h", "w"), 3, (1, 1), op="q8ta_conv2d_pw", **HW),
    conv((1, 67, "h", "w"), 33, (1, 1), op="q8ta_conv2d_pw", **HW),
]

DEPTHWISE = [
    conv((1, 8, "h", "w"), 8, (3, 3), op="q8ta_conv2d_dw", groups=8, **SAME),
    conv((1, 4, "h", "w"), 4, (3, 3), op="q8ta_conv2d_dw", groups=4, biased=False, activation="relu", **SAME),
    conv(
        ("b", 12, "h", "w"),
        12,
        (5, 3),
        op="q8ta_conv2d_dw",
        groups=12,
        s=(2, 1),
        p=(2, 1),
        zero=-128,
        b=(2, 1),
        h=(9, 6, 1),
        w=(7, 4, 1),
    ),
    conv((2, 8, "h", "w"), 8, (3, 3), op="q8ta_conv2d_dw", groups=8, d=(2, 3), out_zero=127, h=(9, 6, 5), w=(11, 9, 7)),
    conv((2, 5, "h", "w"), 5, (2, 3), op="q8ta_conv2d_dw", groups=5, activation="relu", h=(9, 6, 2), w=(7, 6, 3)),
    conv((8, "h", "w"), 8, (3, 3), op="q8ta_conv2d_dw", groups=8, **SAME),
]

TRANSPOSED = [
    conv((1, 8, "h", "w"), 8, (2, 2), op="q8ta_conv2d_transposed", s=(2, 2), o=(0, 0), h=(5, 3, 1), w=(7, 4, 1)),
    conv(
        (1, 3, "h", "w"),
        6,
        (3, 3),
        op="q8ta_conv2d_transposed",
        s=(2, 2),
        p=(1, 1),
        o=(1, 1),
        biased=False,
        activation="relu",
        h=(5, 3, 1),
        w=(7, 4, 1),
    ),
    conv(
        ("b", 5, "h", "w"),
        7,
        (4, 3),
        op="q8ta_conv2d_transposed",
        s=(3, 2),
        p=(1, 0),
        o=(2, 0),
        zero=-128,
        b=(3, 2, 1),
        h=(5, 3, 1),
        w=(7, 4, 1),
    ),
    conv(
        (2, 4, "h", "w"),
        5,
        (2, 2),
        op="q8ta_conv2d_transposed",
        s=(4, 3),
        p=(0, 1),
        o=(0, 0),
        out_zero=127,
        h=(5, 3, 1),
        w=(7, 4, 2),
    ),  # pixels without taps
    conv(
        (2, 8, "h", "w"), 8, (3, 3), op="q8ta_conv2d_transposed", o=(0, 0), d=(2, 1), groups=2, h=(5, 3, 1), w=(7, 4, 1)
    ),
    conv((4, "h", "w"), 4, (3, 3), op="q8ta_conv2d_transposed", o=(0, 0), h=(6, 3, 1), w=(6, 4, 1)),
]

ADD, RELU, SHUFFLE = f"{ET}q8ta_add.default", f"{ET}q8ta_relu.default", f"{ET}q8ta_pixel_shuffle.default"
QPARAMS = (0.05, -3, 0.031, 7, 0.06, -11)


def all_codes(dims):
    return np.resize(np.arange(-128, 128), dims)


def reversed_codes(dims):
    return np.resize(np.arange(127, -129, -1), dims)


ELEMENTWISE = [
    case(ADD, codes("n", 7), codes("n", 7), *QPARAMS, 1.0, n=(11, 7, 3, 1)),
    case(ADD, codes("n", 8), codes("n", 8), *QPARAMS, 1, n=(11, 7, 1)),  # the exporter also writes an integer
    case(ADD, codes("n", 7), codes("n", 7), *QPARAMS, -2.5, n=(11, 7, 1)),
    case(ADD, codes("n", 3, 5), codes(), *QPARAMS, 1.0, n=(11, 7, 1)),
    case(ADD, codes(3, 1), codes("n", 1, 5), *QPARAMS, 1.0, n=(11, 7, 1)),
    case(ADD, codes(2, "c", "n", 5), codes("c", 1, 1), *QPARAMS, 0.5, c=(4, 3), n=(7, 3, 1)),
    case(
        ADD,
        T("n", 256, dtype="i8", make=all_codes),
        T("n", 256, dtype="i8", make=reversed_codes),
        0.5,
        1,
        0.25,
        -2,
        0.5,
        3,
        1.0,
        n=(3, 2, 1),
    ),  # ties
    case(ADD, codes(), codes(), *QPARAMS, 1.0),
    case(ADD, codes("n"), codes("n"), 0.05, -128, 0.05, -128, 0.05, -128, 1.0, n=(1031, 5, 4, 3, 2, 1)),
    case(RELU, codes("n", 7), 0.05, -3, 0.05, -3, n=(11, 7, 3, 1)),
    case(RELU, codes("n", 7), 0.05, 9, 0.02, -128, n=(11, 7, 1)),
    case(RELU, codes(2, 3, "h", "w"), 0.05, 0, 0.1, 127, h=(5, 3), w=(7, 2, 1)),
    case(RELU, T("n", 256, dtype="i8", make=all_codes), 0.5, 1, 1.0, -3, n=(3, 2, 1)),  # ties
    case(RELU, codes("n"), 0.05, 100, 0.01, -128, n=(1031, 5, 4, 3, 2, 1)),
    case(RELU, codes(), 0.05, -3, 0.05, -3),
    case(SHUFFLE, codes(1, 4, "h", "w"), 0.05, -3, 1 / 0.05, -3, 2, h=(5, 3, 1), w=(7, 2, 1)),
    case(SHUFFLE, codes("b", 9, "h", "w"), 0.05, -3, 1 / 0.03, 8, 3, b=(3, 2, 1), h=(5, 3, 1), w=(7, 2, 1)),
    case(SHUFFLE, codes(8, "h", "w"), 0.05, 0, 1 / 0.07, -128, 2, h=(5, 3, 1), w=(7, 2, 1)),
    case(SHUFFLE, codes(2, 3, 5, "w"), 0.05, 0, 1 / 0.07, -128, 1, w=(7, 2, 1)),
]

# Codes that are moved about and not looked at.
BYTES = [
    *(
        movement
        for dtype in ("i8", "u8")
        for movement in (
            case("aten.permute_copy.default", T("a", 3, "b", dtype=dtype), [2, 0, 1], a=(5, 4, 1), b=(7, 2, 1)),
            case("aten.slice_copy.Tensor", T(3, "n", 5, dtype=dtype), 1, 1, 6, 2, n=(7, 4, 2)),
            case("aten.select_copy.int", T(3, "n", 5, dtype=dtype), 1, -1, n=(7, 4, 2)),
            case("aten.clone.default", T("n", 5, dtype=dtype), None, n=(7, 4, 1)),
            case("aten.view_copy.default", T("n", 6, dtype=dtype), [-1, 3], n=(7, 4, 1)),
            case("aten.pixel_shuffle.default", T(2, 4, "n", 3, dtype=dtype), 2, n=(5, 3, 1)),
        )
    ),
]


def earlier(spec, op):
    """The same call under the name that it has in ExecuTorch 1.1, where convolutions pass no activation."""
    arguments = [argument for argument in spec.args if argument != "none"]
    return dataclasses.replace(spec, op=f"{ET}{op}.default", args=tuple(arguments))


EARLIER = [
    *(earlier(spec, "conv2d_q8ta_q8csw_q8to") for spec in PLAIN if spec.args[-1] == "none"),
    *(earlier(spec, "conv2d_q8ta_q8csw_q8to_dw") for spec in DEPTHWISE if spec.args[-1] == "none"),
    *(earlier(spec, "add_q8ta_q8ta_q8to") for spec in ELEMENTWISE if spec.op == ADD),
]

CASES = LINEARS + FLOAT_LINEARS + PLAIN + FLOAT_CONVOLUTIONS + POINTWISE + DEPTHWISE + TRANSPOSED + ELEMENTWISE + BYTES
CASES += EARLIER

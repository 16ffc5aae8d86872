"""Codes are compared exactly. Sizes are such that words of output span pixels, and words of input span channels."""

import dataclasses
import math

import numpy as np

from tests.support.harness.cases import T, case

MAX_F32 = float(np.finfo(np.float32).max)  # no limit


def codes(*dims, **options):
    return T(*dims, dtype="i8", low=-128, high=127, **options)


def spread(terms):
    """Scales by which sums of that many products fill the range of codes, and some of them leave it."""
    return 0.008 / math.sqrt(terms)


def padded(depth):
    """Random weights (words, channels, 4) whose taps have `depth` codes each, and zeros after them."""

    def make(dims):
        words, channels, _ = dims
        size = -(-depth // 4) * 4
        weights = np.random.default_rng(7).integers(-128, 128, (words * 4 // size, size, channels))
        weights[:, depth:] = 0
        return weights.reshape(words, 4, channels).transpose(0, 2, 1)

    return make


def layer(channels, taps, depth, zero, *, depthwise=False):
    """Weights, scales, bias, and the zero point of the input."""
    if depthwise:
        weights = codes(taps, channels, constant=True)
    else:
        weights = T(taps * -(-depth // 4), channels, 4, dtype="i8", make=padded(depth), constant=True)
    terms = taps * depth
    scales = T(channels, low=spread(terms) / 3, high=spread(terms), constant=True)
    return weights, scales, T(channels, dtype="i32", low=-9000, high=9000, constant=True), zero


def linear(x, channels, *, zero=9, limits=(-5, -128, 127), **sizes):
    return case("webpte.int8_linear", codes(*x), *layer(channels, 1, x[-1], zero), *limits, **sizes)


LINEARS = [
    linear(("m", 16), 8, m=(11, 6, 1)),
    linear(("m", 32), 12, zero=-128, limits=(127, -128, 100), m=(11, 6, 1)),
    linear(("m", 12), 8, limits=(-128, -100, 90), m=(11, 5, 1)),
    linear(("m", 13), 8, m=(11, 6, 1)),  # rows span words
    linear(("m", 16), 7, m=(11, 6, 1)),  # words span rows
    linear(("m", 13), 11, zero=127, m=(11, 6, 1)),
    linear(("b", "m", 20), 12, b=(3, 2, 1), m=(7, 4, 1)),
    linear((48,), 8),
    linear((1, 67), 37),
]


def conv(
    x, channels, kernel, *, s=(1, 1), p=(0, 0, 0, 0), d=(1, 1), o=(0, 0), groups=1, zero=9, limits=(-5, -128, 127),
    transposed=False, **sizes
):  # fmt: skip
    depth = x[-1] // groups
    taps = math.prod(kernel)
    depthwise = depth == 1 and channels == groups and channels % 4 == 0
    constants = layer(channels, taps, depth, zero, depthwise=depthwise)
    geometry = (list(kernel), list(s), list(p), list(d), list(o), transposed, groups)
    return case("webpte.int8_convolution", codes(*x), *constants, *limits, *geometry, **sizes)


SAME = {"p": (1, 1, 1, 1), "h": (8, 7, 3, 1), "w": (8, 5, 3, 1)}
CONVOLUTIONS = [
    conv((1, "h", "w", 4), 8, (3, 3), **SAME),
    conv((1, "h", "w", 16), 8, (3, 3), limits=(3, 3, 127), **SAME),
    conv((1, "h", "w", 3), 8, (3, 3), s=(2, 2), **SAME),
    conv(("b", "h", "w", 5), 7, (3, 2), p=(1, 0, 0, 1), zero=-128, b=(3, 2, 1), h=(9, 6, 3), w=(11, 5, 4)),
    conv((2, "h", "w", 4), 5, (3, 3), s=(2, 2), p=(2, 1, 2, 1), d=(2, 3), zero=127, h=(12, 7, 5), w=(11, 9, 7)),
    conv((1, "h", "w", 8), 8, (3, 3), groups=2, **SAME),
    conv((1, "h", "w", 6), 9, (3, 1), groups=3, p=(1, 0, 1, 0), h=(7, 5, 2), w=(7, 4, 1)),
    conv((1, "h", "w", 32), 16, (3, 3), groups=2, **SAME),
    conv((1, "h", "w", 16), 12, (1, 1), h=(7, 3, 1), w=(7, 2, 1)),
    conv((1, "h", "w", 24), 16, (1, 1), h=(7, 3, 1), w=(7, 2, 1)),
    conv((1, "h", "w", 13), 11, (1, 1), h=(7, 3, 1), w=(7, 2, 1)),
    conv((1, "h", "w", 16), 8, (1, 1), s=(2, 2), h=(7, 3, 1), w=(7, 2, 1)),
    conv((1, "h", "w", 8), 8, (3, 3), groups=8, **SAME),  # for each channel
    conv(("b", "h", "w", 12), 12, (3, 3), groups=12, s=(2, 2), p=(0, 0, 1, 1), b=(2, 1), h=(9, 6, 4), w=(8, 5, 3)),
    conv((1, "h", "w", 7), 7, (3, 3), groups=7, **SAME),
    conv((1, "h", "w", 4), 8, (3, 3), groups=4, **SAME),  # two outputs for each channel
    conv((1, "h", "w", 4), 8, (3, 3), s=(2, 2), p=(1, 1, 1, 1), o=(1, 1), transposed=True, h=(5, 3, 1), w=(6, 2, 1)),
    conv((2, "h", "w", 5), 6, (2, 3), s=(2, 1), p=(0, 1, 1, 0), transposed=True, h=(5, 3, 2), w=(6, 4, 2)),
    conv((1, "h", "w", 8), 8, (3, 3), s=(2, 2), groups=2, transposed=True, h=(5, 3, 1), w=(4, 2, 1)),
    conv((1, "h", "w", 8), 8, (2, 2), s=(2, 2), groups=8, transposed=True, h=(5, 3, 1), w=(4, 2, 1)),
]


def dynamic(x, channels, kernel, *, s=(1, 1), p=(0, 0, 0, 0), d=(1, 1), groups=1, limits=(-MAX_F32, MAX_F32), **sizes):
    taps, depth = math.prod(kernel), x[-1] // groups
    weights, scales, sums, _ = layer(channels, taps, depth, 0)
    bias = T(channels, low=-1, high=1, constant=True)
    ranges = (T(x[0], 1, 1, 1, low=-3, high=-1), T(x[0], 1, 1, 1, low=1, high=3))
    geometry = (list(kernel), list(s), list(p), list(d), [0, 0], False, groups)
    operands = (codes(*x), *ranges, weights, scales, bias, sums)
    tolerance = {"atol": 1e-4, "rtol": 1e-5}
    return case("webpte.int8_dynamic_convolution", *operands, *limits, *geometry, **tolerance, **sizes)


def image_codes(x, dims, **sizes):
    ranges = (T(x[0], 1, 1, 1, low=-3, high=-1), T(x[0], 1, 1, 1, low=1, high=3))
    return case("webpte.int8_image_codes", T(*x, low=-3, high=3), *ranges, list(dims), **sizes)


IMAGES = {"b": (3, 2, 1), "h": (7, 5, 3), "w": (8, 5, 3)}
DYNAMIC = [
    dynamic(("b", "h", "w", 16), 8, (3, 3), p=(1, 1, 1, 1), **IMAGES),
    dynamic(("b", "h", "w", 5), 7, (3, 3), p=(0, 1, 1, 0), s=(2, 1), limits=(0.0, MAX_F32), **IMAGES),
    dynamic(("b", "h", "w", 8), 8, (1, 1), s=(2, 2), limits=(-1.0, 1.0), **IMAGES),
    dynamic(("b", "h", "w", 8), 12, (3, 2), groups=2, **IMAGES),
    dynamic(("b", "h", "w", 4), 5, (1, 1), **IMAGES),
    image_codes(("b", "h", "w", 5), (0, 1, 2, 3), **IMAGES),
    image_codes(("b", 5, "h", "w"), (0, 2, 3, 1), **IMAGES),
]


def added(a, b, /, factors=(700001, -1310719), bias=3 << 19, shift=21, limits=(-5, -128, 127), **sizes):
    return case("webpte.int8_add", codes(*a), codes(*b), *factors, bias, shift, *limits, **sizes)


def multiplied(a, b, /, zeros=(-7, 11), scale=0.011, limits=(-5, -128, 127), **sizes):
    return case("webpte.int8_multiply", codes(*a), codes(*b), *zeros, scale, *limits, **sizes)


PAIRS = [
    (("m", 7), ("m", 7), {"m": (13, 5, 1)}),
    (("m", 3, 5), (5,), {"m": (13, 5, 1)}),
    (("m", 1, 5), (3, 1), {"m": (13, 5, 1)}),
    (("b", "h", 3, 8), ("b", 1, 1, 8), {"b": (3, 2, 1), "h": (5, 3, 1)}),
]
BINARY = [
    *(added(a, b, **sizes) for a, b, sizes in PAIRS),
    added(("m", 11), ("m", 11), limits=(9, 3, 40), m=(13, 5, 1)),
    *(multiplied(a, b, **sizes) for a, b, sizes in PAIRS),
    multiplied(("m", 11), ("m", 11), scale=1 / 128, limits=(9, 3, 40), m=(13, 5, 1)),  # many ties
]


def shuffled(dims):
    return np.random.default_rng(5).permutation(np.arange(-128, 128)).astype(np.int8)


TABLE = T(256, dtype="i8", make=shuffled, constant=True)
TABLES = [
    case("webpte.int8_table", codes("m", 7), TABLE, m=(97, 11, 1)),
    case("webpte.int8_table", codes(3, "m", 4), TABLE, m=(13, 2, 1)),
]


def mean(x, *, zero=9, scale=0.7, limits=(-5, -128, 127), **sizes):
    return case("webpte.int8_mean", codes(*x), zero, scale, *limits, **sizes)


def pool(x, kernel, *, s=(2, 2), p=(0, 0, 0, 0), d=(1, 1), limits=(-128, 127), **sizes):
    return case("webpte.int8_max_pool", codes(*x), list(kernel), list(s), list(p), list(d), *limits, **sizes)


POOLS = [
    mean(("b", "h", "w", 8), b=(3, 2, 1), h=(7, 4, 1), w=(11, 4, 1)),
    mean(("b", "h", "w", 7), scale=1.0, zero=-128, limits=(-7, -100, 99), b=(3, 2, 1), h=(8, 4, 1), w=(13, 4, 1)),
    mean((1, "h", 23, 5), scale=40.0, h=(17, 4)),
    pool(("b", "h", "w", 8), (2, 2), b=(3, 2, 1), h=(8, 5, 2), w=(9, 4, 2)),
    pool((1, "h", "w", 5), (3, 3), p=(1, 0, 1, 1), limits=(-50, 60), h=(8, 5, 2), w=(9, 4, 3)),
    pool((1, "h", "w", 4), (3, 2), s=(1, 2), p=(1, 1, 1, 1), d=(2, 1), h=(8, 5, 3), w=(9, 4, 2)),
]

SUMS = (700001, -1310719, 3 << 19, 21)  # two factors, bias and shift


def with_residual(layer, dims, sums=SUMS, limits=(7, -100, 90)):
    """The same layer, whose codes are added to others."""
    program = f"i8 webpte.int8_add x0 x1 {' '.join(f'n{i}' for i in range(7))}\n= v0"
    return dataclasses.replace(layer, args=(*layer.args, program, [codes(*dims)], [*sums, *limits], None))


POINTS = {"h": (7, 3, 1), "w": (7, 2, 1)}
RESIDUALS = [
    with_residual(linear(("m", 16), 8, m=(11, 6, 1)), ("m", 8)),
    with_residual(linear(("m", 13), 11, zero=127, m=(11, 6, 1)), ("m", 11)),
    with_residual(linear(("b", "m", 20), 12, b=(3, 2, 1), m=(7, 4, 1)), ("b", "m", 12)),
    with_residual(linear((48,), 8), (8,), sums=(1 << 20, 1 << 20, 1 << 19, 20), limits=(0, -128, 127)),
    with_residual(conv((1, "h", "w", 32), 16, (1, 1), **POINTS), (1, "h", "w", 16)),
    with_residual(conv((1, "h", "w", 24), 8, (1, 1), limits=(3, -50, 60), **POINTS), (1, "h", "w", 8)),
    with_residual(conv((1, "h", "w", 13), 11, (1, 1), **POINTS), (1, "h", "w", 11)),
    with_residual(conv((1, "h", "w", 16), 8, (3, 3), **SAME), (1, "h", "w", 8)),
    with_residual(conv((2, "h", "w", 5), 7, (3, 3), zero=-128, **SAME), (2, "h", "w", 7)),
    with_residual(conv((1, "h", "w", 8), 8, (3, 3), groups=2, **SAME), (1, "h", "w", 8)),
    with_residual(conv((1, "h", "w", 8), 8, (3, 3), groups=8, **SAME), (1, "h", "w", 8)),  # for each channel
]

CASES = [*LINEARS, *CONVOLUTIONS, *RESIDUALS, *DYNAMIC, *BINARY, *TABLES, *POOLS]

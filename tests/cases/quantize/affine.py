from collections.abc import Callable

import numpy as np

from tests.support.harness.cases import Sym, T, case

QUANTIZE, DEQUANTIZE = "torchao.quantize_affine.default", "torchao.dequantize_affine.default"
CHOOSE = "torchao.choose_qparams_affine.default"
U8, I8, I32, F16 = 0, 1, 3, 5  # PyTorch's codes of dtypes
EXACT = {"atol": 0, "rtol": 0}
HALF = {"atol": 2e-3, "rtol": 2e-3}


def scale(*dims, **options):
    return T(*dims, low=0.01, high=0.04, **options)


def zero(*dims, dtype="i8", low=-128, high=127):
    return T(*dims, dtype=dtype, low=low, high=high)


def ties(dims):
    """Halves and their neighbors in units of a power of two, which the scale is: they round to even."""
    return (np.arange(np.prod(dims)).reshape(dims) - 40) * 0.5 * 0.03125


def power_of_two(dims):
    return np.full(dims, 0.03125)


# What one scale serves: everything, a row, a channel, a group, a tile.
BLOCKS = [
    (T("n", 12), [1, 12], ("n",), (11, 7, 1)),
    (T(1, "n", 13), [1, 1, 13], (1, "n"), (11, 5, 1)),
    (T(3, 8), [3, 8], (), (1,)),
    (T(5, 7), [1, 7], (5,), (1,)),
    (T("n", 12), [1, 4], ("n", 3), (5, 2)),
    (T("n", 7), [1, 1], ("n", 7), (5, 3, 1)),
    (T(6, 5, 3), [6, 1, 3], (5,), (1,)),
    (T(6, 4, 9), [2, 4, 3], (3, 3), (1,)),
    (T(2, "n", 6), [2, 1, 2], ("n", 3), (5, 4, 1)),
    (T("n"), [1], ("n",), (9, 2)),
    (T(12), [3], (4,), (1,)),
]
QUANTIZED = [
    *(
        case(QUANTIZE, x, block, scale(*own), zero(*own), I8, -128, 127, n=sizes, **EXACT)
        for x, block, own, sizes in BLOCKS
    ),
    case(QUANTIZE, T("n", 12), [1, 12], scale("n"), zero("n"), I8, None, None, n=(11, 7, 1), **EXACT),
    case(QUANTIZE, T("n", 12), [1, 12], scale("n"), None, I8, -8, 7, n=(11, 7, 1), **EXACT),
    case(QUANTIZE, T("n", 7), [1, 7], scale("n"), zero("n", dtype="u8", low=0), U8, 0, 255, n=(5, 3, 1), **EXACT),
    case(QUANTIZE, T("n", 7), [1, 7], scale("n"), zero("n", dtype="i32"), U8, None, None, n=(5, 3, 1), **EXACT),
    case(QUANTIZE, T("n", 7), [1, 7], scale("n"), zero("n", dtype="f32", low=0, high=0), U8, 0, 15, n=(5, 1), **EXACT),
    case(QUANTIZE, T("n", 7), [1, 7], scale("n"), zero("n", dtype="i32"), I32, -300, 300, n=(5, 1), **EXACT),
    case(QUANTIZE, T("n", 7), [1, 7], scale("n"), zero("n", dtype="i32"), I32, None, None, n=(5, 1), **EXACT),
    case(
        QUANTIZE,
        T("n", 7, make=ties),
        [1, 7],
        scale("n", make=power_of_two),
        zero("n"),
        I8,
        -128,
        127,
        n=(11, 5),
        **EXACT,
    ),
    case(
        QUANTIZE, T("n", 8, dtype="f16"), [1, 8], scale("n", dtype="f16"), zero("n"), I8, -128, 127, n=(5, 2), **EXACT
    ),
    case(QUANTIZE, T("n", 4), [Sym("n"), 4], scale(), zero(), I8, -128, 127, n=(5, 3, 1), **EXACT),
    case(QUANTIZE, T("n", 4, low=-1e30, high=1e30), [1, 4], scale("n"), zero("n"), I8, -128, 127, n=(5, 1), **EXACT),
]


def stored(dtype, *dims):
    return T(*dims, dtype=dtype, low=-128 if dtype != "u8" else 0, high=255 if dtype == "u8" else 127)


DEQUANTIZED = [
    *(
        case(DEQUANTIZE, stored("i8", *x.dims), block, scale(*own), zero(*own), I8, -128, 127, None, n=sizes)
        for x, block, own, sizes in BLOCKS
    ),
    case(DEQUANTIZE, stored("i8", "n", 7), [1, 7], scale("n"), None, I8, -8, 7, None, n=(5, 3, 1)),
    case(
        DEQUANTIZE, stored("u8", "n", 7), [1, 7], scale("n"), zero("n", dtype="u8", low=0), U8, 0, 255, 6, n=(5, 3, 1)
    ),
    case(
        DEQUANTIZE, stored("i32", "n", 7), [1, 7], scale("n"), zero("n", dtype="i32"), I32, None, None, None, n=(5, 1)
    ),
    case(
        DEQUANTIZE,
        stored("i8", "n", 7),
        [1, 7],
        scale("n"),
        zero("n", dtype="f32", low=-1, high=1),
        I8,
        None,
        None,
        None,
        n=(5, 1),
    ),
    case(DEQUANTIZE, stored("i8", "n", 8), [1, 8], scale("n"), zero("n"), I8, None, None, F16, n=(5, 2), **HALF),
    case(DEQUANTIZE, stored("i8", "n", 4), [Sym("n"), 4], scale(), zero(), I8, -128, 127, None, n=(5, 3, 1)),
]


def awkward(dims):
    """Rows that are zero, tiny, of one sign, or extreme."""
    rows = np.random.default_rng(7).uniform(-1, 1, dims).astype(np.float32)
    kinds: list[Callable] = [
        np.zeros_like,
        np.abs,
        lambda r: -np.abs(r),
        lambda r: r * 1e-36,
        lambda r: r * 1e-20,
        lambda r: r * 1e30,
    ]
    kinds += [lambda r: r * 0 + 1, lambda r: r * 1e-7]
    flat = rows.reshape(-1, dims[-1])
    return np.stack([kinds[i % len(kinds)](row) for i, row in enumerate(flat)]).reshape(dims)


def choose(x, mapping, block, low=-128, high=127, eps=None, scale_type=None, zero_type=I8, keepdim=False, **sizes):
    options = EXACT if "atol" not in sizes else {}
    return case(CHOOSE, x, mapping, block, None, low, high, eps, scale_type, zero_type, keepdim, **options, **sizes)


MAPPINGS = ("ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR")
CHOSEN = [
    *(choose(T("n", 64), m, [1, 64], n=(31, 5, 4, 3, 1)) for m in MAPPINGS),
    *(choose(T("n", 13, make=awkward), m, [1, 13], n=(19, 8, 1)) for m in MAPPINGS),
    *(choose(T("n", 12), m, [1, 4], -8, 7, zero_type=I32, n=(7, 2)) for m in MAPPINGS),
    choose(T(1, "n", 64), "ASYMMETRIC", [1, 1, 64], n=(31, 7, 1)),
    choose(T(1, "n", 64), "ASYMMETRIC", [1, 1, 64], keepdim=True, n=(31, 7, 1)),
    choose(T("n", 8), "ASYMMETRIC", [1, 8], None, None, n=(6, 1)),
    choose(T("n", 8, make=awkward), "ASYMMETRIC", [1, 8], eps=1e-5, n=(16, 1)),
    choose(T("n", 8), "ASYMMETRIC", [1, 8], 0, 255, zero_type=U8, n=(6, 3, 1)),
    choose(T("n", 8), "ASYMMETRIC", [1, 8], 0, 15, zero_type=I32, n=(6, 3, 1)),
    choose(T("n", 8), "ASYMMETRIC", [1, 8], zero_type=None, n=(6, 3, 1)),
    choose(T("n", 8), "SYMMETRIC", [1, 8], zero_type=None, n=(6, 3, 1)),
    choose(T(5, 7), "ASYMMETRIC", [5, 7]),
    choose(T(5, 7), "ASYMMETRIC", [5, 1]),
    choose(T(4, 6, 3), "ASYMMETRIC", [2, 6, 1]),
    choose(T(4, 6, 3), "SYMMETRIC", [2, 2, 3], keepdim=True),
    choose(T("n", 6), "ASYMMETRIC", [Sym("n"), 6], n=(5, 3, 2)),
    choose(T("n"), "ASYMMETRIC", [1], n=(5, 3)),
    choose(T(2, 3, "n", 16), "ASYMMETRIC", [1, 1, 1, 16], n=(5, 2, 1)),
    choose(T("n", 8, dtype="f16"), "ASYMMETRIC", [1, 8], scale_type=6, n=(6, 3, 1), atol=1e-6),
]

# torchao 0.14, of ExecuTorch 1.0, passes no `keepdim`.
EARLIER = [case(CHOOSE, T("n", 64), "ASYMMETRIC", [1, 64], None, -128, 127, None, None, I8, n=(31, 4, 1), **EXACT)]

CASES = QUANTIZED + DEQUANTIZED + CHOSEN + EARLIER

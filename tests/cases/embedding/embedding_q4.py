import numpy as np

from tests.support.harness.cases import T, case

Q4, BIT4 = "et_vk.embedding_q4gsw.default", "quantized_decomposed.embedding_4bit.dtype"
BIT4_DEFAULT = "quantized_decomposed.embedding_4bit.default"
HALF = {"atol": 2e-3, "rtol": 2e-3}


def codes(rows, row_bytes):
    return T(rows, row_bytes, dtype="u8", low=0, high=255, constant=True)


def scales(*dims, **options):
    return T(*dims, low=0.01, high=0.5, constant=True, **options)


def tokens(*dims, high):
    return T(*dims, dtype="i32", low=0, high=high)


def last(dims):
    return np.full(dims, 36)


PATTERN = [
    case(Q4, codes(37, 32), scales(37, 2), 32, tokens(1, "n", high=36), True, n=(11, 7, 1)),
    case(Q4, codes(37, 32), scales(37, 2), 32, tokens(1, "n", high=36), False, n=(11, 7, 1)),
    case(Q4, codes(37, 64), scales(37, 1), 128, tokens("n", high=36), True, n=(11, 1)),
    case(Q4, codes(37, 64), scales(37), 128, tokens("n", high=36), True, n=(11, 1)),
    case(Q4, codes(37, 16), scales(37, 4), 8, tokens(2, "n", high=36), False, n=(5, 2)),
    case(Q4, codes(37, 16), scales(37, 8), 4, T("n", dtype="i32", make=last), True, n=(5, 1)),
    # Rows that do not start at words, groups that do not start at bytes.
    case(Q4, codes(37, 6), scales(37, 1), 12, tokens("n", high=36), True, n=(5, 1)),
    case(Q4, codes(37, 5), scales(37, 2), 5, tokens("n", 3, high=36), False, n=(5, 1)),
    case(Q4, codes(1, 16), scales(1, 1), 32, tokens(high=0), True),
    case(Q4, codes(1021, 16), scales(1021, 2), 16, tokens(3, 2, "n", high=1020), True, n=(13, 4, 1)),
    case(Q4, codes(37, 32), scales(37, 2, dtype="f16"), 32, tokens("n", high=36), True, n=(7, 1), **HALF),
]
ZEROS = [
    case(BIT4, codes(37, 16), scales(37, 4), None, -8, 7, tokens("n", high=36), None, n=(11, 7, 1)),
    case(BIT4, codes(37, 10), scales(37, 4), None, -8, 7, tokens(1, "n", high=36), None, n=(11, 1)),
    case(BIT4, codes(37, 16), scales(37), None, -8, 7, tokens("n", high=36), 6, n=(11, 1)),
    case(BIT4, codes(37, 16), scales(37, 2), scales(37, 2), -8, 7, tokens("n", high=36), None, n=(11, 7, 1)),
    *(
        case(BIT4, codes(37, 6), scales(37, 3), zeros, -8, 7, tokens(2, "n", high=36), None, n=(5, 3, 1))
        for zeros in (
            T(37, 3, dtype="i8", low=-8, high=7, constant=True),
            T(37, 3, dtype="i32", low=-8, high=7, constant=True),
            T(37, 3, dtype="u8", low=0, high=7, constant=True),
        )
    ),
    case(BIT4, codes(37, 16), scales(37, 2, dtype="f16"), None, -8, 7, tokens("n", high=36), 5, n=(7, 1), **HALF),
]
OUTSIDE = [
    case(BIT4_DEFAULT, codes(37, 16), scales(37, 4), None, -8, 7, tokens("n", high=36), n=(11, 7, 1)),
    case(BIT4_DEFAULT, codes(37, 6), scales(37, 3), scales(37, 3), -8, 7, tokens(2, "n", high=36), n=(5, 1)),
]

CASES = PATTERN + ZEROS + OUTSIDE

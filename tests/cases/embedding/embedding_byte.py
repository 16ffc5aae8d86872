import numpy as np

from tests.cases.embedding.embedding_q4 import HALF, scales, tokens
from tests.support.harness.cases import T, case

BYTE, BYTE_DTYPE = (f"quantized_decomposed.embedding_byte.{overload}" for overload in ("default", "dtype"))
BIT2, BIT2_DTYPE = (f"quantized_decomposed.embedding_2bit.{overload}" for overload in ("default", "dtype"))


def signed(rows, width):
    return T(rows, width, dtype="i8", low=-128, high=127, constant=True)


def unsigned(rows, width):
    return T(rows, width, dtype="u8", low=0, high=255, constant=True)


def at_either_end(dims):
    return np.arange(np.prod(dims)).reshape(dims) % 2 * 36


CASES = [
    case(BYTE, signed(37, 16), scales(37), None, -128, 127, tokens(1, "n", high=36), n=(11, 7, 1)),
    case(BYTE, signed(37, 20), scales(37, 5), None, -128, 127, tokens("n", high=36), n=(11, 1)),
    case(BYTE, signed(37, 7), scales(37), None, -128, 127, tokens(2, "n", high=36), n=(5, 3, 1)),  # rows within words
    case(BYTE, signed(37, 15), scales(37, 5), scales(37, 5), -128, 127, tokens("n", high=36), n=(5, 2)),
    case(BYTE, unsigned(37, 24), scales(37, 2), scales(37, 2), 0, 255, tokens("n", high=36), n=(5, 2)),
    case(BYTE, signed(37, 12), scales(37), None, -128, 127, T("n", dtype="i32", make=at_either_end), n=(5, 2)),
    case(BYTE, signed(1, 16), scales(1), None, -128, 127, tokens(high=0)),
    case(BYTE, signed(1021, 576), scales(1021, 18), None, -128, 127, tokens(2, "n", high=1020), n=(13, 1)),
    case(BYTE_DTYPE, signed(37, 16), scales(37, 4), None, -128, 127, tokens("n", high=36), None, n=(7, 1)),
    case(
        BYTE_DTYPE, signed(37, 16), scales(37, dtype="f16"), None, -128, 127, tokens("n", high=36), 5, n=(7, 1), **HALF
    ),
    case(BYTE_DTYPE, signed(37, 9), scales(37, 3, dtype="f16"), None, -128, 127, tokens("n", high=36), 6, n=(7, 1)),
    *(
        case(BYTE_DTYPE, signed(37, 6), scales(37, 3), zeros, -128, 127, tokens(2, "n", high=36), 6, n=(5, 3, 1))
        for zeros in (
            T(37, 3, dtype="i8", low=-8, high=7, constant=True),
            T(37, 3, dtype="i32", low=-8, high=7, constant=True),
        )
    ),
    case(BIT2, unsigned(37, 4), scales(37), None, -2, 1, tokens(1, "n", high=36), n=(11, 7, 1)),
    case(BIT2, unsigned(37, 5), scales(37, 4), None, -2, 1, tokens("n", high=36), n=(11, 1)),
    case(BIT2, unsigned(37, 9), scales(37, 3), scales(37, 3), -2, 1, tokens("n", high=36), n=(11, 1)),
    case(BIT2_DTYPE, unsigned(37, 8), scales(37, 2), None, -2, 1, tokens(2, "n", high=36), 6, n=(5, 1)),
]

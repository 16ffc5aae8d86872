"""Convolutions of tokens of several sequences over the latest inputs of their slots."""

from tests.cases.attention.slot_attention import decoding, pieces, reading
from tests.support.harness.cases import Case, Sym, T, case


def convolved(width: int, taps: int, slot_mapping, **more) -> Case:
    slots, kept, dtype = more.pop("slots", 11), more.pop("kept", 8), more.pop("dtype", "f32")
    x, weight = T(1, "n", width, dtype=dtype), T(taps, 1, width, dtype=dtype, constant=True)
    first = more.pop("first", 0)
    state = T(first + slots, kept, width, dtype=dtype, constant=more.pop("constant", False))
    rows = T("n", 2, dtype="i32", make=slot_mapping)
    advance, num_decode = more.pop("advance", 0), more.pop("num_decode", 1)
    silu = more.pop("silu", False)
    return case("webpte.slot_convolution", x, weight, state, rows, advance, num_decode, first, silu, **more)


CASES = [
    convolved(64, 3, decoding, num_decode=11, n=(11, 7, 1)),
    convolved(7, 5, decoding, first=2, num_decode=11, advance=Sym("n"), n=(5, 2, 1)),
    convolved(64, 3, reading(0), n=(29, 7, 2, 1), always=True),
    convolved(20, 4, pieces(5, 0, 131), kept=4, slots=4, n=(23, 12, 5)),
    convolved(64, 4, reading(0), kept=4, silu=True, n=(29, 7, 1), always=True),
    convolved(7, 3, decoding, num_decode=11, silu=True, n=(11, 2)),
    convolved(12, 2, reading(6), dtype="f16", n=(11, 3), atol=4e-3, rtol=2e-3),
]

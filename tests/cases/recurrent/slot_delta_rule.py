"""The gated delta rule of tokens of several sequences over the states of their slots."""

from tests.cases.attention.slot_attention import decoding, pieces, reading
from tests.support.harness.cases import Case, Sym, T, case


def ruled(heads: tuple[int, int], dims: tuple[int, int], slot_mapping, **more) -> Case:
    """`heads` of keys and values, and `dims` of each."""
    (key_heads, value_heads), (key_dim, value_dim) = heads, dims
    slots, advance, constant = more.pop("slots", 11), more.pop("advance", 0), more.pop("constant", False)
    mixed = T(1, "n", 2 * key_heads * key_dim + value_heads * value_dim)
    decay, strength = T("n", value_heads, low=-4.0, high=4.0), T("n", value_heads, low=-3.0, high=3.0)
    rate = T(value_heads, low=-1.0, high=-0.1, constant=True)
    bias = T(value_heads, constant=True)
    first = more.pop("first", 0)
    state = T(first + slots, value_heads * key_dim, value_dim, constant=constant)
    rows = T("n", 2, dtype="i32", make=slot_mapping)
    return case("webpte.slot_delta_rule", mixed, decay, strength, rate, bias, 1e-6, state, rows, advance, first, **more)


CASES = [
    ruled((2, 4), (8, 16), decoding, n=(11, 7, 1), always=True),
    ruled((1, 1), (20, 7), decoding, first=3, advance=Sym("n"), n=(5, 2, 1)),
    ruled((2, 2), (16, 64), reading(0), n=(29, 7, 2), always=True),
    ruled((1, 3), (128, 32), pieces(5, 0, 131), slots=4, n=(23, 12, 5)),
]

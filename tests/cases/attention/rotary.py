"""Rotary embeddings: neighbors, halves, and neighbors with a packed table."""

from typing import Any

from tests.cases.attention.slot_attention import decoding
from tests.support.harness.cases import Case, Sym, T, case

HALVES = "et_vk.apply_rotary_emb_hf.default"
HALF: dict[str, Any] = {"atol": 4e-3, "rtol": 1e-3}  # results are stored in 11 bits


def neighbours(batch: int, heads: int, kv_heads: int, width: int, dtype: str = "f32", **sizes: Any) -> Case:
    xs = [T(batch, "n", h, width, dtype=dtype) for h in (heads, kv_heads)]
    tables = [T("n", width // 2, dtype=dtype) for _ in "cs"]
    return case("et_vk.apply_rotary_emb.default", *xs, *tables, **sizes)


def in_slots(heads: int, kv_heads: int, width: int, positions: int, **more: Any) -> Case:
    xs = [T(1, "n", h, width) for h in (heads, kv_heads)]
    tables = [T(positions, width // 2, constant=True) for _ in "cs"]
    return case("webpte.slot_rotary", *xs, *tables, T("n", 2, dtype="i32", make=decoding), 2, **more)


def halves(
    batch: int, heads: int, kv_heads: int, width: int, start: Any = 0, *, rows: int | str = 23, **more: Any
) -> Case:
    """`rotated` elements of each head turn; all of them unless given."""
    rotated, dtype = more.pop("rotated", width), more.pop("dtype", "f32")
    xs = [T(batch, "n", h, width, dtype=dtype) for h in (heads, kv_heads)]
    tables = [T(rows, rotated, dtype=dtype, constant=isinstance(rows, int)) for _ in "cs"]
    return case(HALVES, *xs, *tables, start, **more)


def heads_first(batch: int, kv_heads: int, rotated: int, tables: int = 1, dtype: str = "f32", **more: Any) -> Case:
    """Tokens after the heads, as Hugging Face's models have them when they turn."""
    xs = [T(batch, heads, "n", 10, dtype=dtype) for heads in (3, kv_heads)]
    return case(HALVES, *xs, *(T(tables, "n", rotated, dtype=dtype) for _ in "cs"), 0, **more)


def packed(*dims: int | str, table: tuple[int | str, ...], dtype: str = "f32", **sizes: Any) -> Case:
    op = "et_vk.apply_rotary_emb_interleaved.default"
    return case(op, T(*dims, dtype=dtype), T(*table, dtype=dtype), **sizes)


CASES = [
    in_slots(4, 2, 24, 13, n=(11, 7, 1)),
    neighbours(1, 4, 2, 16, n=(11, 7, 1)),
    neighbours(2, 3, 1, 10, n=(7, 2)),
    neighbours(3, 5, 5, 2, n=(5, 3, 1)),
    neighbours(1, 2, 1, 256, n=(3, 2)),
    neighbours(2, 3, 1, 6, dtype="f16", n=(7, 2), **HALF),
    halves(1, 4, 2, 16, n=(11, 7, 1)),
    halves(2, 3, 1, 10, 5, n=(7, 2)),
    halves(1, 2, 2, 14, Sym("n"), n=(11, 3, 1)),
    halves(3, 2, 1, 6, rows="n", n=(7, 3, 1)),  # a table that was cut to the tokens already
    halves(2, 3, 1, 12, 2, rotated=8, n=(7, 2, 1)),
    halves(1, 3, 1, 7, Sym("n"), rotated=2, n=(7, 2)),
    halves(1, 2, 1, 5, 22, rotated=4, n=(1,)),  # the last row of the table
    halves(2, 3, 1, 6, 1, dtype="f16", n=(7, 2), **HALF),
    heads_first(1, 3, 4, n=(11, 7, 3, 1)),
    heads_first(2, 1, 10, n=(7, 5, 2)),
    heads_first(2, 1, 6, tables=2, n=(11, 7, 1)),  # each of the batch at its own positions
    heads_first(3, 3, 2, tables=3, n=(5, 3)),
    heads_first(2, 1, 4, tables=2, dtype="f16", n=(7, 2), **HALF),
    packed(2, "n", 6, table=("n", 6), n=(11, 7, 1)),
    packed(1, "n", 10, table=(1, "n", 5, 2), n=(7, 3)),
    packed("b", 3, 2, table=(3, 1, 2), b=(5, 2, 1)),
    packed(2, "n", 6, table=("n", 6), dtype="f16", n=(7, 2), **HALF),
]

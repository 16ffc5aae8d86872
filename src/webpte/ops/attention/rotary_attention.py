"""Attention over a KV cache whose queries and keys rotate with their position, in one call."""

from __future__ import annotations

from typing import Any

from ...errors import ShapeError
from ...lowering.context import Context, LiveScalar, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.traits import OpTraits
from .attention import IN_CACHE, attend_and_cache, cached_flops, cached_reference
from .attention_operands import FIRST, CachedAttention
from .attention_token import NewTokens, RotaryTables
from .rotary import guard_table, rotate_halves, rotate_neighbours, rotated_halves, rotated_neighbours


@op(
    "webpte.rotary_attention",
    dtypes=FLOATS,
    traits=OpTraits(
        mutates=("key_cache", "value_cache"),
        work=cached_flops,
        memory_traffic={"key_cache": IN_CACHE, "value_cache": IN_CACHE},
        sequences=True,
    ),
)
def rotary_attention(
    cx: Context,
    operands: CachedAttention,
    start_pos: LiveScalar,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    cosine: Tensor,
    sine: Tensor,
    table_start: LiveScalar | None,
    table_rows: int | None,
    halves: bool,
    *,
    out: Tensor,
) -> None:
    """Compute sdpa_with_kv_cache of a rotated query and key.

    Without `table_start` the tables have a row for each token. Else row table_start is that of the first token, and
    `table_rows`, if it is not None, is the number of rows to use.
    """
    query, key = operands.query, operands.key
    rotary = RotaryTables(
        "halves" if halves else "neighbours", cosine, sine, FIRST if table_start is None else table_start.dynamic
    )
    _check_table(cx, query, key, cosine, table_start, table_rows)
    new_tokens = NewTokens(key, operands.value, rotary)
    if not (rotary.fits(query) and new_tokens.goes_with(query)):
        query, new_tokens = _rotated_apart(cx, query, new_tokens, rotary)
    attend_and_cache(
        cx,
        query,
        new_tokens,
        operands.caches,
        start_pos,
        mask=None,
        dropout=dropout,
        causal=is_causal,
        scale=scale,
        out=out,
    )


def _check_table(
    cx: Context, query: Tensor, key: Tensor, table: Tensor, start: LiveScalar | None, rows: int | None
) -> None:
    seq = query.dims[1]
    if start is not None:
        guard_table(cx, start, seq, table.dims[0])
    table_rows = table.dims[0] if start is None else rows
    if key.dims[1] != seq or (table_rows is not None and table_rows != seq):
        meant = f"{table.dims[0] if table_rows is None else table_rows} rows of {list(table.dims)}"
        raise ShapeError(
            f"rotary embedding: expected as many queries, keys and table rows, got {seq}, {key.dims[1]} and {meant}",
            code="operand_mismatch",
        )


def _rotated_apart(cx: Context, query: Tensor, new_tokens: NewTokens, rotary: RotaryTables) -> tuple[Tensor, NewTokens]:
    """Return queries and keys that are rotated in advance, for widths that cannot be loaded in fours."""
    by = rotate_halves if rotary.pairs == "halves" else rotate_neighbours
    assert rotary.sine is not None  # one tensor has both for slots only
    rotated = []
    for x in (query, new_tokens.key):
        rotated.append(cx.scratch(x.dtype, x.dims))
        by(cx, x, rotary.cosine, rotary.sine, rotary.row, rotated[-1])
    return rotated[0], NewTokens(rotated[1], new_tokens.value)


@rotary_attention.reference
def _(
    operands: Any,
    start_pos: int,
    dropout: object,
    is_causal: bool,
    scale: float | None,
    cosine: Any,
    sine: Any,
    table_start: int | None,
    table_rows: object,
    halves: bool,
) -> Any:
    """Write into the caches, as the op does."""
    seq, first = operands.query.shape[1], table_start or 0
    cos, sin = (table[first : first + seq, None, :] for table in (cosine, sine))  # (S, 1, R)
    by = rotated_halves if halves else rotated_neighbours
    operands.key_cache[:, start_pos : start_pos + seq] = by(operands.key, cos, sin)
    operands.value_cache[:, start_pos : start_pos + seq] = operands.value
    return cached_reference(by(operands.query, cos, sin), operands.caches, start_pos, None, is_causal, scale)

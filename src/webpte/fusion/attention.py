"""Fuse rotary embedding with the attention that follows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..graph import Bool, Call, Graph, Int, Null, TensorSpec, Value
from ..lowering import elementwise_op
from .rewriter import Rewriter, role_of, roles

ROTARY_ATTENTION = "webpte.rotary_attention"  # attention that rotates its queries and keys itself
PATTERN = {
    "neighbours": ("et_vk.apply_rotary_emb.default",),  # rotates pairs of neighboring elements
    "halves": ("et_vk.apply_rotary_emb_hf.default",),  # rotates pairs of one element of each half
    "attention": ("sdpa_with_kv_cache.default",),
    "slice": ("aten.slice_copy.Tensor",),
    "sum": ("add",),
    "size": ("sym_size.int",),
    "gather": ("aten.index_select.default",),
    "positions": ("aten.add.Tensor",),
    "range": ("aten.arange.start_step",),
    "first": ("et_vk.select_as_symint.default",),
}
ROLES = roles(PATTERN)


class RotaryTableValues(NamedTuple):
    """Tensors of cosines and sines, with the row of the first token and the number of rows if not all."""

    cosine: int
    sine: int
    start: int | None = None
    rows: int | None = None


def rotate_in_attention(graph: Graph) -> Graph:
    """Let attention rotate its queries and keys, by whole tables if the inputs are slices of some."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    for index in range(len(graph.steps)):
        call = rewriter.call(index)
        if call is None or role_of(call, ROLES) not in ("neighbours", "halves") or len(call.outs) != 2:
            continue
        attention = _attention_after(rewriter, call)
        arguments = rewriter.arguments(call)
        tables = [arguments["freqs_cos"], arguments["freqs_sin"]]
        moved = (arguments["xq"], arguments["xk"], *tables)
        if attention is not None and _by_rows(rewriter, tables) and all(map(rewriter.is_immutable, moved)):
            at, user = attention
            rewriter.replace([index, at], _fused(rewriter, call, user), at)
    rewriter.drop_unread(ROLES)
    return rewriter.result()


def _attention_after(rewriter: Rewriter, rotary: Call) -> tuple[int, Call] | None:
    """Return the step and call of the attention that is the only reader of both results."""
    query, key = rotary.outs
    user = rewriter.only_user(query)
    if user is None or role_of(user[1], ROLES) != "attention" or user != rewriter.only_user(key):
        return None
    arguments = rewriter.arguments(user[1])
    unmasked = isinstance(rewriter.values[arguments["attn_mask"]], Null)
    return user if (arguments["query"], arguments["key"]) == (query, key) and unmasked else None


def _by_rows(rewriter: Rewriter, tables: Sequence[int]) -> bool:
    """Return whether the tables have a row for each token, the same for the whole batch."""
    specs = (rewriter.values[table] for table in tables)
    return all(isinstance(table, TensorSpec) and len(table.dims) == 2 for table in specs)


def _fused(rewriter: Rewriter, rotary: Call, attention: Call) -> Call:
    """Return the fused call, which ops/attention/rotary_attention.py describes."""
    rotated, arguments = rewriter.arguments(rotary), rewriter.arguments(attention)
    halves = ROLES[rotary.name] == "halves"
    cosine, sine = rotated["freqs_cos"], rotated["freqs_sin"]
    tables = whole_tables(rewriter, cosine, sine, arguments["start_pos"])
    if halves and (tables.start is None or rewriter.values[rotated["start_pos"]] != Int(0)):
        tables = RotaryTableValues(cosine, sine, rotated["start_pos"])
    unchanged = ("value", "key_cache", "value_cache", "start_pos", "is_causal", "scale")
    return rewriter.make(
        ROTARY_ATTENTION,
        attention.outs,
        attention.origin,
        query=rotated["xq"],
        key=rotated["xk"],
        **{name: arguments[name] for name in unchanged},
        dropout=arguments["drpout_p"],
        cosine=tables.cosine,
        sine=tables.sine,
        table_start=tables.start,
        table_rows=tables.rows,
        halves=Bool(halves),
    )


def whole_tables(rewriter: Rewriter, cosine: int, sine: int, first: int) -> RotaryTableValues:
    """Return the tables that both are slices of, by the same rows; else the slices themselves.

    `first` is the position of the first token, from which tables may be indexed.
    """
    cosines, sines = (
        _table_slice(rewriter, value_id) or _indexed_table(rewriter, value_id, first) for value_id in (cosine, sine)
    )
    if cosines is None or sines is None or (cosines.start, cosines.size) != (sines.start, sines.size):
        return RotaryTableValues(cosine, sine)
    return RotaryTableValues(cosines.table, sines.table, cosines.start, cosines.rows)


class TableSlice(NamedTuple):
    """table[start : start + rows], where rows is the size of a dim, which the lowering can compute."""

    table: int
    start: int
    rows: int
    size: tuple[int, Value]  # the tensor and dim it is the size of


def _table_slice(rewriter: Rewriter, value_id: int) -> TableSlice | None:
    producer = rewriter.producer(value_id)
    while producer is not None and (source := _copied(rewriter, producer[1])) is not None:
        producer = rewriter.producer(source)
    if producer is None or role_of(producer[1], ROLES) != "slice":
        return None
    arguments, values = rewriter.arguments(producer[1]), rewriter.values
    table, start, total = arguments["self"], arguments["start"], rewriter.producer(arguments["end"])
    by_rows = values[arguments["dim"]] == Int(0) and values[arguments["step"]] == Int(1)
    if not by_rows or not rewriter.is_immutable(table) or total is None or role_of(total[1], ROLES) != "sum":
        return None
    others = [a for a in rewriter.arguments(total[1]).values() if a != start]
    if len(others) != 1 or (size := rewriter.producer(others[0])) is None or role_of(size[1], ROLES) != "size":
        return None
    measured = rewriter.arguments(size[1])
    return TableSlice(table, start, others[0], (measured["self"], values[measured["dim"]]))


def _indexed_table(rewriter: Rewriter, value_id: int, first: int) -> TableSlice | None:
    """Return table[[first, first + 1, ...]] as the slice that it is."""
    values, calls = rewriter.values, []
    for role, argument in (("gather", "index"), ("positions", "other"), ("range", "end"), ("size", "self")):
        producer = rewriter.producer(value_id)
        if producer is None or role_of(producer[1], ROLES) != role:
            return None
        calls.append(rewriter.arguments(producer[1]))
        rows, value_id = value_id, calls[-1][argument]
    gather, positions, numbers, size = calls
    counted = values[numbers["start"]] == Int(0) and values[numbers["step"]] == values[positions["alpha"]] == Int(1)
    start = rewriter.producer(first)
    if start is None or role_of(start[1], ROLES) != "first" or not counted or values[gather["dim"]] != Int(0):
        return None
    element, spec = rewriter.arguments(start[1]), values[positions["self"]]
    same = element["x"] == positions["self"] and isinstance(spec, TensorSpec) and spec.dims == (1,)
    if not same or not rewriter.is_immutable(gather["self"]):
        return None
    return TableSlice(gather["self"], first, rows, (size["self"], values[size["dim"]]))


def _copied(rewriter: Rewriter, call: Call) -> int | None:
    """Return the source of a call that copies a tensor with its shape."""
    elementwise = elementwise_op(call)
    return rewriter.source(call) if elementwise is not None else None

"""Rotary embedding and the attention behind it as one call."""

from __future__ import annotations

from typing import NamedTuple

from ..graph import Bool, Call, Graph, Int, Null, TensorSpec, Value
from ..graph.programs import ROTARY_ATTENTION
from .rewriter import Rewriter

ATTENTION = "sdpa_with_kv_cache.default"
NEIGHBOURS, HALVES = "et_vk.apply_rotary_emb.default", "et_vk.apply_rotary_emb_hf.default"
COPIES = {"aten.clone.default", "aten.alias_copy.default", "dim_order_ops._clone_dim_order.default"}


class Tables(NamedTuple):
    """Where cosines and sines are: the first token's row, and how many rows are meant, where that is not all."""

    cosine: int
    sine: int
    start: int | None = None
    rows: int | None = None


def turn_in_attention(graph: Graph) -> Graph:
    """Let attention turn its queries and keys itself, by whole tables where those it is given are cut from such."""
    rewriter = Rewriter(graph)
    if not rewriter.straight:
        return graph
    for index in range(len(graph.steps)):
        call = rewriter.call(index)
        if call is None or call.name not in (NEIGHBOURS, HALVES) or len(call.outs) != 2:
            continue
        attention = _attention_behind(rewriter, call)
        if attention is not None and _by_rows(rewriter, call) and all(map(rewriter.settled, call.args[:4])):
            at, user = attention
            rewriter.replace([index, at], _fused(rewriter, call, user), at)
    _drop_unread(rewriter)
    return rewriter.done()


def _attention_behind(rewriter: Rewriter, rotary: Call) -> tuple[int, Call] | None:
    """The attention that takes both results, if nothing else does."""
    query, key = rotary.outs
    user = rewriter.only_user(query)
    if user is None or user[1].name != ATTENTION or user != rewriter.only_user(key):
        return None
    args = user[1].args
    unmasked = isinstance(rewriter.values[args[7]], Null)
    return user if args[:2] == (query, key) and unmasked else None


def _by_rows(rewriter: Rewriter, rotary: Call) -> bool:
    """Whether the tables have a row for each token, the same for all of a batch."""
    tables = (rewriter.values[v] for v in rotary.args[2:4])
    return all(isinstance(table, TensorSpec) and len(table.dims) == 2 for table in tables)


def _fused(rewriter: Rewriter, rotary: Call, attention: Call) -> Call:
    """The call is described in ops/attention/rotary_attention.py."""
    tables = Tables(*rotary.args[2:5]) if rotary.name == HALVES else _whole_tables(rewriter, *rotary.args[2:4])
    _, _, value, key_cache, value_cache, start, _, _, dropout, causal, scale = attention.args
    place = (rewriter.add(Null()) if v is None else v for v in (tables.start, tables.rows))
    args = (
        *(*rotary.args[:2], value, key_cache, value_cache, start, dropout, causal, scale),
        *(tables.cosine, tables.sine, *place, rewriter.add(Bool(rotary.name == HALVES))),
    )
    return Call(ROTARY_ATTENTION, args, attention.outs, attention.origin)


def _whole_tables(rewriter: Rewriter, cosine: int, sine: int) -> Tables:
    """The tables that both are cut from, by the same rows; else themselves."""
    cosines, sines = _cut(rewriter, cosine), _cut(rewriter, sine)
    if cosines is None or sines is None or (cosines.start, cosines.size) != (sines.start, sines.size):
        return Tables(cosine, sine)
    return Tables(cosines.table, sines.table, cosines.start, cosines.rows)


class Cut(NamedTuple):
    """table[start : start + rows], where rows is a size: what the lowering can count."""

    table: int
    start: int
    rows: int
    size: tuple[int, Value]  # the tensor and dim it is the size of


def _cut(rewriter: Rewriter, value_id: int) -> Cut | None:
    found = rewriter.maker(value_id)
    while found is not None and found[1].name in COPIES:
        found = rewriter.maker(found[1].args[0])
    if found is None or found[1].name != "aten.slice_copy.Tensor":
        return None
    table, dim, start, end, step = found[1].args
    values, total = rewriter.values, rewriter.maker(end)
    by_rows = values[dim] == Int(0) and values[step] == Int(1) and isinstance(values[table], TensorSpec)
    if not by_rows or not rewriter.settled(table) or total is None or total[1].name != "add":
        return None
    others = [a for a in total[1].args if a != start]
    if len(others) != 1 or (size := rewriter.maker(others[0])) is None or size[1].name != "sym_size.int":
        return None
    return Cut(table, start, others[0], (size[1].args[0], values[size[1].args[1]]))


def _drop_unread(rewriter: Rewriter) -> None:
    """Remove the cuts that nobody reads any more, and what only they read."""
    for index in reversed(range(len(rewriter.steps))):
        call = rewriter.call(index)
        if call is None or call.name not in (*COPIES, "aten.slice_copy.Tensor", "add"):
            continue
        (out,) = call.outs
        if not rewriter.users.get(out) and out not in rewriter.outputs and rewriter.maker(out) is not None:
            rewriter.forward(index, call.args[0])

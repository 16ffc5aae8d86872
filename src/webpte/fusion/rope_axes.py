"""Rotate the rows of a batch by positions of three axes (M-RoPE): time, row and column of an image's patch.

The graph gets one more input, the positions of each row (R, 3). The rotary table of a batch is computed once from the
table of all positions: `webpte.axis_angles`. Attention reads a row of it for each row of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..errors import UnsupportedError
from ..graph import Call, DType, Graph, Int, Null, TensorSpec, Value
from .batching import POSITION_OFFSET, TOKENS
from .rewriter import Rewriter
from .row_axes import SLOT_ATTENTION, SLOT_ROTARY

AXIS_ANGLES = "webpte.axis_angles"  # see ops/attention/axis_angles.py
AXES = 3
TABLE_ROWS = ("norm_row", "sink_row")  # arguments: rows of a table after those of the positions
RopeSections = tuple[int, int, int]  # pairs of a head that rotate by each axis


class _Attention(NamedTuple):
    step: int
    call: Call
    arguments: dict[str, int]


def with_rope_axes(graph: Graph, sections: RopeSections) -> Graph:
    """Let the attention of a graph of many sequences rotate by three axes. Its last input becomes their positions."""
    rewriter = Rewriter(graph)
    rows = graph.tensor(graph.inputs[TOKENS]).dims[1]
    positions = rewriter.add(TensorSpec(DType.INT32, (rows, AXES), DType.INT32, dynamic=True))
    by_table: dict[int, list[_Attention]] = {}
    for each in _rotating(rewriter):
        by_table.setdefault(each.arguments["table"], []).append(each)
    before = [_of_batch(rewriter, table, layers, sections, positions, rows) for table, layers in by_table.items()]
    steps = (*before, *(step for step in rewriter.steps if step is not None))
    return replace(graph, values=tuple(rewriter.values), steps=steps, inputs=(*graph.inputs, positions))


def _rotating(rewriter: Rewriter) -> list[_Attention]:
    """Return the calls of attention that rotate."""
    calls = []
    for index in range(len(rewriter.steps)):
        call = rewriter.call(index)
        if call is not None and call.name == SLOT_ROTARY:
            raise _refused(call, "rotates before the norms of its queries and keys")
        if call is None or call.name != SLOT_ATTENTION:
            continue
        arguments = rewriter.arguments(call)
        if not isinstance(rewriter.values[arguments["table"]], Null):
            calls.append(_Attention(index, call, arguments))
    return calls


def _of_batch(
    rewriter: Rewriter,
    table: int,
    layers: Sequence[_Attention],
    sections: RopeSections,
    positions: int,
    rows: int,
) -> Call:
    """Let the layers of one table read the angles of the batch, and return the call that computes these."""
    spec = rewriter.values[table]
    if not isinstance(spec, TensorSpec) or spec.dtype is not DType.FLOAT32:
        raise _refused(layers[0].call, f"has the rotary tables {spec}")
    _, total, width = spec.dims
    rows_of = [(name, each.arguments[name]) for each in layers for name in TABLE_ROWS if name in each.arguments]
    first = [row.value for _, value_id in rows_of if isinstance(row := rewriter.values[value_id], Int)]
    count = min(first, default=total)  # of positions; the weights of norms and the sinks follow
    others = total - count
    angles = rewriter.add(TensorSpec(DType.FLOAT32, (2, others + rows, width), DType.FLOAT32, dynamic=True))
    for step, call, arguments in layers:
        changed: dict[str, int | Value | None] = {**arguments, "table": angles, "angle_row": Int(others)}
        for name in TABLE_ROWS:
            if name in arguments and isinstance(row := rewriter.values[arguments[name]], Int):
                changed[name] = Int(row.value - count)
        rewriter.steps[step] = rewriter.make(SLOT_ATTENTION, call.outs, call.origin, **changed)
    return rewriter.make(
        AXIS_ANGLES,
        [angles],
        layers[0].call.origin,
        table=table,
        axis_positions=positions,
        advance=rewriter.graph.inputs[POSITION_OFFSET],
        positions=Int(count),
        second=Int(sections[1]),
        third=Int(sections[2]),
    )


def _refused(call: Call, reason: str) -> UnsupportedError:
    return UnsupportedError(f"positions of several axes: {call.name} ({call.origin}) {reason}", code="rope_axes")

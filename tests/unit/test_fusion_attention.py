"""When attention rotates its queries and keys itself, and what keeps the two calls apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from webpte.errors import GuardError, ShapeError
from webpte.fusion.attention import PATTERN, ROTARY_ATTENTION, rotate_in_attention
from webpte.graph import Bool, Double, DType, Graph, Int, Null
from webpte.plan import CallValues, make_planner
from webpte.wgsl import Caps

(ATTENTION,), (HALVES,), (NEIGHBOURS,), (SLICE,) = (
    PATTERN[role] for role in ("attention", "halves", "neighbours", "slice")
)
CAPACITY, WIDTH = 32, 16


class Layer(GraphBuilder):
    """Rotary embedding and attention of up to 8 tokens: (1, 8, 4, 16) queries, (1, 8, 2, 16) keys and values."""

    def __init__(self, dtype: DType = DType.FLOAT32) -> None:
        super().__init__()
        self.q = self.tensor(1, 8, 4, WIDTH, dtype=dtype, dynamic=True)
        self.k, self.v = (self.tensor(1, 8, 2, WIDTH, dtype=dtype, dynamic=True) for _ in "kv")
        self.position = self.symint()
        self.tables = [self.tensor(CAPACITY, WIDTH // 2, mutable=True) for _ in "cs"]
        self.caches = [self.tensor(1, CAPACITY, 2, WIDTH, dtype=dtype, mutable=True) for _ in "kv"]
        self.turned = [self.tensor(1, 8, h, WIDTH, dtype=dtype) for h in (4, 2)]
        self.out = self.tensor(1, 8, 4, WIDTH, dtype=dtype)

    def cut(self, start: int, rows: int | None = None, table: int | None = None) -> int:
        """table[start : start + tokens], as exporters write it."""
        tokens, end, out = self.symint(), self.symint(), self.tensor(8, WIDTH // 2)
        self.call("sym_size.int", (self.q, self.number(1)), tokens)
        self.call("add", (start, tokens if rows is None else rows), end)
        which = self.tables[0] if table is None else table
        self.call(SLICE, (which, self.number(0), start, end, self.number(1)), out)
        return out

    def rotary(self, cosine: int, sine: int, name: str = NEIGHBOURS, *more: int) -> None:
        self.call(name, (self.q, self.k, cosine, sine, *more), *self.turned)

    def attention(self, *, mask: int | None = None, query: int | None = None) -> Graph:
        mask = self.null() if mask is None else mask
        options = (self.position, self.number(1), mask, self.add(Double(0.0)), self.add(Bool(mask is None)))
        q, k = self.turned
        args = (q if query is None else query, k, self.v, *self.caches, *options, self.null())
        self.call(ATTENTION, args, self.out)
        return self.graph([self.q, self.k, self.v, self.position], [self.out])


def constant_tables(graph: Graph, layer: Layer) -> Graph:
    """Return the graph with its tables as constants, as in a file."""
    values = list(graph.values)
    for table in layer.tables:
        values[table] = replace(graph.tensor(table), mutable=False, dynamic=False)
    return replace(graph, values=tuple(values), inputs=(*graph.inputs, *layer.tables))


@pytest.fixture
def layer() -> Layer:
    return Layer()


def names(graph: Graph) -> list[str]:
    return [call.name for call in graph.calls]


def fused(graph: Graph) -> tuple[list[str], Any]:
    """Return the names of the calls afterwards, and the one that does both."""
    after = rotate_in_attention(graph)
    calls = [call for call in after.calls if call.name == ROTARY_ATTENTION]
    return names(after), calls[0] if calls else None


def test_rotary_fusion_makes_one_call_with_caches_and_outputs(layer):
    cosine, sine = (layer.tensor(8, WIDTH // 2) for _ in "cs")
    layer.rotary(cosine, sine)
    graph = layer.attention()
    graph = replace(graph, inputs=(*graph.inputs, cosine, sine))
    after, call = fused(graph)
    assert after == [ROTARY_ATTENTION]
    assert call.args[:6] == (layer.q, layer.k, layer.v, *layer.caches, layer.position)
    assert call.args[9:11] == (cosine, sine)
    assert call.outs == (layer.out,)


def test_rotary_fusion_slice_of_table_reads_table(layer):
    cosine, sine = (layer.cut(layer.position, table=table) for table in layer.tables)
    layer.rotary(cosine, sine)
    graph = constant_tables(layer.attention(), layer)
    after, call = fused(graph)
    assert SLICE not in after and "add" not in after
    assert call.args[9:12] == (*layer.tables, layer.position)


def test_copies_of_the_cuts_are_looked_through(layer):
    copies = []
    for table in layer.tables:
        copies.append(layer.tensor(8, WIDTH // 2))
        layer.call("aten.clone.default", (layer.cut(layer.position, table=table), layer.null()), copies[-1])
    layer.rotary(*copies)
    after, call = fused(constant_tables(layer.attention(), layer))
    assert set(after) == {"sym_size.int", ROTARY_ATTENTION}
    assert call.args[9:12] == (*layer.tables, layer.position)


def test_rotary_fusion_slice_with_other_readers_stays(layer):
    cosine, sine = (layer.cut(layer.position, table=table) for table in layer.tables)
    layer.rotary(cosine, sine)
    graph = constant_tables(layer.attention(), layer)
    after, _ = fused(replace(graph, outputs=(*graph.outputs, cosine)))
    assert after.count(SLICE) == 1


@pytest.mark.parametrize("what", ["start", "end", "step", "dim"])
def test_rotary_fusion_other_slice_stays(layer, what):
    """Cosines and sines from different rows, an end not a size, steps, columns: the tables are bound as given."""
    cuts = [layer.cut(layer.position, table=table) for table in layer.tables]
    graph_of = [i for i, step in enumerate(layer.steps) if step.name == SLICE]
    slice_args = list(layer.steps[graph_of[1]].args)
    position = {"dim": 1, "start": 2, "end": 3, "step": 4}[what]
    slice_args[position] = layer.symint() if what in ("start", "end") else layer.number(2)
    layer.steps[graph_of[1]] = replace(layer.steps[graph_of[1]], args=tuple(slice_args))
    layer.rotary(*cuts)
    graph = constant_tables(layer.attention(), layer)
    after, call = fused(replace(graph, inputs=(*graph.inputs, slice_args[position])))
    assert after.count(SLICE) == 2
    assert call.args[9:11] == tuple(cuts)


@pytest.mark.parametrize("which", ["start", "size"])
def test_rotate_in_attention_tables_cut_at_other_rows_are_bound_as_cut(layer, which):
    """Each cut alone could be read from its table, but a call has one first row and one number of rows for both."""
    start, rows = layer.position, None
    if which == "start":
        start = layer.symint()
    else:
        rows = layer.symint()
        layer.call("sym_size.int", (layer.q, layer.number(2)), rows)
    cuts = [layer.cut(layer.position, table=layer.tables[0]), layer.cut(start, rows, layer.tables[1])]
    layer.rotary(*cuts)
    graph = constant_tables(layer.attention(), layer)
    after, call = fused(replace(graph, inputs=(*graph.inputs, *({start} - {layer.position}))))
    assert after.count(SLICE) == 2
    assert call.args[9:11] == tuple(cuts)


def test_rotary_fusion_of_halves_keeps_tables(layer):
    layer.rotary(*layer.tables, HALVES, layer.position)
    after, call = fused(constant_tables(layer.attention(), layer))
    assert after == [ROTARY_ATTENTION]
    assert call.args[9:12] == (*layer.tables, layer.position)


@pytest.mark.parametrize("why", ["mask", "read twice", "output", "not the query", "table written"])
def test_rotary_fusion_conditions_that_prevent_it(layer, why):
    layer.rotary(*layer.tables, HALVES, layer.position)
    mask = layer.tensor(8, CAPACITY) if why == "mask" else None
    graph = layer.attention(mask=mask, query=layer.q if why == "not the query" else None)
    if why == "mask":
        graph = replace(graph, inputs=(*graph.inputs, mask))
    if why == "read twice":
        layer.unary(layer.turned[1], 1, 8, 2, WIDTH)
        graph = replace(graph, values=tuple(layer.values), steps=tuple(layer.steps))
    if why == "output":
        graph = replace(graph, outputs=(*graph.outputs, layer.turned[0]))
    graph = graph if why == "table written" else constant_tables(graph, layer)
    assert rotate_in_attention(graph).steps == graph.steps


# -- lowering ----------------------------------------------------------------------------------------------------------


def planned(layer: Layer, caps: Caps | None = None):
    cosine, sine = (layer.cut(layer.position, table=table) for table in layer.tables)
    layer.rotary(cosine, sine)
    graph = rotate_in_attention(constant_tables(layer.attention(), layer))
    return make_planner(graph, caps or Caps(kind="cpu"), ())


def lowered(planner, tokens: int, position: int = 3):
    plan = planner.plan
    (segment,) = plan.flow.segments
    layer_inputs = {i: plan.graph.values[i] for i in plan.graph.inputs}
    dims = {i: (1, tokens, *v.dims[2:]) if v.dynamic else v.dims for i, v in layer_inputs.items() if hasattr(v, "dims")}
    scalars: dict[int, float] = {i: position for i, v in layer_inputs.items() if not hasattr(v, "dims")}
    return planner.prepare(segment, CallValues(dims, scalars, {}))[0]


def test_rotary_fusion_token_one_dispatch_more_tokens_two(layer):
    plan = planned(layer)
    assert [d.kernel.template for d in lowered(plan, 1).dispatches] == ["attention/attention_token.wgsl"]
    assert [d.kernel.template for d in lowered(plan, 5).dispatches] == [
        "attention/cache_fill.wgsl",
        "attention/attention_rows.wgsl",
    ]


def test_rotary_fusion_kernels_bind_at_most_eight_buffers(layer):
    for kind in ("cpu", "gpu"):
        plan = planned(Layer(), Caps(kind=kind)).plan
        assert max(k.reads + k.writes for k in plan.kernels) == 8


def test_rotary_fusion_position_out_of_range_is_refused(layer):
    plan = planned(layer)
    lowered(plan, 4, CAPACITY - 4)
    with raises(GuardError, "4 tokens", "position 29 "):
        lowered(plan, 4, CAPACITY - 3)
    with pytest.raises(GuardError):
        lowered(plan, 4, -1)


def test_rotary_fusion_wrong_number_of_rows_is_refused(layer):
    """The cut of the table has a row per token of the queries; keys with another number of tokens do not fit."""
    planner = planned(layer)
    plan = planner.plan
    (segment,) = plan.flow.segments
    dims = {i: v.dims for i in plan.graph.inputs if hasattr(v := plan.graph.values[i], "dims")}
    with pytest.raises(ShapeError):
        planner.prepare(segment, CallValues({**dims, layer.k: (1, 3, 2, WIDTH)}, {layer.position: 0}, {}))


def test_rotary_fusion_keeps_numbers_and_nulls(layer):
    layer.rotary(*layer.tables, HALVES, layer.position)
    graph = constant_tables(layer.attention(), layer)
    after = rotate_in_attention(graph)
    assert after.values[: len(graph.values)] == graph.values
    assert {type(v) for v in after.values[len(graph.values) :]} <= {Null, Bool, Int}

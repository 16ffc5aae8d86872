"""Which models of one sequence become models of many, and what is said of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from webpte.errors import UnsupportedError
from webpte.fusion.batching import with_slots
from webpte.fusion.row_axes import SLOT_ATTENTION
from webpte.graph import Bool, Double, DType, Graph, SymInt, TensorSpec
from webpte.plan import make_planner
from webpte.wgsl import Caps

ROWS, WIDTH, HEADS, CAPACITY, VOCABULARY = 8, 16, 4, 32, 24


class Model(GraphBuilder):
    """Embedding, attention without rotation over heads of 4, and a head: what a test changes, it puts in between."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = self.tensor(1, ROWS, dtype=DType.INT32, dynamic=True)
        self.position = self.tensor(1, dtype=DType.INT32)
        self.table = self.tensor(VOCABULARY, WIDTH)
        self.caches = [self.tensor(1, CAPACITY, HEADS, WIDTH // HEADS, mutable=True) for _ in "kv"]
        self.hidden = self.tensor(1, ROWS, WIDTH)
        off = self.add(Bool(False))
        self.call("aten.embedding.default", (self.table, self.tokens, self.number(-1), off, off), self.hidden)

    def heads(self, source: int) -> int:
        size, out = self.symint(), self.tensor(1, ROWS, HEADS, WIDTH // HEADS)
        self.call("sym_size.int", (self.tokens, self.number(1)), size)
        sizes = self.list(self.number(1), size, self.number(HEADS), self.number(WIDTH // HEADS))
        self.call("aten.view_copy.default", (source, sizes), out)
        return out

    def start(self) -> int:
        out = self.symint()
        self.call("et_vk.select_as_symint.default", (self.position, self.number(0), self.number(0)), out)
        return out

    def attention(self, *, mask: int | None = None, start: int | None = None) -> int:
        split, out = self.heads(self.hidden), self.tensor(1, ROWS, HEADS, WIDTH // HEADS)
        options = (self.number(1), self.null() if mask is None else mask, self.add(Double(0.0)))
        causal, scale = self.add(Bool(mask is None)), self.null()
        at = self.start() if start is None else start
        self.call("sdpa_with_kv_cache.default", (split, split, split, *self.caches, at, *options, causal, scale), out)
        return out

    def joined(self, source: int) -> int:
        size, out = self.symint(), self.tensor(1, ROWS, WIDTH)
        self.call("sym_size.int", (self.tokens, self.number(1)), size)
        self.call("aten.view_copy.default", (source, self.list(self.number(1), size, self.number(WIDTH))), out)
        return out

    def logits(self, source: int, *, full: bool = False) -> Graph:
        last = source
        if not full:
            last = self.tensor(1, WIDTH)
            self.call("aten.select_copy.int", (source, self.number(1), self.number(-1)), last)
        out = self.tensor(*((1, ROWS) if full else (1,)), VOCABULARY)
        self.call("aten.linear.default", (last, self.table, self.null()), out)
        return self.graph([self.tokens, self.position], [out])


@pytest.mark.parametrize("full", [False, True])
def test_with_slots_head_runs_on_sampled_rows(full):
    model = Model()
    result = with_slots(model.logits(model.joined(model.attention()), full=full), 3).graph
    tokens, slot_mapping, num_decode, logits_indices, advance = (result.values[i] for i in result.inputs)
    assert isinstance(slot_mapping, TensorSpec) and slot_mapping.dims == (ROWS, 2)
    assert isinstance(logits_indices, TensorSpec) and logits_indices.dims == (ROWS,)
    assert num_decode == advance == SymInt() and isinstance(tokens, TensorSpec)
    assert result.tensor(result.outputs[0]).dims == (ROWS, VOCABULARY)
    calls = {call.name: call for call in result.calls}
    assert result.tensor(calls["aten.linear.default"].args[0]).dims[-2:] == (ROWS, WIDTH)
    assert [result.tensor(cache).dims[0] for cache in model.caches] == [3, 3]
    assert {SLOT_ATTENTION, "aten.index_select.default"} <= calls.keys()
    assert not {"sdpa_with_kv_cache.default", "aten.select_copy.int", "et_vk.select_as_symint.default"} & calls.keys()


def _mixing(name: str) -> Callable[[Model], Graph]:
    def build(model: Model) -> Graph:
        mixed = model.tensor(1, ROWS, WIDTH)
        source = model.joined(model.attention())
        options = (model.number(1), model.add(Bool(False))) if name == "aten._softmax.default" else (model.number(1),)
        model.call(name, (source, *options), mixed)
        return model.logits(mixed)

    return build


def _masked(model: Model) -> Graph:
    return model.logits(model.joined(model.attention(mask=model.tensor(ROWS, CAPACITY))))


def _at_another_place(model: Model) -> Graph:
    start, one, later = model.start(), model.number(1), model.symint()
    model.call("add", (start, one), later)
    return model.logits(model.joined(model.attention(start=later)))


def _position_elsewhere(model: Model) -> Graph:
    source, cut = model.joined(model.attention()), model.tensor(1, ROWS, WIDTH)
    model.call("aten.mul.Scalar", (source, model.start()), cut)
    return model.logits(cut)


def _more_state(model: Model) -> Graph:
    source, kept, out = model.joined(model.attention()), model.tensor(1, 16, 4, 4, mutable=True), model.tensor(1)
    model.call("update_cache.default", (model.heads(source), kept, model.number(0)), out)
    return model.logits(source)


def _one_cache_for_two(model: Model) -> Graph:
    first = model.joined(model.attention())
    model.hidden = first
    return model.logits(model.joined(model.attention()))


def _summed_over_rows(model: Model) -> Graph:
    """Return a number for each token, of which one for all is made: broadcast along the tokens."""
    source, out = model.joined(model.attention()), model.tensor(1, ROWS, WIDTH)
    model.call("aten.add.Tensor", (source, model.tensor(ROWS, 1), model.number(1)), out)
    return model.logits(out)


@pytest.mark.parametrize(
    ("build", "code", "expected"),
    [
        (_mixing("aten.cumsum.default"), "mixed_tokens", ["aten.cumsum.default"]),
        (_mixing("aten._softmax.default"), "mixed_tokens", ["aten._softmax.default"]),
        (_masked, "custom_mask", ["delegate 0, node 4"]),
        (_at_another_place, "other_position", ["delegate 0, node 5"]),
        (_position_elsewhere, "position_use", ["aten.mul.Scalar"]),
        (_more_state, "extra_state", []),
        (_one_cache_for_two, "shared_cache", ["delegate 0, node 4"]),
        (_summed_over_rows, "mixed_tokens", ["aten.add.Tensor"]),
    ],
)
def test_with_slots_op_mixing_sequences_is_refused(build, code, expected):
    with raises(UnsupportedError, *expected, code=code):
        with_slots(build(Model()), 3)


def test_with_slots_graph_can_be_planned():
    model = Model()
    graph = with_slots(model.logits(model.joined(model.attention())), 3).graph
    fed = Graph(graph.name, graph.values, graph.steps, (*graph.inputs, model.table), graph.outputs)
    plan = make_planner(fed, Caps(), ()).plan
    assert any(buffer.nbytes == 3 * CAPACITY * WIDTH * 4 for buffer in plan.buffers if buffer.kind == "state")

"""The data of `webpte inspect --html` and `--dot`: calls, values, lifetimes, transfers, repetition."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.harness.graphs import GraphBuilder
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkTensor
from webpte.debug.report import method_data, render_page, report_data
from webpte.debug.report.calls import lifetimes, order_of
from webpte.debug.report.data import find_repeats
from webpte.debug.report.page import type_text
from webpte.graph import Bool, DelegateInfo, Jump, Origin, SymBool


def planned(planner):
    return method_data(planner.plan.graph, planner, None)


def whole(data, method="forward"):
    """Data of a method as `report_data` wraps it."""
    methods = [{"name": method, "calls": len(data["calls"]), "returns": None}]
    return {"file": "test.pte", "bytes": 1234, "methods": methods, "method": method} | data


# ---------------------------------------------------------------- calls and values


def test_report_lists_calls_in_order_with_arguments_and_makers():
    b = GraphBuilder()
    x, y = b.tensor(3, 5), b.tensor(5)
    first = b.tensor(3, 5)
    b.call("aten.add.Tensor", (x, y, b.number(2)), first)
    last = b.unary(first, 3, 5)
    data = planned(b.planner([x, y], [last]))
    add, relu = data["calls"]
    assert (add["row"], add["name"], add["origin"], add["place"]) == (
        0,
        "aten.add.Tensor",
        "delegate 0, node 0",
        "d0 n0",
    )
    assert add["args"] == [
        {"name": "self", "parts": [x]},
        {"name": "other", "parts": [y]},
        {"name": "alpha", "parts": ["2"]},
    ]
    assert add["runs"] == relu["runs"] == "gpu" and len(add["kernels"]) == 1
    result = data["values"][first]
    assert (result["made"], result["read"], result["live"], result["bytes"]) == ([0], [1], (0, 1), 60)
    assert data["values"][x]["input"] and data["values"][last]["output"]
    assert json.loads(json.dumps(data))["calls"][0]["name"] == "aten.add.Tensor"


def test_report_separates_views_and_scalars_from_work():
    b = GraphBuilder()
    x, rows, flat = b.tensor(4, 6, dynamic=True), b.symint(), b.tensor(24)
    b.call("sym_size.int", (x, b.number(0)), rows)
    b.call("aten.view_copy.default", (x, b.list(b.number(-1))), flat)
    y = b.unary(flat, 24)
    data = planned(b.planner([x], [y]))
    assert [call["runs"] for call in data["calls"]] == ["scalar", "view", "gpu"]
    assert data["values"][flat]["view_of"] == x and data["values"][flat]["buffer"] == data["values"][x]["buffer"]
    assert data["values"][rows]["kind"] == "scalar" and data["values"][rows]["dims"] is None


def test_dims_that_follow_the_input_are_marked():
    """Only the first dim of x varies; the sum over it does not, and the pooled one changes in steps of two."""
    b = GraphBuilder()
    x, weight, y = b.tensor(1, 1, 12, 29, dynamic=True), b.tensor(3, 29), b.tensor(1, 1, 12, 3)
    b.call("aten.linear.default", (x, weight, b.null()), y)
    pooled = b.tensor(1, 1, 6, 3)
    pair = [b.list(*map(b.number, sizes)) for sizes in ((2, 1), (2, 1), (0, 0))]
    b.call(
        "aten.avg_pool2d.default",
        (y, *pair, b.add(Bool(False)), b.add(Bool(True)), b.null()),
        pooled,
    )
    data = planned(b.planner([x, weight], [pooled]))
    texts = {
        name: type_text(data["values"][v]) for name, v in (("x", x), ("weight", weight), ("y", y), ("pooled", pooled))
    }
    assert texts == {
        "x": "f32[1, 1, ≤12, 29]",
        "weight": "f32[3, 29]",
        "y": "f32[1, 1, ≤12, 3]",
        "pooled": "f32[1, 1, ≤6, 3]",
    }


def test_report_value_written_in_place_has_producer():
    b = GraphBuilder()
    state, x = b.tensor(4, mutable=True), b.tensor(4)
    b.call("aten::copy_", (state, x, b.null()), state, kernel=True)
    data = planned(b.planner([x], [state]))
    assert data["values"][state]["kind"] == "state" and 0 in data["values"][state]["made"]


def test_report_method_without_plan_shows_calls():
    b = GraphBuilder()
    x, y = b.tensor(3, 5), b.tensor(3, 5)
    b.call("aten.sort_of.default", (x,), y)
    data = method_data(b.graph([x], [y]), None, "aten.sort_of.default has no kernel")
    assert data["calls"][0]["runs"] == "file" and data["memory"] is None and data["values"][y]["bytes"] == 60
    page = render_page(whole(data))
    assert "has no kernel" in page and "sort_of" in page


def test_jumps_and_their_conditions_are_kept():
    b = GraphBuilder()
    x, condition, out = b.tensor(8), b.add(SymBool()), b.tensor(8)
    b.steps.append(Jump(condition, 3, Origin(0)))
    b.call("webpte.copy", (x,), out)
    b.steps.append(Jump(condition, 4, Origin(2)))
    b.call("aten.relu.default", (x,), out)
    data = planned(b.planner([x, condition], [out]))
    assert [stage["part"] for stage in data["stages"]] == [1, 2]
    assert data["jumps"][0] == {"part": 0, "condition": condition, "target": 2}
    assert "go to part 2" in render_page(whole(data))


# ---------------------------------------------------------------- lifetimes and buffers


@st.composite
def programs(draw):
    """Straight programs of unary calls, sums and views over earlier results; some results are outputs."""
    b = GraphBuilder()
    created = [b.tensor(4, 8), b.tensor(4, 8)]
    for kind in draw(st.lists(st.sampled_from(["unary", "add", "view"]), min_size=1, max_size=25)):
        source = draw(st.sampled_from(created))
        out = b.tensor(4, 8)
        if kind == "unary":
            b.call("aten.relu.default", (source,), out)
        elif kind == "add":
            b.call("aten.add.Tensor", (source, draw(st.sampled_from(created)), b.number(1)), out)
        else:
            b.call("aten.view_copy.default", (source, b.list(b.number(4), b.number(8))), out)
        created.append(out)
    outputs = draw(st.lists(st.sampled_from(created[2:]), min_size=1, unique=True))
    return b.planner(created[:2], outputs)


@given(programs())
def test_tenants_of_a_buffer_never_meet(planner):
    data = planned(planner)
    values, memory = data["values"], data["memory"]
    for buffer in memory["buffers"]:
        lives = [values[tensor]["live"] for tensor in buffer["tensors"]]
        assert all(before[1] < after[0] for before, after in itertools.pairwise(lives))
    for call in data["calls"]:
        for value_id in (*call["outs"], *(p for a in call["args"] for p in a["parts"] if isinstance(p, int))):
            if values[value_id]["live"] is not None:
                first, last = values[value_id]["live"]
                assert first <= call["row"] <= last
    allocated = sum(buffer["bytes"] for buffer in memory["buffers"])
    assert max(memory["in_use"]) <= allocated <= memory["unshared"]


def test_outputs_live_to_the_end_and_inputs_from_the_start():
    b = GraphBuilder()
    x, late = b.tensor(8), b.tensor(8)
    early = b.unary(x, 8)
    other = b.unary(b.unary(x, 8), 8)
    last = b.tensor(8)
    b.call("aten.add.Tensor", (other, late, b.number(1)), last)
    plan = b.plan([x, late], [early, last])
    lives = lifetimes(plan, order_of(plan.graph, plan))
    assert (lives[x], lives[late], lives[early], lives[other]) == ((0, 1), (0, 3), (0, 3), (2, 3))


def test_report_cpu_call_splits_stages_with_bytes():
    b = GraphBuilder()
    x = b.tensor(8)
    value, summed = b.unary(x, 8), b.tensor(8)
    b.call("test::on_the_cpu.out", (value,), summed, kernel=True)
    y = b.unary(summed, 8)
    data = planned(b.planner([x], [y], cpu=["test::on_the_cpu.out"]))
    assert [(s["kind"], s["first"], s["calls"]) for s in data["stages"]] == [
        ("submit", 0, 1),
        ("cpu", 1, 1),
        ("submit", 2, 1),
    ]
    assert [(s["uploads"], s["reads"], s["bytes_up"], s["bytes_down"]) for s in data["stages"]] == [
        ([x], [value], 32, 32),
        ([], [], 0, 0),
        ([summed], [y], 32, 32),
    ]
    assert data["calls"][1]["runs"] == "cpu"


# ---------------------------------------------------------------- delegates


def test_bytes_that_cross_the_borders_of_delegates():
    """Delegate 0 makes two tensors: one stays, one goes to a kernel call outside and on into delegate 2."""
    b = GraphBuilder()
    x = b.tensor(8)
    inner = b.unary(x, 8)
    border = b.unary(inner, 16)
    outside = b.unary(border, 16)
    y = b.unary(outside, 4)
    graph = b.graph([x], [y])
    origins = [Origin(0, 0, 0), Origin(0, 0, 1), Origin(1), Origin(2, 2, 0)]
    steps = tuple(replace(s, origin=o) for s, o in zip(graph.steps, origins, strict=True))
    info = DelegateInfo(0, "VulkanBackend", 2, 3, 0, 0, ())
    graph = replace(graph, steps=steps, delegates=(info, replace(info, number=2)))
    delegates = method_data(graph, None, None)["delegates"]
    assert [(d["number"], d["enters"], d["leaves"], d["bytes_in"], d["bytes_out"]) for d in delegates] == [
        (0, [x], [border], 32, 64),
        (2, [outside], [y], 64, 16),
    ]


# ---------------------------------------------------------------- repetition


def test_report_layers_are_cut_where_fewest_values_cross():
    layer = list("abcdefg")
    calls = ["x", *layer * 4, "y", "z"]
    # Two values are alive inside a layer, one between layers.
    crossings = [1 if row % 7 == 1 else 2 for row in range(len(calls) + 1)]
    assert find_repeats(calls, crossings) == [[(1, 8), (8, 15), (15, 22), (22, 29)]]
    moved = [1 if row % 7 == 4 else 2 for row in range(len(calls) + 1)]
    assert find_repeats(calls, moved)[0][0] == (4, 11)


def test_find_repeats_groups_first_and_last_layer_with_extras():
    layer = list("abcdefg")
    calls = ["x", *"abMcdefg", *layer * 3, *"abcdeNfg", "y"]
    crossings = [1 if row in (1, 9, 16, 23, 30, 38) else 2 for row in range(len(calls) + 1)]
    assert find_repeats(calls, crossings) == [[(1, 9), (9, 16), (16, 23), (23, 30), (30, 38)]]


def test_different_stages_are_different_groups():
    calls = [*"abcd" * 3, "-", *"efghi" * 2]
    assert find_repeats(calls, [0] * (len(calls) + 1)) == [
        [(0, 4), (4, 8), (8, 12)],
        [(13, 18), (18, 23)],
    ]


@pytest.mark.parametrize("calls", ["", "a", "aaaaaaaaaaaa", "abababababab", "abcdefghijkl"])
def test_find_repeats_short_sequences_are_not_folded(calls):
    assert find_repeats(list(calls), [0] * (len(calls) + 1)) == []


@given(st.lists(st.sampled_from("abcdef"), max_size=60), st.data())
def test_spans_are_disjoint_and_in_order(calls, data):
    crossings = data.draw(st.lists(st.integers(0, 3), min_size=len(calls) + 1, max_size=len(calls) + 1))
    spans = [span for group in find_repeats(calls, crossings) for span in group]
    edges = [edge for span in spans for edge in span]
    assert edges == sorted(edges) and all(0 <= edge <= len(calls) for edge in edges)


def test_report_data_fused_program_is_shown_as_formulas(tmp_path):
    x = VkTensor(DType.FLOAT32, (5, 7))
    chain = [("aten.relu.default", (0, 1)), ("aten.mul.Tensor", (1, 0, 2))]
    simple_pte(tmp_path / "p.pte", [x, x, x], chain, [0], [2])
    (call,) = report_data(tmp_path / "p.pte")["calls"]
    assert call["args"][0]["parts"] == ["v0 = relu(x0); v1 = mul(v0, x0); v1"]

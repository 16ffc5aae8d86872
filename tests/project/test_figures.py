"""Compare drawings and generated pages with the programs, classes and results that they show."""

from __future__ import annotations

import ast
import xml.etree.ElementTree as ElementTree

import pytest

from bench.trace import programs
from docs import architecture_figures, make_benchmarks, make_compilers, make_figures


def test_figures_equal_current_plan():
    for name, text in make_figures.drawings().items():
        drawn = (make_figures.FIGURES / name).read_text(encoding="utf-8")
        assert drawn == text, f"docs/figures/{name} is out of date: python -m docs.make_figures"
        ElementTree.fromstring(text)


@pytest.mark.parametrize("box", architecture_figures.BOXES, ids=lambda box: box.name)
def test_architecture_box_name_is_defined_in_its_module(box):
    tree = ast.parse((make_figures.HERE.parent / "src" / "webpte" / box.module).read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    assert box.name in {node.name for node in tree.body if isinstance(node, kinds)}


def test_figure_of_layer_draws_all_kernels():
    """Every call of the first layer has its line to what does its work, and every dispatch one from its call."""
    result = make_figures.facts()
    block = result.report["repeats"][0][0]
    planned = result.report["calls"][block["first"] : block["first"] + block["calls"]]
    inside = {call["row"] for call in planned}
    before = [row for row in make_figures.fused_row(result) if row in inside]
    kernels = sum(len(call["kernels"]) for call in planned)
    assert len(before) > len(planned) > kernels > 0 and set(before) == inside
    drawn = make_figures.layer(result).svg()
    assert drawn.count('class="line') == len(before) + kernels


def test_figures_draw_all_dispatches_and_buffers():
    result = make_figures.facts()
    assert len(result.many) == sum(len(call["kernels"]) for call in result.report["calls"])
    assert len(result.one) < len(result.many)  # layers of few rows normalize them
    assert sum(groups for _, groups in result.one) < sum(groups for _, groups in result.many)
    drawn, planned = make_figures.memory(result).svg(), result.report["memory"]
    assert planned is not None
    buffers = [b for b in planned["buffers"] if b["kind"] == "activation"]
    assert drawn.count("<rect") == sum(len(b["tensors"]) for b in buffers)


def test_benchmarks_page_equals_stored_results():
    for path, text in make_benchmarks.files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: python -m docs.make_benchmarks"


def test_wrong_results_never_count_as_fast():
    assert make_benchmarks.milliseconds({"x": {"cannot": None, "wrong": True, "seconds": 1.0}}, "x") is None
    assert make_benchmarks.milliseconds({"x": {"cannot": "no", "wrong": False, "seconds": 1.0}}, "x") is None
    assert make_benchmarks.milliseconds({"x": {"milliseconds": 2.0, "right": False}}, "x") is None
    assert make_benchmarks.milliseconds({"x": {"milliseconds": 2.0, "right": True}}, "x") == 2.0


def test_compilers_page_equals_stored_figures():
    page = make_compilers.PAGE.read_text(encoding="utf-8")
    assert page == make_compilers.text(), "docs/compilers.md is out of date: python -m docs.make_compilers"


def test_compilers_page_equals_stored_memory_figures():
    page = programs.PAGE.read_text(encoding="utf-8")
    assert page == programs.page(), "docs/compilers.md is out of date: python -m bench.trace.programs --write"


def test_summary_of_a_decode_step_adds_the_segments_of_each_operand():
    def access(kernel, variable, kind="constant", direction="load", weight=64, share=1.0):
        return programs.Access(kernel, variable, kind, direction, weight, 1.0, 1.0, share, 1.0)

    decode = [
        access("linear", "weight0"),
        access("linear", "scales0", share=0.5),
        access("linear", "x", "activation", weight=300, share=1.0),
        access("gate", "weight0"),
        access("gate", "x", "activation", weight=100, share=0.25),
        access("linear", "norm", share=0.125),
        access("gather", "x", "activation", share=0.5),  # a kernel without weights
        access("linear", "y0", "activation", "store", share=0.25),
        access("attention", "keys", "state", share=0.8),
        access("attention", "keys", "state", "store"),
    ]
    summary = programs.summary(decode, [access("attention", "keys", "state", share=0.75)])
    assert summary[:-2] == (1, 1, 1, 400 / 700, 0.125, 0.5, 0.25, 0.75)

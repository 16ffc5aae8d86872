"""Signatures of methods, and calls that differ from them. Needs no device."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkTensor
from webpte.debug.inspect import inspect_file
from webpte.plan import Planner
from webpte.plan.plan_reader import load_plan
from webpte.plan.plan_writer import save_plan
from webpte.runtime.arguments import signature
from webpte.runtime.converter import ArgumentConverter
from webpte.wgsl import Caps

F32 = DType.FLOAT32


def linear() -> Planner:
    """forward(x, y) = (x @ weight.T, y) for up to 11 rows of 29 columns; y has up to 5 rows of 7."""
    b = GraphBuilder()
    x, y = b.tensor(11, 29, dynamic=True), b.tensor(5, 7, dynamic=True)
    weight, out = b.constant(np.ones((3, 29), np.float32)), b.tensor(11, 3, dynamic=True)
    b.call("aten.linear.default", (x, weight, b.null()), out)
    other = b.constant(np.ones((2, 7), np.float32))
    second = b.tensor(5, 2, dynamic=True)
    b.call("aten.linear.default", (y, other, b.null()), second)
    return b.planner([x, y], [out, second])


def ones(*dims: int) -> np.ndarray:
    return np.ones(dims, np.float32)


def test_signature_outputs_show_only_varying_dims():
    plan = linear().plan
    expected = "forward(in0: f32[<=11, 29], in1: f32[<=5, 7]) -> out0: f32[<=11, 3], out1: f32[<=5, 2]"
    assert signature(plan.graph, plan.dynamic_dims) == expected


def test_bind_inputs_wrong_fixed_dim_names_input_and_signature():
    planner = linear()
    with raises(webpte.InputError, "input 0 of forward", "f32[<=11, 29]", "[3, 28]", code="shape") as caught:
        ArgumentConverter(planner).bind_inputs([ones(3, 28), ones(5, 7)])
    assert caught.value.expected == "f32[<=11, 29]" and caught.value.got == "shape [3, 28]"


@pytest.mark.parametrize(
    ("x", "y", "code"),
    [
        (ones(3, 28), ones(5, 6), "shape"),
        (ones(3, 28), ones(6, 7), "several"),
        (ones(3, 28), np.ones((5, 7)), "several"),
        (ones(3), ones(7), "rank"),
    ],
)
def test_bind_inputs_several_wrong_lists_all(x, y, code):
    with raises(webpte.InputError, "2 inputs of forward", "input 0 of forward", "input 1 of forward", code=code):
        ArgumentConverter(linear()).bind_inputs([x, y])


def test_bind_inputs_dim_in_steps_of_eight_is_accepted():
    """A trial at 23 rows fails, so the signature shows 24 as fixed. The program takes 16 rows all the same."""
    b = GraphBuilder()
    x, out = b.tensor(24, dynamic=True), b.tensor(3, 8, dynamic=True)
    b.call("aten.view_copy.default", (x, b.list(b.number(-1), b.number(8))), out)
    converter = ArgumentConverter(b.planner([x], [out]))
    assert str(converter.inputs[0]) == "f32[24]"
    assert converter.bind_inputs([ones(16)]).dims[x] == (16,)
    with raises(webpte.InputError, "f32[24]", "[15]", code="shape"):
        converter.bind_inputs([ones(15)])


def test_bind_inputs_shape_that_depends_on_cpu_result_is_accepted():
    """Trials take results of the CPU at their bound, so a dim that follows one is shown as fixed and still varies."""
    b = GraphBuilder()
    x, y = b.tensor(6, dynamic=True), b.tensor(6, dynamic=True)
    b.call("own::twice", (x,), y, kernel=True)
    out = b.tensor(6, dynamic=True)
    b.call("aten.add.Tensor", (x, y, b.number(1)), out)
    planner = b.planner([x], [out], cpu=["own::twice"])
    assert signature(planner.plan.graph, planner.plan.dynamic_dims) == "forward(in0: f32[6]) -> out0: f32[<=6]"
    assert ArgumentConverter(planner).bind_inputs([ones(4)]).dims[x] == (4,)


@pytest.fixture
def file(tmp_path):
    """forward(x) = x @ w for up to 5 rows of 3."""
    path = tmp_path / "rows.pte"
    values = [VkTensor(F32, (5, 3)), VkTensor(F32, (3, 2), constant_id=0), VkTensor(F32, (5, 2))]
    simple_pte(path, values, [("aten.mm.default", (0, 1, 2))], [0], [2], [np.ones((3, 2), np.float32)], dynamic=True)
    return path


SIGNATURE = "forward(in0: f32[<=5, 3]) -> out0: f32[<=5, 2]"


def test_program_signature_before_planning_equals_plan_and_inspect(file):
    with webpte.load(file) as program:
        plan = program.plan("forward", Caps())
        assert signature(plan.graph, plan.dynamic_dims) == SIGNATURE
        assert repr(program).splitlines()[1].strip() == SIGNATURE
    (method,) = inspect_file(file)["methods"]
    assert [one["text"] for one in (*method["inputs"], *method["outputs"])] == ["f32[<=5, 3]", "f32[<=5, 2]"]


def test_saved_plan_wrong_fixed_dim_names_signature(file, tmp_path):
    with webpte.load(file) as program:
        planner = program.planner("forward", Caps())
        planner.prepare(planner.plan.flow.segments[0], ArgumentConverter(planner).bind_inputs([ones(4, 3)]))
        save_plan(planner, tmp_path / "plan")
    loaded = load_plan(tmp_path / "plan", [file])
    scheduler = loaded.scheduler
    assert signature(scheduler.plan.graph, scheduler.plan.dynamic_dims) == SIGNATURE
    converter = ArgumentConverter(scheduler)
    with raises(webpte.InputError, "input 0 of forward", "f32[<=5, 3]", "[4, 2]", code="shape"):
        converter.bind_inputs([ones(4, 2)])
    with raises(webpte.ShapeError, "[4, 3]", "[2, 3]", code="not_saved"):
        scheduler.prepare(scheduler.plan.flow.segments[0], converter.bind_inputs([ones(2, 3)]))
    for one in loaded.files:
        one.close()

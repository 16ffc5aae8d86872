"""Plans as files: what is in them, and what is refused of one that was damaged or belongs to another program."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable

import numpy as np
import pytest

import webpte
from tests.support.harness.graphs import live
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkInt, VkSymInt, VkTensor
from webpte.graph.expressions import Apply, Element, Given, Sum
from webpte.lowering import Binding, Dispatch, Guard
from webpte.plan import Block, Buffer, Fill, HostCalls, Layout, Plan, Schedule, Scratch, Segment, load_plan, save_plan
from webpte.plan.schedules import LoweredCall
from webpte.wgsl import Caps, Kernel

F32 = DType.FLOAT32
VALUES = (
    Plan, Layout, Block, Segment, HostCalls, Buffer, Fill, Scratch, Schedule, LoweredCall, Dispatch, Binding, Guard,
    Kernel, Element, Given, Sum, Apply,
)  # fmt: skip


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_no_field_holds_a_function(kind):
    hints = typing.get_type_hints(kind)
    fields = kind._fields if hasattr(kind, "_fields") else [field.name for field in dataclasses.fields(kind)]
    for name in fields:
        assert "Callable" not in str(hints[name]) and hints[name] is not Callable, name


@pytest.fixture
def saved(tmp_path):
    """rows = table[pos], of a constant table, planned and lowered at one position; the folder and the file."""
    file = tmp_path / "rows.pte"
    values = [
        VkTensor(DType.INT32, (1,)),
        VkTensor(F32, (5, 3), constant_id=0),
        VkInt(0),
        VkSymInt(0),
        VkTensor(F32, (3,)),
    ]
    calls = [("et_vk.select_as_symint.default", (0, 2, 2, 3)), ("aten.select_copy.int", (1, 2, 3, 4))]
    simple_pte(file, values, calls, [0], [4], [np.arange(15, dtype=np.float32).reshape(5, 3)])
    with webpte.load(file) as program:
        planner = program.planner("forward", Caps())
        (segment,) = planner.plan.layout.segments
        (position,) = planner.plan.graph.inputs
        planner.prepare(segment, live({position: (1,)}, {position: [2]}))
        save_plan(planner, tmp_path / "plan")
    return tmp_path / "plan", file


def test_a_schedule_is_found_and_evaluated_without_a_graph(saved):
    folder, file = saved
    scheduler = load_plan(folder, [file])
    (segment,) = scheduler.plan.layout.segments
    (position,) = scheduler.plan.graph.inputs
    schedule, slots = scheduler.prepare(segment, live({position: (1,)}, {position: [4]}))
    assert [*slots.values()] == [4] and len(schedule.dispatches) == 1
    with pytest.raises(webpte.GuardError, match=r"select_copy.*index 5 is outside dim 0 of \[5, 3\]"):
        scheduler.prepare(segment, live({position: (1,)}, {position: [5]}))
    assert not scheduler.plan.graph.calls or all(call.name == "" for call in scheduler.plan.graph.calls)


def test_it_names_no_place_of_this_machine(saved):
    folder, file = saved
    text = (folder / "plan.json").read_text()
    assert str(file.parent) not in text and "rows.pte" in text
    assert all(str(file.parent) not in kernel.read_text() for kernel in folder.glob("*.wgsl"))


def test_shapes_that_were_not_saved_are_refused_by_number(saved):
    folder, file = saved
    scheduler = load_plan(folder, [file])
    (segment,) = scheduler.plan.layout.segments
    (position,) = scheduler.plan.graph.inputs
    with pytest.raises(webpte.ShapeError, match=r"saved with 1 schedules, none of them for value 0 \[2\]"):
        scheduler.prepare(segment, live({position: (2,)}, {position: [4, 4]}))


def test_another_file_is_refused(saved, tmp_path):
    folder, file = saved
    other = tmp_path / "other.pte"
    other.write_bytes(file.read_bytes())
    with pytest.raises(webpte.InputError, match=r"constants lie in rows.pte of \d+ bytes; given was other.pte"):
        load_plan(folder, [other])


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("version",), 2),
        (("kernels", 0, "reads"), 7),
        (("places",), {}),
        (("schedules", 0, "slots"), [[0, ["element", 0]]]),
        (("schedules", 0, "slots"), [[0, ["system", 1, 2]]]),
        (("schedules", 0, "calls", 0, 1, 0, 0), 9),
        (("parameters", 0), "no base64!"),
        (("buffers", 0, "kind"), None),
        (("values", "0", "dtype"), "f7"),
    ],
    ids=str,
)
def test_a_damaged_plan_is_refused(saved, where, value):
    folder, file = saved
    data = json.loads((folder / "plan.json").read_text())
    *path, last = where
    inner = data
    for step in path:
        inner = inner[step]
    inner[last] = value
    (folder / "plan.json").write_text(json.dumps(data))
    with pytest.raises(webpte.Error):
        load_plan(folder, [file])


def test_cpu_kernels_that_are_not_there_are_named(saved):
    folder, file = saved
    data = json.loads((folder / "plan.json").read_text())
    data["cpu"]["7"] = {"name": "aten::nonzero.out", "args": [], "outs": [], "kernel": True, "origin": [1, None, None]}
    (folder / "plan.json").write_text(json.dumps(data))
    with pytest.raises(webpte.UnsupportedError, match=r"needs CPU kernels that are not here: aten::nonzero.out"):
        load_plan(folder, [file])

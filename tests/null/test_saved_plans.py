"""Plans as files: what is in them, and what is refused of one that was damaged or belongs to another program."""

from __future__ import annotations

import dataclasses
import json
import os
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
from webpte.runtime.saved_plan import refuse_device
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
    file = tmp_path / "model" / "rows.pte"
    file.parent.mkdir()
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


def opened(folder, *files):
    found = load_plan(folder, files)
    for file in found.files:
        file.close()
    return found.scheduler


def prepare(scheduler, position):
    """The schedule of the only segment for an input that holds a position."""
    (segment,) = scheduler.plan.layout.segments
    (value,) = scheduler.plan.graph.inputs
    return scheduler.prepare(segment, live({value: np.shape(position)}, {value: position}))


def test_a_schedule_is_found_and_evaluated_without_a_graph(saved):
    folder, file = saved
    scheduler = opened(folder, file)
    schedule, slots = prepare(scheduler, [4])
    assert [*slots.values()] == [4] and len(schedule.dispatches) == 1
    with pytest.raises(webpte.GuardError, match=r"select_copy.*index 5 is outside dim 0 of \[5, 3\]"):
        prepare(scheduler, [5])
    assert [call.name for call in scheduler.plan.graph.calls] == ["webpte.saved"]


def test_what_was_opened_is_saved_as_it_was(saved, tmp_path):
    folder, file = saved
    found = load_plan(folder, [file])
    save_plan(found.scheduler, tmp_path / "again", found.fingerprint)
    assert {p.name for p in folder.iterdir()} == {p.name for p in (tmp_path / "again").iterdir()}
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_a_smaller_plan_leaves_nothing_of_a_larger_one_behind(saved):
    folder, file = saved
    (folder / "kernel7.wgsl").write_text("of an older plan")
    save_plan(opened(folder, file), folder)
    assert sorted(p.name for p in folder.iterdir()) == ["kernel0.wgsl", "plan.json"]


def test_a_folder_of_something_else_is_left_alone(saved, tmp_path):
    folder, file = saved
    with pytest.raises(webpte.InputError, match="holds something else than a plan"):
        save_plan(opened(folder, file), file.parent)
    assert [p.name for p in file.parent.iterdir()] == ["rows.pte"]


def test_it_names_no_place_of_this_machine(saved):
    folder, file = saved
    text = (folder / "plan.json").read_text()
    assert str(file.parent) not in text and "rows.pte" in text
    assert all(str(file.parent) not in kernel.read_text() for kernel in folder.glob("*.wgsl"))


def test_shapes_that_were_not_saved_are_refused_with_those_that_were(saved):
    folder, file = saved
    wanted = r"saved for input 0 \[1\]; given was input 0 \[2\]. Call it with the program"
    with pytest.raises(webpte.ShapeError, match=wanted):
        prepare(opened(folder, file), [4, 4])


def test_files_are_known_by_their_contents(saved, tmp_path):
    folder, file = saved
    renamed = tmp_path / "another name"
    renamed.write_bytes(file.read_bytes())
    opened(folder, renamed)
    with pytest.raises(webpte.InputError, match=r"constants lie in rows.pte of \d+ bytes; found was no file"):
        opened(folder)
    (folder / "rows.pte").write_bytes(file.read_bytes())
    opened(folder)  # it is looked for there
    other = bytearray(file.read_bytes())
    other[-1] ^= 1
    renamed.write_bytes(other)
    (folder / "rows.pte").unlink()
    with pytest.raises(webpte.InputError, match=r"another name of \d+ bytes with other contents"):
        opened(folder, renamed)
    with pytest.raises(webpte.InputError, match=r"missing.pte: cannot be read"):
        opened(folder, tmp_path / "missing.pte")


def changed(folder, where, value):
    """Write the plan with one field replaced."""
    data = json.loads((folder / "plan.json").read_text())
    *path, last = where
    inner = data
    for step in path:
        inner = inner[step]
    inner[last] = value
    (folder / "plan.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("version",), 2, "the plan has version 2; known is 1"),
        (("kernels", 0, "reads"), 7, "bindings is .* not a list of 8"),
        (("kernels", 0, "sha256"), "0" * 64, "kernel0.wgsl is not the text that was saved"),
        (("places",), {}, r"values \[\d+\] are copied to or from the device, and have no place"),
        (("schedules", 0, "slots"), [[0, ["element", 0]]], "is not a term"),
        (("schedules", 0, "slots"), [[0, ["system", 1, 2]]], "is not a term"),
        (("schedules", 0, "slots"), [[256, ["element", 0, [0], True]]], "a slot is 256, not a whole number"),
        (("schedules", 0, "slots"), [[0, ["element", 0, [1], True]]], r"stands on %0\[1\], which does not exist"),
        (("schedules", 0, "slots"), [[0, ["element", 0, [0], False]]], "stands on"),
        (("schedules", 0, "dispatches", 0, 0), 9, "the kernel of a dispatch is 9"),
        (("schedules", 0, "dispatches", 0, 1, 0, 1), 4, "cannot be bound"),
        (("schedules", 0, "dispatches", 0, 1, 0, 2), 1 << 20, "cannot be bound"),
        (("schedules", 0, "dispatches", 0, 1, 1, 0), 0, "would read and write buffers"),
        (("schedules", 0, "dispatches", 0, 3, 1), 1 << 20, "a size of a grid is 1048576"),
        (("schedules", 0, "made"), {}, "read back, but a schedule does not tell their shapes"),
        (("schedules", 0, "guards", 0, "message"), "{7}", "names more than 0 further terms"),
        (("parameters", 0), "no base64!", "is no parameter block"),
        (("parameters", 0), "AAAAAA" * 100, "is no parameter block|a parameter block has"),
        (("buffers", 0, "kind"), None, "is not a buffer"),
        (("buffers", 0, "bytes"), 16, "overflows a buffer of 16 bytes"),
        (("buffers", 0, "fill", "spans", 0, 1), 1 << 40, "asked of a file of"),
        (("values", "0", "dtype"), "f7", "'f7' is not a dtype"),
        (("values", "99999999999"), {"kind": "null"}, "where a number up to 999999 names something"),
        (("inputs",), [77], "inputs is 77"),
        (("blocks", 0, "stages"), [], "do not stand in the blocks"),
        (("files", 0, "name"), "../rows.pte", "is not the name of a file"),
        (("limits", "max-buffer-size"), 1 << 40, "its limits are"),
        (("features",), ["shader-f16"], "its features are"),
        (("name",), "\x1b[2J", "not a text of at most 4096 printable characters"),
    ],
    ids=str,
)
def test_a_damaged_plan_is_refused(saved, where, value, message):
    folder, file = saved
    changed(folder, where, value)
    with pytest.raises(webpte.FormatError, match=message):
        opened(folder, file)


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "[]", "null", '{"format": "webpte plan"}', "\u00e4", "1" * 9999]
)
def test_what_is_no_plan_is_refused(saved, text):
    folder, file = saved
    (folder / "plan.json").write_text(text, encoding="utf-8")
    with pytest.raises((webpte.FormatError, webpte.InputError)):
        opened(folder, file)


def test_pipes_and_missing_kernels_are_refused(saved):
    folder, file = saved
    (folder / "kernel0.wgsl").unlink()
    with pytest.raises(webpte.FormatError, match=r"kernel0.wgsl: cannot be read"):
        opened(folder, file)
    os.mkfifo(folder / "kernel0.wgsl")
    with pytest.raises(webpte.FormatError, match=r"kernel0.wgsl: is not a regular file"):
        opened(folder, file)


def leaf_paths(data, path=()):
    """The way to every number, text and empty thing of a document."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, item in inner:
        yield (*path, step)
        yield from leaf_paths(item, (*path, step))


STRANGE: tuple[object, ...] = (
    None,
    -1,
    0,
    1,
    3,
    255,
    1 << 20,
    2**31,
    2**63,
    10**30,
    0.5,
    "",
    "x",
    "nan",
    True,
    [],
    [[]],
    {},
    {"0": 0},
)


def test_one_changed_field_is_refused_or_changes_nothing_it_should_not(saved):
    """Every field by something strange: an error of ours, or a plan that can be asked for its schedule."""
    folder, file = saved
    original = (folder / "plan.json").read_text()
    random = np.random.default_rng(5)
    paths = list(leaf_paths(json.loads(original)))
    assert len(paths) > 100
    refused = 0
    for path in paths:
        changed(folder, path, STRANGE[random.integers(len(STRANGE))])
        try:
            prepare(opened(folder, file), [4])
        except webpte.Error:
            refused += 1
        finally:
            (folder / "plan.json").write_text(original)
    assert refused > len(paths) // 2


def test_cpu_kernels_that_are_not_there_are_named(saved):
    folder, file = saved
    call = {"name": "aten::nonzero.out", "args": [], "outs": [], "kernel": True, "origin": [1, None, None]}
    changed(folder, ("cpu",), [call])
    with pytest.raises(webpte.UnsupportedError, match=r"needs CPU kernels that are not here: aten::nonzero.out"):
        opened(folder, file)


@pytest.mark.parametrize(
    ("caps", "lacks"),
    [
        (Caps(), "shader-f16; subgroup; max-buffer-size of 536870912, it has 268435456"),
        (
            Caps(features=frozenset({"shader-f16", "subgroup"}), subgroup=4),
            "subgroups of 8 invocations, it has 4; max-b",
        ),
    ],
    ids=str,
)
def test_a_device_that_has_less_is_told_what_it_lacks(saved, caps, lacks):
    folder, file = saved
    plan = opened(folder, file).plan
    more = dataclasses.replace(plan, subgroup=8, buffers=(*plan.buffers, Buffer(1 << 29, "activation", ())))
    with pytest.raises(webpte.DeviceError, match=lacks):
        refuse_device(more, ["shader-f16", "subgroup"], caps)

"""Plans as files: what is in them, and what is refused of one that was damaged or belongs to another program."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from random import Random

import numpy as np
import pytest

import webpte
from tests.studies.fuzz.documents import changed, replaced, save_rows, ways_by_field
from tests.support.harness.errors import raises
from tests.support.harness.graphs import live
from tests.support.harness.writer import simple_pte
from webpte.container import DType, MappedFile, VkInt, VkSymInt, VkTensor
from webpte.graph.expressions import Element
from webpte.lowering import Dispatch, Guard
from webpte.plan import Buffer, Plan, Schedule
from webpte.plan.plan_reader import load_plan
from webpte.plan.plan_writer import save_plan
from webpte.runtime.saved_plan import refuse_device
from webpte.wgsl import Caps, Kernel

F32 = DType.FLOAT32
PLAIN = {int, float, bool, str, bytes, type(None), DType, Ellipsis}
FILES = {MappedFile}  # by name, size and hash
UNKNOWN = {object}  # flags of kernels: those of a real plan are looked at below


def fields_of(kind):
    hints = typing.get_type_hints(kind)
    return {name: hints[name] for name in getattr(kind, "_fields", None) or [f.name for f in dataclasses.fields(kind)]}


def types_in(hint, seen):
    """Every type that a field of this type may hold, fields of its own included."""
    if hint in seen:
        return
    seen.add(hint)
    for inner in typing.get_args(hint):
        types_in(inner, seen)
    origin = typing.get_origin(hint) or hint
    if dataclasses.is_dataclass(origin) or hasattr(origin, "_fields"):
        for inner in fields_of(origin).values():
            types_in(inner, seen)


@pytest.mark.parametrize("kind", [Plan, Schedule, Dispatch, Kernel, Guard], ids=lambda kind: kind.__name__)
def test_saved_plan_types_hold_no_functions(kind):
    """All reachable types are values: plain types, those of the package, and collections of them."""
    seen: set[typing.Any] = set()
    types_in(kind, seen)
    assert len(seen) > 5
    strange = {
        hint
        for hint in seen
        if not (typing.get_args(hint) or dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"))
        and hint not in PLAIN | FILES | UNKNOWN
    }
    collections = {typing.get_origin(hint) for hint in seen if typing.get_args(hint)}
    assert not strange and collections <= {tuple, dict, frozenset, types.UnionType, typing.Union}


def test_saved_plan_holds_only_values(saved):
    """A real plan holds values only, also in fields that are typed as `object`."""
    _, file = saved
    with webpte.load(file) as program:
        planner = program.planner("forward", Caps())
        (segment,) = planner.plan.flow.segments
        (value,) = planner.plan.graph.inputs
        schedule, _ = planner.prepare(segment, live({value: (1,)}, {value: [2]}))
        left = [planner.plan, schedule]
        kinds = set()
        while left:
            item = left.pop()
            kinds.add(type(item))
            if dataclasses.is_dataclass(item):
                left += [getattr(item, field.name) for field in dataclasses.fields(item)]
            elif isinstance(item, dict):
                left += [*item, *item.values()]
            elif isinstance(item, (tuple, frozenset)):
                left += item
            else:
                assert type(item) in PLAIN | FILES, item
    assert {Plan, Schedule, Dispatch, Kernel, Guard, Element} <= kinds


@pytest.fixture
def saved(tmp_path):
    """row = table[position], planned and lowered at one position; the folder and the file."""
    return save_rows(tmp_path)


def opened(folder, *files):
    result = load_plan(folder, files)
    for file in result.files:
        file.close()
    return result.scheduler


def prepare(scheduler, position):
    """Return the schedule of the only segment for an input that holds a position."""
    (segment,) = scheduler.plan.flow.segments
    (value,) = scheduler.plan.graph.inputs
    return scheduler.prepare(segment, live({value: np.shape(position)}, {value: position}))


def test_saved_plan_schedule_evaluates_without_graph(saved):
    folder, file = saved
    scheduler = opened(folder, file)
    schedule, slots = prepare(scheduler, [4])
    assert [*slots.values()] == [4] and len(schedule.dispatches) == len(schedule.work) == 1
    with raises(webpte.GuardError, "aten.select_copy.int", "index 5 ", "dim 0 of [5, 3]"):
        prepare(scheduler, [5])
    assert [call.name for call in scheduler.plan.graph.calls] == ["webpte.saved"]


def test_saved_plan_opened_saves_same_bytes(saved, tmp_path):
    folder, file = saved
    result = load_plan(folder, [file])
    save_plan(result.scheduler, tmp_path / "again", result.fingerprint)
    assert {p.name for p in folder.iterdir()} == {p.name for p in (tmp_path / "again").iterdir()}
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_saved_plan_smaller_one_removes_old_files(saved):
    folder, file = saved
    (folder / "kernel7.wgsl").write_text("of an older plan")
    save_plan(opened(folder, file), folder)
    assert sorted(p.name for p in folder.iterdir()) == ["kernel0.wgsl", "plan.json"]


def test_saved_plan_other_folder_is_not_overwritten(saved, tmp_path):
    folder, file = saved
    with raises(webpte.InputError, file.parent, code="foreign_folder"):
        save_plan(opened(folder, file), file.parent)
    assert [p.name for p in file.parent.iterdir()] == ["rows.pte"]


def test_saved_plan_contains_no_paths(saved):
    folder, file = saved
    text = (folder / "plan.json").read_text()
    assert str(file.parent) not in text and "rows.pte" in text
    assert all(str(file.parent) not in kernel.read_text() for kernel in folder.glob("*.wgsl"))


def test_shapes_that_were_not_saved_are_refused_with_those_that_were(saved):
    folder, file = saved
    with raises(webpte.ShapeError, "input 0 [1];", "input 0 [2].", code="not_saved"):
        prepare(opened(folder, file), [4, 4])


def test_files_are_known_by_their_contents(saved, tmp_path):
    folder, file = saved
    renamed = tmp_path / "another name"
    renamed.write_bytes(file.read_bytes())
    opened(folder, renamed)
    with raises(webpte.InputError, "rows.pte", f"{file.stat().st_size} bytes", code="missing_file"):
        opened(folder)
    (folder / "rows.pte").write_bytes(file.read_bytes())
    opened(folder)  # it is looked for there
    other = bytearray(file.read_bytes())
    other[-1] ^= 1
    renamed.write_bytes(other)
    (folder / "rows.pte").unlink()
    with raises(webpte.InputError, "rows.pte", f"{renamed} of {len(other)} bytes", code="missing_file"):
        opened(folder, renamed)
    with raises(webpte.InputError, "missing.pte", code="unreadable"):
        opened(folder, tmp_path / "missing.pte")


def change(folder, where, value):
    """Write the plan with one field replaced."""
    document = folder / "plan.json"
    document.write_text(replaced(document.read_text(), where, value))


@pytest.mark.parametrize(
    ("where", "value", "code", "expected"),
    [
        (("version",), 1, "unknown_version", ["version 2", "got version 1", "Method.save"]),
        (("version",), 3, "unknown_version", ["version 2", "got version 3", "later"]),
        (("format",), "webpte bundle", "bad_magic", ["'webpte plan'"]),
        (("kernels", 0, "reads"), 7, "invalid_field", ["bindings: ", "of 8"]),
        (("kernels", 0, "sha256"), "0" * 64, "hash_mismatch", ["kernel0.wgsl"]),
        (("value_buffers",), {}, "unplaced_value", ["values [1]"]),
        (("schedules", 0, "slots"), [[0, ["element", 0]]], "invalid_term", ["['element', 0]"]),
        (("schedules", 0, "slots"), [[0, ["system", 1, 2]]], "invalid_term", ["['system', 1, 2]"]),
        (("schedules", 0, "slots"), [[256, ["element", 0, [0], True]]], "invalid_field", ["slot: ", "got 256"]),
        (("schedules", 0, "slots"), [[0, ["element", 0, [1], True]]], "unknown_value", ["%0[1]"]),
        (("schedules", 0, "slots"), [[0, ["element", 0, [0], False]]], "unknown_value", ["%0[0]"]),
        (("schedules", 0, "dispatches", 0, 0), 9, "invalid_field", ["dispatch: ", "got 9"]),
        (("schedules", 0, "dispatches", 0, 1, 0, 1), 4, "binding_out_of_bounds", ["bytes 4 to", "buffer 0,"]),
        (("schedules", 0, "dispatches", 0, 1, 0, 2), 1 << 20, "binding_out_of_bounds", ["0 to 1048576 "]),
        (("schedules", 0, "dispatches", 0, 1, 1, 0), 0, "aliased_buffers", ["buffers [0]"]),
        (("schedules", 0, "work"), [[1, 1]] * 9, "invalid_field", ["work of dispatches: "]),
        (("schedules", 0, "work"), [[-1, 1]], "invalid_field", ["work: ", "got -1"]),
        (("schedules", 0, "dispatches", 0, 3, 1), 1 << 20, "invalid_field", ["grid: ", "got 1048576"]),
        (("schedules", 0, "result_dims"), {}, "missing_shape", ["values [1]"]),
        (("schedules", 0, "guards", 0, "message"), "{7}", "guard_message", []),
        (("parameters", 0), "no base64!", "parameter_block", ["'no base64!'"]),
        (("parameters", 0), "AAAAAA" * 100, "parameter_block", ["450 bytes"]),
        (("buffers", 0, "kind"), None, "buffer_kind", ["None of "]),
        (("buffers", 0, "bytes"), 16, "data_too_large", ["16 bytes"]),
        (("buffers", 0, "fill", "spans", 0, 1), 1 << 40, "out_of_bounds", ["rows.pte", f"bytes {1 << 40} to"]),
        (("values", "0", "dtype"), "f7", "unknown_dtype", ["'f7'"]),
        (("values", "99999999999"), {"kind": "null"}, "invalid_field", ["values", "'99999999999'", "999999,"]),
        (("inputs",), [77], "invalid_field", ["inputs: ", "got 77"]),
        (("blocks", 0, "stages"), [], "block_order", ["1 segments"]),
        (("files", 0, "name"), "../rows.pte", "file_name", ["'../rows.pte'"]),
        (("limits", "max-buffer-size"), 1 << 40, "contradiction", ["limits", f"'max-buffer-size': {1 << 40}"]),
        (("features",), ["shader-f16"], "contradiction", ["features", "['shader-f16']"]),
        (("name",), "\x1b[2J", "invalid_field", ["name: ", "got '\\x1b[2J'"]),
    ],
    ids=str,
)
def test_saved_plan_damaged_is_refused(saved, where, value, code, expected):
    folder, file = saved
    change(folder, where, value)
    with raises(webpte.FormatError, *expected, code=code):
        opened(folder, file)


def test_load_plan_upload_larger_than_its_buffer_is_refused(decided):
    """An input of [5, 3] takes 60 bytes, padded to 64. No dispatch binds the buffer that it is moved to."""
    change(decided, ("value_buffers", "1"), 2)
    buffers = json.loads((decided / "plan.json").read_text())["buffers"]
    change(decided, ("buffers",), [*buffers, {"bytes": 64, "kind": "activation", "fill": None}])
    assert opened(decided).plan.buffer_of[1] == 2
    change(decided, ("buffers", 2, "bytes"), 48)
    with raises(webpte.FormatError, "value 1 ", "buffer 2"):
        opened(decided)


def test_load_plan_upload_into_a_constant_is_refused(saved):
    """Buffer 0 holds the table, with room for the input of one number; buffer 1 is an activation."""
    folder, file = saved
    change(folder, ("segments", 0, "uploads"), [0])
    change(folder, ("value_buffers", "0"), 1)
    assert opened(folder, file).plan.buffer_of[0] == 1
    change(folder, ("value_buffers", "0"), 0)
    with raises(webpte.FormatError, "values [0]"):
        opened(folder, file)


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "[]", "null", '{"format": "webpte plan"}', "\u00e4", "1" * 9999]
)
def test_saved_plan_other_file_is_refused(saved, text):
    folder, file = saved
    (folder / "plan.json").write_text(text, encoding="utf-8")
    with pytest.raises((webpte.FormatError, webpte.InputError)):
        opened(folder, file)


def test_pipes_and_missing_kernels_are_refused(saved):
    folder, file = saved
    (folder / "kernel0.wgsl").unlink()
    with raises(webpte.FormatError, "kernel0.wgsl", code="unreadable"):
        opened(folder, file)
    os.mkfifo(folder / "kernel0.wgsl")
    with raises(webpte.FormatError, "kernel0.wgsl", code="not_regular_file"):
        opened(folder, file)


def test_saved_plan_changed_field_is_refused_or_harmless(saved):
    """Every field by something else: an error of ours, or a plan that can be asked for its schedule."""
    folder, file = saved
    original = (folder / "plan.json").read_text()
    fields, random = ways_by_field(original), Random(5)
    assert len(fields) > 60
    refused = 0
    for field in [*fields] * 8:
        (folder / "plan.json").write_text(changed(original, random.choice(fields[field]), random))
        try:
            prepare(opened(folder, file), [4])
        except webpte.Error:
            refused += 1
    assert refused > 4 * len(fields)


def test_saved_plan_missing_cpu_kernels_are_named(saved):
    folder, file = saved
    call = {"name": "aten::nonzero.out", "args": [], "outs": [], "kernel": True, "origin": [1, None, None]}
    change(folder, ("cpu_calls",), [call])
    with raises(webpte.UnsupportedError, "aten::nonzero.out", code="no_cpu_kernel"):
        opened(folder, file)


@pytest.mark.parametrize(
    ("caps", "lacks"),
    [
        (Caps(), ["shader-f16; subgroup;", "max-buffer-size of 536870912", "has 268435456"]),
        (
            Caps(features=frozenset({"shader-f16", "subgroup"}), subgroup=4),
            ["subgroups of 8 ", "has 4)", "max-buffer-size of 536870912"],
        ),
    ],
    ids=["nothing", "small subgroups"],
)
def test_saved_plan_weaker_device_error_lists_lacks(saved, caps, lacks):
    folder, file = saved
    plan = opened(folder, file).plan
    more = dataclasses.replace(plan, subgroup=8, buffers=(*plan.buffers, Buffer(1 << 29, "activation", ())))
    with raises(webpte.DeviceError, *lacks, code="over_limits"):
        refuse_device(more, ["shader-f16", "subgroup"], caps)


@pytest.fixture
def decided(tmp_path):
    """Return a method that takes the first rows of an input, as many as another input states; saved for 2 and 3."""
    values = [
        VkTensor(DType.INT32, (1,)),
        VkTensor(F32, (5, 3)),
        VkInt(0),
        VkSymInt(0),
        VkInt(1),
        VkTensor(F32, (5, 3)),
    ]
    calls = [("et_vk.select_as_symint.default", (0, 2, 2, 3)), ("aten.slice_copy.Tensor", (1, 2, 2, 3, 4, 5))]
    simple_pte(tmp_path / "some.pte", values, calls, [0, 1], [5], dynamic=True)
    with webpte.load(tmp_path / "some.pte") as program:
        planner = program.planner("forward", Caps())
        for count in (2, 3):
            rows_of(planner, count)
        save_plan(planner, tmp_path / "plan")
    return tmp_path / "plan"


def rows_of(scheduler, count):
    (segment,) = scheduler.plan.flow.segments
    number, x = scheduler.plan.graph.inputs
    schedule, _ = scheduler.prepare(segment, live({number: (1,), x: (5, 3)}, {number: [count]}))
    return [*schedule.result_dims.values()]


def test_saved_plan_decided_value_selects_schedule(decided):
    scheduler = opened(decided)
    assert [rows_of(scheduler, count) for count in (3, 2, 3)] == [[(3, 3)], [(2, 3)], [(3, 3)]]
    with raises(webpte.ShapeError, "%0[0] = 2; %0[0] = 3;", "%0[0] = 4.", code="not_saved"):
        rows_of(scheduler, 4)

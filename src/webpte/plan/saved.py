"""A plan and its schedules in a folder: `plan.json`, and the text of each kernel beside it.

Nothing in it names a place of this machine. Constants are ranges of files that go by name and size, so a player needs
those files, and nothing else of the program. What it does not know how to do, such as a CPU kernel, it refuses by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Mapping
from typing import Any

from ..container import MappedFile
from ..errors import FormatError, InputError, UnsupportedError
from ..graph import Call, Graph, Jump, Null, Origin, TensorSpec, Value
from ..version import __version__
from ..wgsl import Kernel, render, uses_subgroups
from .memory import Buffer, Fill
from .plan import Plan
from .schedule_json import Numbered, block_from_json, block_to_json, schedule_from_json, schedule_to_json
from .schedules import Scheduler
from .segments import Block, HostCalls, Layout, Segment
from .value_json import (
    Files,
    call_from_json,
    call_to_json,
    constant_from_json,
    constant_to_json,
    dtype_from_json,
    value_from_json,
    value_to_json,
)

FORMAT, VERSION = "webpte plan", 1
PathLike = str | os.PathLike[str]
_NOWHERE = Origin(0)


def save_plan(scheduler: Scheduler, folder: PathLike) -> None:
    """Write the plan and every schedule that calls have used so far."""
    plan = scheduler.plan
    files, kernels, blocks = Files(), Numbered[Kernel](), Numbered[bytes]()
    for kernel in plan.kernels:
        kernels(kernel)
    segments = plan.layout.segments
    schedules = [
        schedule_to_json(key, schedule, segments.index(schedule.segment), kernels, blocks, plan.bound)
        for key, schedule in scheduler.known()
    ]
    values = {str(v): value_to_json(plan.graph.values[v], files) for v in sorted(_needed(plan))}
    buffers = [_buffer_to_json(buffer, files) for buffer in plan.buffers]
    texts = [render(kernel) for kernel in kernels.items]
    document = {
        "format": FORMAT,
        "version": VERSION,
        "webpte": __version__,
        "name": plan.graph.name,
        "files": [{"name": os.path.basename(file.path), "bytes": file.size} for file in files.files],
        "inputs": list(plan.graph.inputs),
        "outputs": list(plan.graph.outputs),
        "values": values,
        "cpu": {str(step): call_to_json(plan.graph.call(step)) for step in _host_steps(plan)},
        "blocks": [_block_to_json(block, segments) for block in plan.layout.blocks],
        "segments": [_segment_to_json(segment, plan) for segment in segments],
        "hosted": sorted(plan.layout.hosted),
        "state": sorted(plan.layout.state),
        "checks": {str(v): call_to_json(call) for v, call in plan.checks.items()},
        "kept": sorted(plan.kept),
        "dynamic": {str(v): list(flags) for v, flags in plan.dynamic_dims.items()},
        "buffers": buffers,
        "places": {str(v): number for v, number in plan.buffer_of.items()},
        "limits": plan.limits,
        "kernels": [_kernel_to_json(kernel, text) for kernel, text in zip(kernels.items, texts, strict=True)],
        "parameters": [block_to_json(block) for block in blocks.items],
        "schedules": schedules,
    }
    _write(folder, document, texts)


def _write(folder: PathLike, document: Mapping[str, Any], texts: Iterable[str]) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
        for number, text in enumerate(texts):
            with open(os.path.join(folder, f"kernel{number}.wgsl"), "w", encoding="ascii", newline="\n") as file:
                file.write(text)
        with open(os.path.join(folder, "plan.json"), "w", encoding="utf-8", newline="\n") as file:
            json.dump(document, file, separators=(",", ":"), allow_nan=False)
    except OSError as error:
        raise InputError(f"{os.fspath(folder)}: a plan cannot be written there: {error.strerror}") from error


def _host_steps(plan: Plan) -> list[int]:
    stages = [stage for block in plan.layout.blocks for stage in block.stages]
    return [step for stage in stages if isinstance(stage, HostCalls) for step in stage.steps]


def _needed(plan: Plan) -> set[int]:
    """Values that a player looks at: what crosses the borders of segments, and what CPU kernels are given."""
    graph, layout = plan.graph, plan.layout
    found = {*graph.inputs, *graph.outputs, *layout.hosted, *layout.state}
    found |= {block.condition for block in layout.blocks if block.condition is not None}
    for segment in layout.segments:
        found |= {*segment.scalars, *segment.reads, *segment.looks, *segment.updates, *plan.uploads[segment]}
    for step in _host_steps(plan):
        call = graph.call(step)
        found |= {*call.args, *graph.flatten(call.args), *call.outs}
    return found


def _block_to_json(block: Block, segments: tuple[Segment, ...]) -> dict[str, Any]:
    stages: list[dict[str, Any]] = [
        {"cpu": list(stage.steps)} if isinstance(stage, HostCalls) else {"submit": segments.index(stage)}
        for stage in block.stages
    ]
    return {"stages": stages, "condition": block.condition, "target": block.target}


_SEGMENT_FIELDS = ("steps", "tensors", "scalars", "reads", "looks", "updates")


def _segment_to_json(segment: Segment, plan: Plan) -> dict[str, Any]:
    fields = {name: list(getattr(segment, name)) for name in _SEGMENT_FIELDS}
    return {**fields, "uploads": list(plan.uploads[segment])}


def _buffer_to_json(buffer: Buffer, files: Files) -> dict[str, Any]:
    fill = None
    if buffer.fill is not None:
        fill = {"dtype": buffer.fill.dtype.short, "constant": constant_to_json(buffer.fill.constant, files)}
    return {"bytes": buffer.nbytes, "kind": buffer.kind, "fill": fill}


def _kernel_to_json(kernel: Kernel, text: str) -> dict[str, Any]:
    return {
        "label": kernel.label,
        "workgroup": kernel.workgroup,
        "reads": kernel.reads,
        "writes": kernel.writes,
        "f16": text.startswith("enable f16;"),
        "subgroups": uses_subgroups(text),  # Tint wants `enable subgroups;` in front, which naga refuses
    }


def load_plan(folder: PathLike, files: Iterable[PathLike], cpu_kernels: Container[str] = ()) -> Scheduler:
    """A plan that `save_plan` wrote, with its schedules. `files` are those its constants lie in, by name."""
    opened = [MappedFile(path) for path in files]
    try:
        return _Reading(folder, opened, cpu_kernels).scheduler()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        for file in opened:
            file.close()
        raise FormatError(f"{os.fspath(folder)}: plan.json is damaged: {type(error).__name__}: {error}") from error
    except BaseException:
        for file in opened:
            file.close()
        raise


class _Reading:
    """One plan.json, which need not have been written by us."""

    def __init__(self, folder: PathLike, opened: list[MappedFile], cpu_kernels: Container[str]) -> None:
        self.folder = folder
        try:
            with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
                self.data: dict[str, Any] = json.load(file)
        except OSError as error:
            raise InputError(f"{os.fspath(folder)}: there is no plan: {error.strerror}") from error
        if self.data["format"] != FORMAT or self.data["version"] != VERSION:
            raise FormatError(f"{os.fspath(folder)}: plan.json is not version {VERSION} of a {FORMAT}")
        missing = sorted({call["name"] for call in self.data["cpu"].values()} - _known(self.data["cpu"], cpu_kernels))
        if missing:
            raise UnsupportedError(f"{self.data['name']} needs CPU kernels that are not here: {', '.join(missing)}")
        self.files = Files([self._file(wanted, opened) for wanted in self.data["files"]])

    def _file(self, wanted: Mapping[str, Any], opened: list[MappedFile]) -> MappedFile:
        for file in opened:
            if os.path.basename(file.path) == wanted["name"] and file.size == wanted["bytes"]:
                return file
        given = ", ".join(f"{os.path.basename(f.path)} of {f.size} bytes" for f in opened) or "no file"
        raise InputError(f"the plan's constants lie in {wanted['name']} of {wanted['bytes']} bytes; given was {given}")

    def scheduler(self) -> Scheduler:
        data = self.data
        segments = tuple(self._segment(item) for item in data["segments"])
        kernels = [self._kernel(number, item) for number, item in enumerate(data["kernels"])]
        blocks = [block_from_json(item) for item in data["parameters"]]
        plan = self._plan(segments, kernels)
        scheduler = Scheduler(plan, most=len(data["schedules"]))
        for item in data["schedules"]:
            key, schedule = schedule_from_json(item, segments, kernels, blocks)
            unplaced = {b.tensor for d in schedule.dispatches for b in d.bindings} - plan.buffer_of.keys()
            if unplaced:
                raise FormatError(f"{os.fspath(self.folder)}: tensors {sorted(unplaced)} have no buffer")
            scheduler.add(key, schedule)
        return scheduler

    def _segment(self, item: Mapping[str, Any]) -> Segment:
        return Segment(*(tuple(map(int, item[name])) for name in _SEGMENT_FIELDS))

    def _kernel(self, number: int, item: Mapping[str, Any]) -> Kernel:
        with open(os.path.join(self.folder, f"kernel{number}.wgsl"), encoding="ascii") as file:
            text = file.read()
        return Kernel("", str(item["label"]), (), "", int(item["workgroup"]), item["reads"], item["writes"], text=text)

    def _graph(self) -> Graph:
        data = self.data
        count = 1 + max(map(int, data["values"]), default=-1)
        values: list[Value] = [Null()] * count
        for value_id, item in data["values"].items():
            values[int(value_id)] = value_from_json(item, self.files)
        steps: list[Call | Jump] = [Call("", (), (), _NOWHERE)] * (1 + max(map(int, data["cpu"]), default=-1))
        for step, item in data["cpu"].items():
            steps[int(step)] = call_from_json(item)
        return Graph(str(data["name"]), tuple(values), tuple(steps), tuple(data["inputs"]), tuple(data["outputs"]))

    def _plan(self, segments: tuple[Segment, ...], kernels: list[Kernel]) -> Plan:
        data, graph = self.data, self._graph()
        places = {int(v): int(number) for v, number in data["places"].items()}
        known = {v for v, value in enumerate(graph.values) if isinstance(value, TensorSpec)}
        tenants: list[list[int]] = [[] for _ in data["buffers"]]
        for value_id in known & places.keys():
            tenants[places[value_id]].append(value_id)
        state = frozenset(data["state"])
        blocks = tuple(_block(item, segments) for item in data["blocks"])
        layout = Layout(blocks, frozenset(), state, frozenset(), frozenset(data["hosted"]), state)
        return Plan(
            graph,
            layout,
            tuple(self._buffer(item, own) for item, own in zip(data["buffers"], tenants, strict=True)),
            places,
            {segment: tuple(item["uploads"]) for segment, item in zip(segments, data["segments"], strict=True)},
            frozenset(data["kept"]),
            tuple(kernels),
            len(data["parameters"]),
            {int(v): tuple(flags) for v, flags in data["dynamic"].items()},
            {},
            {},
            {},
            {},
            {int(v): call_from_json(call) for v, call in data["checks"].items()},
            frozenset(),
            int(data["limits"]["max-storage-buffer-binding-size"]),
        )

    def _buffer(self, item: Mapping[str, Any], tenants: list[int]) -> Buffer:
        fill = item["fill"]
        if fill is not None:
            fill = Fill(constant_from_json(fill["constant"], self.files), dtype_from_json(fill["dtype"]))
        if item["kind"] not in ("constant", "state", "activation"):
            raise FormatError(f"{item['kind']!r} is not a kind of buffer")
        return Buffer(int(item["bytes"]), item["kind"], tuple(tenants), fill)


def _known(calls: Mapping[str, Any], cpu_kernels: Container[str]) -> set[str]:
    return {call["name"] for call in calls.values() if call["name"] in cpu_kernels}


def _block(item: Mapping[str, Any], segments: tuple[Segment, ...]) -> Block:
    stages: list[Segment | HostCalls] = [
        HostCalls(tuple(stage["cpu"])) if "cpu" in stage else segments[stage["submit"]] for stage in item["stages"]
    ]
    return Block(tuple(stages), item["condition"], item["target"])

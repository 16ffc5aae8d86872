"""Write a plan and its schedules to a folder: `plan.json` and the text of each kernel; see docs/plans.md.

The folder contains no path of this machine. Constants are ranges of files with a name, size and hash. So a player
needs those files, and nothing else of the program: it does not read their graphs.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..graph import Graph
from ..partial_files import atomic_file, not_writable
from ..version import __version__
from ..wgsl import Kernel, matrices_of, render, uses_f16, uses_subgroups
from .memory import Buffer
from .plan import Plan
from .schedule_json import Numbered, Writing, block_to_json
from .schedules import ScheduleStore
from .segments import FlowBlock, HostCalls, PlanSegment
from .value_json import DERIVED_FILE, Files, Sources, call_to_json, value_to_json

FORMAT, VERSION = "webpte plan", 2
DOCUMENT = "plan.json"
PathLike = str | os.PathLike[str]


def save_plan(scheduler: ScheduleStore, folder: PathLike, fingerprint: str = "") -> None:
    """Write the plan and every schedule that calls have used so far. `fingerprint` identifies its state."""
    files = Files()
    document, texts = plan_document(scheduler, fingerprint, files)
    _write(os.fspath(folder), document, texts, files.derived_data())


def plan_document(
    scheduler: ScheduleStore, fingerprint: str, sources: Sources, text_of: Callable[[Kernel], str] = render
) -> tuple[dict[str, Any], list[str]]:
    """Return the document, and the texts of its kernels by number."""
    plan = scheduler.plan
    writing = Writing(plan, Numbered[Kernel](), Numbered[bytes]())
    schedules = [writing.schedule(key, schedule) for key, schedule in scheduler.known()]
    kernels = tuple(writing.kernels.items)
    texts = [text_of(kernel) for kernel in kernels]
    used = replace(
        plan,
        kernels=kernels,
        bindings=frozenset(b for _, schedule in scheduler.known() for d in schedule.dispatches for b in d.bindings),
    )
    document = {
        "format": FORMAT,
        "version": VERSION,
        "webpte": __version__,
        "fingerprint": fingerprint,
        "limits": used.limits,
        "features": features_of(texts),
        "min_subgroup_size": plan.subgroup if "subgroup" in features_of(texts) else 0,
        **_method_to_json(plan, schedules, sources),
        "kernels": [_kernel_to_json(kernel, text) for kernel, text in zip(kernels, texts, strict=True)],
        "parameters": [block_to_json(block) for block in writing.blocks.items],
        "schedules": schedules,
    }
    return document, texts


def features_of(texts: Sequence[str]) -> list[str]:
    """Return the optional features of a device that kernels need."""
    needs = {"shader-f16": any(map(uses_f16, texts)), "subgroup": any(map(uses_subgroups, texts))}
    matrices = {feature for feature in map(matrices_of, texts) if feature is not None}
    return [*(name for name, needed in needs.items() if needed), *sorted(matrices)]


def _method_to_json(plan: Plan, schedules: Sequence[Mapping[str, Any]], sources: Sources) -> dict[str, Any]:
    """Return the method without its schedules."""
    graph, flow = plan.graph, plan.flow
    calls = _host_calls(plan)
    needed = sorted(
        _needed(plan, calls)
        | {int(v) for s in schedules for part in ("result_dims", "result_scalars") for v in s[part]}
    )
    parts = {
        "name": graph.name,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "names": {str(v): graph.names[v] for v in (*graph.inputs, *graph.outputs) if v in graph.names},
        "values": {str(v): value_to_json(graph.values[v], sources) for v in needed},
        "dynamic": {str(v): list(flags) for v, flags in plan.dynamic_dims.items()},
        "blocks": [_block_to_json(block, flow.segments, calls) for block in flow.blocks],
        "segments": [_segment_to_json(segment, plan) for segment in flow.segments],
        "cpu_calls": [call_to_json(graph.call(step)) for step in calls],
        "buffers": [_buffer_to_json(buffer, sources) for buffer in plan.buffers],
        "value_buffers": {str(v): plan.buffer_of[v] for v in sorted(_copied(plan)) if v in plan.buffer_of},
        "on_host": sorted(flow.on_host.intersection(needed)),
        "state": sorted(flow.state),
        "unmodified_uploads": sorted(plan.unmodified_uploads),
        "checks": {str(v): message for v, message in plan.checks.items()},
    }
    return {"name": parts.pop("name"), "files": sources.listed(), **parts}  # all that the others named


def _write(folder: str, document: Mapping[str, Any], texts: Sequence[str], constants: bytes) -> None:
    """Write the files, the document last: a folder without it is not a plan."""
    path = os.path.join(folder, DOCUMENT)
    try:
        os.makedirs(folder, exist_ok=True)
        if os.listdir(folder) and not os.path.exists(path):
            raise InputError(
                f"{folder}: expected an empty folder or a plan, got other files. Choose another folder.",
                code="foreign_folder",
            )
        data = os.path.join(folder, DERIVED_FILE)
        for old in (path, data, *glob.glob(os.path.join(glob.escape(folder), "kernel*.wgsl"))):
            with contextlib.suppress(FileNotFoundError):
                os.remove(old)
        for number, text in enumerate(texts):
            with open(os.path.join(folder, kernel_file(number)), "w", encoding="ascii", newline="\n") as file:
                file.write(text)
        if constants:
            with open(data, "wb") as binary:
                binary.write(constants)
        with atomic_file(path) as temporary, open(temporary, "w", encoding="ascii", newline="\n") as file:
            json.dump(document, file, separators=(",", ":"), allow_nan=False)
    except OSError as error:
        raise not_writable(folder, error) from error


def kernel_file(number: int) -> str:
    return f"kernel{number}.wgsl"


def _host_calls(plan: Plan) -> list[int]:
    """Return the steps that run on the CPU, in order."""
    stages = [stage for block in plan.flow.blocks for stage in block.stages]
    return [step for stage in stages if isinstance(stage, HostCalls) for step in stage.steps]


def _needed(plan: Plan, calls: Sequence[int]) -> set[int]:
    """Return the values that a player needs: inputs and outputs of segments, and arguments of CPU kernels."""
    graph, flow = plan.graph, plan.flow
    ids = {*graph.inputs, *graph.outputs, *flow.state}
    ids |= {block.condition for block in flow.blocks if block.condition is not None}
    for segment in flow.segments:
        ids |= {*segment.tensors, *segment.scalars, *segment.readbacks, *segment.host_reads, *plan.uploads[segment]}
    for step in calls:
        call = graph.call(step)
        ids |= {*call.args, *graph.flatten(call.args), *call.outs}
    return ids | _members(graph, ids)


def _copied(plan: Plan) -> frozenset[int]:
    """Return the values that are copied to or from the device."""
    lists = [(*segment.readbacks, *plan.uploads[segment]) for segment in plan.flow.segments]
    return plan.flow.state.union(*lists)


def _members(graph: Graph, ids: set[int]) -> set[int]:
    return set(graph.flatten(sorted(ids)))


def _block_to_json(block: FlowBlock, segments: Sequence[PlanSegment], calls: Sequence[int]) -> dict[str, Any]:
    stages: list[dict[str, Any]] = [
        {"cpu_calls": [calls.index(step) for step in stage.steps]}
        if isinstance(stage, HostCalls)
        else {"submit": segments.index(stage)}
        for stage in block.stages
    ]
    return {"stages": stages, "condition": block.condition, "target": block.target}


def _segment_to_json(segment: PlanSegment, plan: Plan) -> dict[str, Any]:
    return {
        "tensors": list(segment.tensors),
        "scalars": list(segment.scalars),
        "host_reads": list(segment.host_reads),
        "uploads": list(plan.uploads[segment]),
        "updates": list(segment.updates),
        "readbacks": list(segment.readbacks),
    }


def _buffer_to_json(buffer: Buffer, sources: Sources) -> dict[str, Any]:
    fill = None
    if buffer.fill is not None:
        dtype = buffer.fill.dtype
        fill = {"dtype": dtype.short, **sources.constant(buffer.fill.constant, dtype)}
    return {"bytes": buffer.nbytes, "kind": buffer.kind, "fill": fill}


def _kernel_to_json(kernel: Kernel, text: str) -> dict[str, Any]:
    return {
        "label": kernel.label,
        "workgroup": kernel.workgroup,
        "reads": kernel.reads,
        "writes": kernel.writes,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "subgroups": uses_subgroups(text),  # Tint requires `enable subgroups;` at the start, which naga rejects
    }

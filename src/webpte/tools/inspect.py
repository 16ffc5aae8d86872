"""What is inside a program, as data. Needs no GPU."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..errors import Error
from ..graph import Graph, TensorSpec
from ..plan import Plan, Planner
from ..runtime import Program, describe, load
from ..wgsl import Caps

PathLike = str | os.PathLike[str]


def inspect_file(path: PathLike, data: Iterable[PathLike] = ()) -> dict[str, Any]:
    """Methods, their inputs and outputs, delegates, calls, constants and values of a .pte file."""
    with load(path, data) as program:
        return {
            "file": os.fspath(path),
            "bytes": os.path.getsize(path),
            "version": program.file.version,
            "named_data": len(program.file.named_data),
            "methods": [inspect_method(program, name) for name in program.method_names],
        }


def planner_or_problem(program: Program, name: str) -> tuple[Planner | None, str | None]:
    """How a method would run on a device with WebGPU's default limits, or why it would not."""
    try:
        return program.planner(name, Caps(adapter="a device with WebGPU's default limits")), None
    except Error as error:
        return None, str(error)


def inspect_method(program: Program, name: str) -> dict[str, Any]:
    graph = program.graph(name)
    planner, problem = planner_or_problem(program, name)
    plan = planner.plan if planner is not None else None
    report: dict[str, Any] = {
        "name": name,
        "inputs": [_argument(graph, plan, i) for i in graph.inputs],
        "outputs": [_argument(graph, plan, i) for i in graph.outputs],
        "delegates": [
            {
                "backend": d.backend,
                "calls": d.calls,
                "values": d.values,
                "constants": d.constants,
                "constant_bytes": d.nbytes,
                "options": dict(d.options),
            }
            for d in graph.delegates
        ],
        "calls": _count(c.name for c in graph.calls if not c.kernel),
        "kernel_calls": _count(c.name for c in graph.calls if c.kernel),
        "values": _count(type(v).__name__.removesuffix("Spec") for v in graph.values),
        "constants": constants(graph),
        "problem": problem,
    }
    if plan is not None:
        report["execution"] = execution(plan)
    if not graph.steps:
        report["returns"] = [_plain(v) for v in program.method(name).run(())] if not graph.inputs else None
    return report


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _argument(graph: Graph, plan: Plan | None, value_id: int) -> dict[str, Any]:
    info = describe(graph, value_id, plan.dynamic_dims if plan is not None else {})
    return {"kind": info.kind, "dtype": info.dtype, "bound": info.bound, "dynamic": info.dynamic, "text": str(info)}


def constants(graph: Graph) -> list[dict[str, Any]]:
    """Distinct constants, largest first. Equal bytes are stored once in the file and listed once."""
    found: dict[object, dict[str, Any]] = {}
    for value_id, value in enumerate(graph.values):
        if isinstance(value, TensorSpec) and value.constant is not None:
            entry = found.setdefault(
                value.constant.identity,
                {
                    "name": value.constant.name,
                    "dtype": value.constant.dtype.short,
                    "dims": value.dims,
                    "bytes": value.constant.nbytes,
                    "values": [],
                },
            )
            entry["values"].append(value_id)
    return sorted(found.values(), key=lambda entry: -entry["bytes"])


def execution(plan: Plan) -> dict[str, Any]:
    """Where the calls run, and what crosses between host and device on the way (at the bound)."""
    graph = plan.graph
    outputs = set(graph.outputs)
    crossing = [v for s in plan.flow.segments for v in s.reads if v not in outputs]
    return {
        "submits": len(plan.flow.segments),
        "blocks": len(plan.flow.blocks),
        "cpu_calls": plan.cpu_calls,
        "bytes_to_host_between": sum(plan.stored_bytes(v) for v in crossing),
        "memory": plan.bytes_by_kind(),
    }

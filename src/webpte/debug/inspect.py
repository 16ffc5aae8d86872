"""Return the contents of a program as plain data. Needs no GPU."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..graph import Graph, TensorSpec
from ..llm.defaults import read_generation_config
from ..llm.metadata import beside
from ..plan import Plan
from ..runtime import describe, describe_all
from .parsed_method import ParsedMethod, PathLike, delegate_io, dynamic_dims, parse_methods

Dynamic = Mapping[int, tuple[bool, ...]]


def inspect_file(path: PathLike, data: Iterable[PathLike] = ()) -> dict[str, Any]:
    """Return methods, inputs, outputs, delegates, calls, constants and values of a .pte file."""
    with parse_methods(path, data) as (file, methods):
        return {
            "file": os.fspath(path),
            "bytes": os.path.getsize(path),
            "version": file.version,
            "named_data": len(file.named_data),
            "methods": [inspect_method(method) for method in methods],
            "sampling_defaults": _sampling_defaults(Path(path), [method.name for method in methods]),
        }


def _sampling_defaults(path: Path, methods: Sequence[str]) -> dict[str, Any] | None:
    """Return the sampling defaults of a language model; None for other programs."""
    if "get_max_context_len" not in methods or beside(path, "tokenizer.json") is None:
        return None
    return read_generation_config(beside(path, "generation_config.json"))


def inspect_method(method: ParsedMethod) -> dict[str, Any]:
    """Return the contents of a method."""
    graph, planner = method.graph, method.planner
    dynamic = dynamic_dims(planner) if planner is not None else {}
    return {
        "name": method.name,
        "inputs": _arguments(method.planned_graph, dynamic, method.planned_graph.inputs, "in"),
        "outputs": _arguments(method.planned_graph, dynamic, method.planned_graph.outputs, "out"),
        "returns": method.returns,
        "problem": method.problem,
        "execution": execution(planner.plan) if planner is not None else None,
        "delegates": _delegates(method, dynamic),
        "calls": _count(c.name for c in graph.calls if not c.kernel),
        "kernel_calls": _count(c.name for c in graph.calls if c.kernel),
        "values": _count(type(v).__name__.removesuffix("Spec") for v in graph.values),
        "constants": constants(method.planned_graph),
    }


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _arguments(graph: Graph, dynamic: Dynamic, ids: Sequence[int], prefix: str) -> list[dict[str, Any]]:
    return [{**asdict(info), "text": str(info)} for info in describe_all(graph, ids, prefix, dynamic)]


def _delegates(method: ParsedMethod, dynamic: Dynamic) -> list[dict[str, Any]]:
    """Return the delegates that are called. The contents of another backend's delegate are unknown."""
    borders = {
        number: [[str(describe(method.graph, i, dynamic)) for i in ids] for ids in border]
        for number, border in delegate_io(method.plan).items()
    }
    return [
        {
            "number": d.number,
            "backend": d.backend,
            "known": d.known,
            "bytes": method.plan.delegates[d.number].blob.size,
            "calls": d.calls if d.known else None,
            "values": d.values if d.known else None,
            "constants": d.constants if d.known else None,
            "constant_bytes": d.nbytes if d.known else None,
            "takes": borders[d.number][0],
            "gives": borders[d.number][1],
            "options": dict(d.options),
        }
        for d in method.graph.delegates
    ]


def constants(graph: Graph) -> list[dict[str, Any]]:
    """Return the distinct constants that calls read, largest first. Equal bytes are listed once."""
    used = {value_id for call in graph.calls for value_id in graph.flatten(call.args)}
    entries: dict[object, dict[str, Any]] = {}
    for value_id, value in enumerate(graph.values):
        if isinstance(value, TensorSpec) and value.constant is not None and value_id in used:
            entry = entries.setdefault(
                value.constant.identity,
                {
                    "name": value.constant.name,
                    "dtype": value.constant.dtype.short,
                    "dims": list(value.dims),
                    "bytes": value.constant.nbytes,
                    "values": [],
                },
            )
            entry["values"].append(value_id)
    return sorted(entries.values(), key=lambda entry: -entry["bytes"])


def execution(plan: Plan) -> dict[str, Any]:
    """Return where the calls run, and the bytes copied between host and device at the bound."""
    graph = plan.graph
    outputs = set(graph.outputs)
    crossing = [v for s in plan.flow.segments for v in s.reads if v not in outputs]
    return {
        "calls": len(graph.calls),
        "submits": len(plan.flow.segments),
        "blocks": len(plan.flow.blocks),
        "cpu_calls": plan.cpu_calls,
        "bytes_to_host_between": sum(plan.stored_bytes(v) for v in crossing),
        "memory": plan.bytes_by_kind(),
    }

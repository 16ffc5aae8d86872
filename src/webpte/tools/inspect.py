"""What is inside a program, as data. Needs no GPU."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..graph import Graph, TensorSpec
from ..plan import Plan
from ..runtime import describe, describe_all
from .parsed_method import ParsedMethod, PathLike, delegate_borders, dynamic_dims, parse_methods

Dynamic = Mapping[int, tuple[bool, ...]]


def inspect_file(path: PathLike, data: Iterable[PathLike] = ()) -> dict[str, Any]:
    """Methods, their inputs and outputs, delegates, calls, constants and values of a .pte file."""
    with parse_methods(path, data) as (file, looks):
        return {
            "file": os.fspath(path),
            "bytes": os.path.getsize(path),
            "version": file.version,
            "named_data": len(file.named_data),
            "methods": [inspect_method(look) for look in looks],
        }


def inspect_method(look: ParsedMethod) -> dict[str, Any]:
    graph, planner = look.graph, look.planner
    dynamic = dynamic_dims(planner) if planner is not None else {}
    return {
        "name": look.name,
        "inputs": _arguments(look.shown, dynamic, look.shown.inputs, "in"),
        "outputs": _arguments(look.shown, dynamic, look.shown.outputs, "out"),
        "returns": look.returns,
        "problem": look.problem,
        "execution": execution(planner.plan) if planner is not None else None,
        "delegates": _delegates(look, dynamic),
        "calls": _count(c.name for c in graph.calls if not c.kernel),
        "kernel_calls": _count(c.name for c in graph.calls if c.kernel),
        "values": _count(type(v).__name__.removesuffix("Spec") for v in graph.values),
        "constants": constants(look.shown),
    }


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _arguments(graph: Graph, dynamic: Dynamic, ids: Sequence[int], prefix: str) -> list[dict[str, Any]]:
    return [{**asdict(info), "text": str(info)} for info in describe_all(graph, ids, prefix, dynamic)]


def _delegates(look: ParsedMethod, dynamic: Dynamic) -> list[dict[str, Any]]:
    """The delegates that are called. Of one that another backend made nothing inside can be counted."""
    borders = {
        number: [[str(describe(look.graph, i, dynamic)) for i in ids] for ids in border]
        for number, border in delegate_borders(look.plan).items()
    }
    return [
        {
            "number": d.number,
            "backend": d.backend,
            "known": d.known,
            "bytes": look.plan.delegates[d.number].blob.size,
            "calls": d.calls if d.known else None,
            "values": d.values if d.known else None,
            "constants": d.constants if d.known else None,
            "constant_bytes": d.nbytes if d.known else None,
            "takes": borders[d.number][0],
            "gives": borders[d.number][1],
            "options": dict(d.options),
        }
        for d in look.graph.delegates
    ]


def constants(graph: Graph) -> list[dict[str, Any]]:
    """Distinct constants that calls read, largest first. Equal bytes are stored once in the file and listed once."""
    used = {value_id for call in graph.calls for value_id in graph.flatten(call.args)}
    found: dict[object, dict[str, Any]] = {}
    for value_id, value in enumerate(graph.values):
        if isinstance(value, TensorSpec) and value.constant is not None and value_id in used:
            entry = found.setdefault(
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
    return sorted(found.values(), key=lambda entry: -entry["bytes"])


def execution(plan: Plan) -> dict[str, Any]:
    """Where the calls run, and what crosses between host and device on the way (at the bound)."""
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

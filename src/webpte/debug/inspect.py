"""Return the contents of a program as plain data. Needs no GPU."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from ..graph import Graph, TensorSpec
from ..llm.defaults import read_generation_config
from ..llm.metadata import LENGTH_METHODS, tokenizer_beside
from ..plan import Plan
from ..runtime import describe, describe_all
from ..sources import beside
from ..typing import PathLike
from .parsed_method import ParsedMethod, delegate_io, dynamic_dims, parse_methods

Dynamic = Mapping[int, tuple[bool, ...]]


class ArgumentReport(TypedDict):
    """An input or output."""

    name: Annotated[str, "as the file has it, else in0, in1 and so on, out0 for an output"]
    kind: Annotated[str, "tensor, int, float, bool, str or none"]
    dtype: Annotated[str | None, "as callers see it, such as f32"]
    bound: Annotated[list[int] | None, "the largest shape"]
    dynamic: Annotated[list[bool] | None, "which dims may be smaller"]
    text: Annotated[str, "such as f32[1, <=127]"]


class Execution(TypedDict):
    """How the calls of a method run."""

    calls: Annotated[int, "after graph passes"]
    submits: int
    blocks: Annotated[int, "parts between jumps"]
    cpu_calls: Annotated[dict[str, int], "calls on the CPU by name"]
    bytes_to_host_between: Annotated[int, "bytes that go to the host between submits, at the bound"]
    memory: Annotated[dict[str, int], "bytes by kind: constant, state, activation"]


class DelegateReport(TypedDict):
    """A delegate that is called."""

    number: int
    backend: str
    known: Annotated[bool, "false for a delegate of another backend: nothing in it is counted"]
    bytes: Annotated[int, "of its blob"]
    calls: int | None
    values: int | None
    constants: int | None
    constant_bytes: int | None
    takes: Annotated[list[str], "types of its inputs"]
    gives: Annotated[list[str], "types of its outputs"]
    options: Annotated[dict[str, str], "compile options, their bytes as hexadecimal digits"]


class ConstantReport(TypedDict):
    """A constant that calls read."""

    name: str
    dtype: str
    dims: list[int]
    bytes: int
    values: Annotated[list[int], "the values that have these bytes"]


class MethodContents(TypedDict):
    """The contents of a method."""

    name: str
    inputs: list[ArgumentReport]
    outputs: list[ArgumentReport]
    returns: Annotated[
        list[Annotated[Any, "a number, a boolean, a string or a list of such"]] | None,
        "of a method without calls and inputs: what it always returns; null for others",
    ]
    problem: Annotated[str | None, "why it cannot run on a device with WebGPU's default limits"]
    execution: Annotated[Execution | None, "null without a plan"]
    delegates: list[DelegateReport]
    calls: Annotated[dict[str, int], "calls inside delegates, as the file has them, by name"]
    kernel_calls: Annotated[dict[str, int], "calls outside delegates by name"]
    values: Annotated[dict[str, int], "values by kind"]
    constants: Annotated[list[ConstantReport], "distinct constants that calls read, the largest first"]


class InspectReport(TypedDict):
    """The contents of a program."""

    file: str
    bytes: int
    version: Annotated[int, "of the program's schema"]
    named_data: Annotated[int, "pieces of data under a name in the file"]
    sampling_defaults: Annotated[
        dict[str, float] | None, "of a language model: settings of requests that set none; null for others"
    ]
    methods: list[MethodContents]


def inspect_file(path: PathLike, data: Iterable[PathLike] = ()) -> InspectReport:
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


def _sampling_defaults(path: Path, methods: Sequence[str]) -> dict[str, float] | None:
    """Return the sampling defaults of a language model; None for other programs."""
    if not any(name in methods for name in LENGTH_METHODS) or tokenizer_beside(path) is None:
        return None
    return read_generation_config(beside(path, "generation_config.json"))


def inspect_method(method: ParsedMethod) -> MethodContents:
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


def _arguments(graph: Graph, dynamic: Dynamic, ids: Sequence[int], prefix: str) -> list[ArgumentReport]:
    return [
        {
            "name": info.name,
            "kind": info.kind,
            "dtype": info.dtype,
            "bound": None if info.bound is None else list(info.bound),
            "dynamic": None if info.dynamic is None else list(info.dynamic),
            "text": str(info),
        }
        for info in describe_all(graph, ids, prefix, dynamic)
    ]


def _delegates(method: ParsedMethod, dynamic: Dynamic) -> list[DelegateReport]:
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


def constants(graph: Graph) -> list[ConstantReport]:
    """Return the distinct constants that calls read, largest first. Equal bytes are listed once."""
    used = {value_id for call in graph.calls for value_id in graph.flatten(call.args)}
    entries: dict[object, ConstantReport] = {}
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


def execution(plan: Plan) -> Execution:
    """Return where the calls run, and the bytes copied between host and device at the bound."""
    graph = plan.graph
    outputs = set(graph.outputs)
    crossing = [v for s in plan.flow.segments for v in s.readbacks if v not in outputs]
    return {
        "calls": len(graph.calls),
        "submits": len(plan.flow.segments),
        "blocks": len(plan.flow.blocks),
        "cpu_calls": plan.cpu_calls,
        "bytes_to_host_between": sum(plan.stored_bytes(v) for v in crossing),
        "memory": plan.bytes_by_kind(),
    }

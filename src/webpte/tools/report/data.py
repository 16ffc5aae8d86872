"""Everything the report shows, as plain data. Needs no GPU."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from ...errors import InputError
from ...graph import Graph
from ...plan import Planner
from ...runtime import Program, load
from ..inspect import PathLike, constants, execution, inspect_method, planner_or_problem
from .borders import delegate_data, stage_data
from .calls import call_data, value_data
from .lifetimes import lifetimes, memory_data
from .order import order_of
from .repeats import find_repeats
from .shapes import dynamic_dims, lowered_calls


def report_data(path: PathLike, data: Iterable[PathLike] = (), method: str | None = None) -> dict[str, Any]:
    """How one method of a .pte file runs: calls in order, values, buffers, borders. JSON-able.

    `method` may be left out if only one method has calls, or if there is a `forward`.
    """
    with load(path, data) as program:
        name = method if method is not None else _main_method(program)
        return {
            "file": os.fspath(path),
            "bytes": os.path.getsize(path),
            "methods": [_method_line(program, n) for n in program.method_names],
            "method": name,
            **method_data(program.graph(name), *planner_or_problem(program, name)),
        }


def _main_method(program: Program) -> str:
    running = [name for name in program.method_names if program.graph(name).steps]
    if "forward" in running or not running:
        return "forward" if "forward" in running else program.method_names[0]
    if len(running) > 1:
        raise InputError(f"{len(running)} methods have calls: {', '.join(running)}. Name one with --method.")
    return running[0]


def _method_line(program: Program, name: str) -> dict[str, Any]:
    graph = program.graph(name)
    returns = None if graph.steps else inspect_method(program, name)["returns"]
    return {"name": name, "calls": len(graph.calls), "returns": returns}


def method_data(exported: Graph, planner: Planner | None, problem: str | None) -> dict[str, Any]:
    """The data of one method: as planned, or as the file has it where there is no plan because of `problem`."""
    plan = planner.plan if planner is not None else None
    graph = exported if plan is None else plan.graph
    order = order_of(graph, plan)
    lowered = lowered_calls(planner) if planner is not None else {}
    lives = lifetimes(plan, order) if plan is not None else {}
    calls = call_data(graph, plan, order, lowered)
    dynamic = dynamic_dims(planner) if planner is not None else {}
    values = value_data(graph, plan, order, calls, dynamic, lives)
    return {
        "problem": problem,
        "exported_calls": len(exported.calls),
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "calls": calls,
        "values": values,
        "repeats": _repeats(calls, values),
        "stages": stage_data(order, values),
        "jumps": [{"part": j.part, "condition": j.condition, "target": j.target} for j in order.jumps],
        "delegates": delegate_data(exported, calls, values),
        "constants": _constants(graph, values),
        "execution": execution(plan) if plan is not None else None,
        "memory": memory_data(plan, order, lives) if plan is not None else None,
    }


def _repeats(calls: Sequence[Mapping[str, Any]], values: Mapping[int, Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Groups of blocks that look alike, each block with the tensors that enter it and those it hands on."""
    change = [0] * (len(calls) + 1)  # of the number of values between a row and the one before it
    for value in values.values():
        rows = (*value["made"], *value["read"])
        if value["kind"] in ("activation", "scalar") and rows:
            change[min(rows) + 1] += 1
            change[max(rows) + 1] -= 1
    signatures = [_signature(call, values) for call in calls]
    groups = find_repeats(signatures, list(accumulate(change)))
    return [[_block(first, stop, values) for first, stop in spans] for spans in groups]


def _signature(call: Mapping[str, Any], values: Mapping[int, Mapping[str, Any]]) -> tuple[object, ...]:
    """Equal for calls that do the same work on other data."""

    def looks(value_id: int) -> tuple[object, ...]:
        value = values[value_id]
        return value["kind"], value["dtype"], tuple(value["dims"] or ())

    parts = (p for argument in call["args"] for p in argument["parts"])
    return (
        call["name"],
        call["runs"],
        *(looks(p) if isinstance(p, int) else p for p in parts),
        *map(looks, call["outs"]),
    )


def _block(first: int, stop: int, values: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    rows = range(first, stop)

    def inside(found: Sequence[int]) -> bool:
        return any(row in rows for row in found)

    # The largest first: what one block hands to the next, before the masks and positions that all of them share.
    tensors = sorted((v for v in values.values() if v["kind"] == "activation"), key=lambda v: -v["bytes"])
    enters = [v["id"] for v in tensors if inside(v["read"]) and not inside(v["made"])]
    leaves = [v["id"] for v in tensors if inside(v["made"]) and (v["output"] or any(row >= stop for row in v["read"]))]
    weights = [v for v in values.values() if v["kind"] == "constant" and inside(v["read"]) and not v["made"]]
    return {
        "first": first,
        "calls": stop - first,
        "enters": enters,
        "leaves": leaves,
        "constant_bytes": sum(v["bytes"] for v in weights),
    }


def _constants(graph: Graph, values: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Constants that calls read, largest first, with the rows that read them; equal bytes once."""
    found = []
    for constant in constants(graph):
        mentioned = [v for v in constant["values"] if v in values]
        rows = sorted({row for v in mentioned for row in values[v]["read"]})
        if mentioned:
            found.append(constant | {"dims": list(constant["dims"]), "values": mentioned, "read": rows})
    return found

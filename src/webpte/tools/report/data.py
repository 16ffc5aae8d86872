"""Everything the report shows, as plain data. Needs no GPU."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from ...errors import InputError
from ...graph import Graph
from ...plan import Planner
from ...runtime import describe
from ..inspect import constants, execution
from ..look import Look, PathLike, look_inside
from ..shapes import dynamic_dims, lowered_calls
from .borders import delegate_data, stage_data
from .calls import call_data, value_data
from .lifetimes import lifetimes, memory_data
from .order import order_of
from .repeats import find_repeats


def report_data(path: PathLike, data: Iterable[PathLike] = (), method: str | None = None) -> dict[str, Any]:
    """How one method of a .pte file runs: calls in order, values, buffers, borders. JSON-able.

    `method` may be left out if only one method has calls, or if there is a `forward`.
    """
    with look_inside(path, data) as (_, looks):
        look = _chosen(looks, method)
        return {
            "file": os.fspath(path),
            "bytes": os.path.getsize(path),
            "methods": [{"name": n.name, "calls": len(n.graph.calls), "returns": n.returns} for n in looks],
            "method": look.name,
            **method_data(look.graph, look.planner, look.problem),
        }


def _chosen(looks: Sequence[Look], name: str | None) -> Look:
    """The method of that name; without one, `forward` or the only one with calls."""
    by_name = {look.name: look for look in looks}
    if name is not None:
        if name not in by_name:
            raise InputError(f"there is no method {name!r}; the program has {', '.join(by_name)}")
        return by_name[name]
    if not looks:
        raise InputError("the program has no methods to show")
    running = [look for look in looks if look.graph.steps] or [look for look in looks if look.problem] or list(looks)
    if len(running) > 1 and "forward" not in by_name:
        names = ", ".join(look.name for look in running)
        raise InputError(f"{len(running)} methods have calls: {names}. Name one with --method.")
    return by_name.get("forward", running[0])


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
        "signature": {v: str(describe(graph, v, dynamic)) for v in (*graph.inputs, *graph.outputs)},
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
    return [
        constant | {"read": sorted({row for v in constant["values"] for row in values[v]["read"]})}
        for constant in constants(graph)
    ]

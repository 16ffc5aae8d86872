"""Everything the report shows, as plain data. Needs no GPU."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ...errors import InputError
from ...graph import Graph
from ...plan import Planner
from ...runtime import describe
from ..inspect import constants, execution
from ..parsed_method import ParsedMethod, PathLike, dynamic_dims, lowered_calls, parse_methods
from .calls import call_data, value_data
from .lifetimes import Order, lifetimes, memory_data, order_of

Repeat = tuple[int, int]  # first, one past the last
MIN_KINDS = 4  # a run of fewer different calls is read as quickly as a headline
MAX_PERIOD = 1000


def find_repeats(signatures: Sequence[Hashable], crossings: Sequence[int]) -> list[list[Repeat]]:
    """Groups of consecutive spans whose calls look the same, in order.

    `crossings[i]` counts the values alive between call i - 1 and call i. A layer can be cut anywhere and still repeat:
    it is cut where the least crosses, which is where its author would have cut it.
    """
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(s, len(numbers)) for s in signatures], np.int64)
    return sorted(_search(ids, np.asarray(crossings), 0, len(ids)))


def _search(ids: Any, crossings: Any, low: int, high: int) -> list[list[Repeat]]:
    """The repetition that covers most of [low, high), then those on either side of it."""
    found = _longest(ids[low:high])
    if found is None:
        return []
    first, stop, period = found[0] + low, found[1] + low, found[2]
    spans = _cut(crossings, first, stop, period)
    pattern = ids[spans[0][0] : spans[0][1]]
    # What all layers share (a mask, the cosines of the positions) is computed in the first one, and what follows the
    # last layer may have moved up into it.
    start = spans[0][0]
    if length := _length_with_extras(pattern[::-1], ids[low:start][::-1]):
        spans.insert(0, (start - length, start))
    stop = spans[-1][1]
    if length := _length_with_extras(pattern, ids[stop:high]):
        spans.append((stop, stop + length))
    before = _search(ids, crossings, low, spans[0][0])
    return [*before, spans, *_search(ids, crossings, spans[-1][1], high)]


def _longest(ids: Any) -> tuple[int, int, int] | None:
    """First, stop and period of the periodic stretch that holds the most whole periods; the shortest period wins."""
    best, covered = None, 0
    for period in range(MIN_KINDS, min(len(ids) // 2, MAX_PERIOD) + 1):
        equal = np.concatenate(([False], ids[:-period] == ids[period:], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1]).reshape(-1, 2)
        for start, end in edges[edges[:, 1] - edges[:, 0] >= period]:
            whole = (end - start + period) // period * period
            if whole > covered and len(np.unique(ids[start : start + period])) >= MIN_KINDS:
                best, covered = (int(start), int(end) + period, period), whole
    return best


def _cut(crossings: Any, first: int, stop: int, period: int) -> list[Repeat]:
    """Whole periods of a stretch. Of equally good cuts the last wins: models begin with extras more often."""
    # The cut between the first and the second span stands for all: the stretch is periodic.
    starts = range(first, min(first + period, stop - 2 * period + 1))
    start = min(starts, key=lambda s: (crossings[s + period], -((stop - s) // period), -s))
    return [(at, at + period) for at in range(start, stop - period + 1, period)]


def _length_with_extras(pattern: Any, ids: Any) -> int:
    """How many of `ids` it takes to find all of the pattern in order, with a few others in between; 0 if it is not."""
    spare = len(pattern) // 3
    at = 0
    for wanted in pattern:
        while at < len(ids) and ids[at] != wanted and spare:
            at, spare = at + 1, spare - 1
        if at == len(ids) or ids[at] != wanted:
            return 0
        at += 1
    return at


Values = Mapping[int, Mapping[str, Any]]


def delegate_data(exported: Graph, calls: Sequence[Mapping[str, Any]], values: Values) -> list[dict[str, Any]]:
    """The delegates, each with the tensors that enter and leave it, as a runtime that runs them apart would copy."""
    return [
        {
            "number": delegate.number,
            "backend": delegate.backend,
            "known": delegate.known,
            "calls": delegate.calls,
            "constants": delegate.constants,
            "constant_bytes": delegate.nbytes,
            "options": dict(delegate.options),
        }
        | _crossing(delegate.number, calls, values)
        for delegate in exported.delegates
    ]


def _crossing(number: int, calls: Sequence[Mapping[str, Any]], values: Values) -> dict[str, Any]:
    inside = {call["row"] for call in calls if call["delegate"] == number}
    enters, leaves = [], []
    for value_id, value in values.items():
        if value["kind"] != "activation":
            continue
        made = inside.intersection(value["made"])
        if not made and inside.intersection(value["read"]):
            enters.append(value_id)
        elif made and (value["output"] or not inside.issuperset(value["read"])):
            leaves.append(value_id)
    return {
        "first": min(inside, default=None),
        "enters": enters,
        "leaves": leaves,
        "bytes_in": nbytes(enters, values),
        "bytes_out": nbytes(leaves, values),
    }


def stage_data(order: Order, values: Values) -> list[dict[str, Any]]:
    """The stages of the method with what is copied to the device before each, and to the host after it."""
    return [
        {
            "kind": stage.kind,
            "part": stage.part,
            "first": stage.first,
            "calls": len(stage.steps),
            "uploads": list(stage.uploads),
            "reads": list(stage.reads),
            "bytes_up": nbytes(stage.uploads, values),
            "bytes_down": nbytes(stage.reads, values),
        }
        for stage in order.stages
    ]


def nbytes(ids: Iterable[int], values: Values) -> int:
    return sum(values[i]["bytes"] for i in ids)


def report_data(path: PathLike, data: Iterable[PathLike] = (), method: str | None = None) -> dict[str, Any]:
    """How one method of a .pte file runs: calls in order, values, buffers, borders. JSON-able.

    `method` may be left out if only one method has calls, or if there is a `forward`.
    """
    with parse_methods(path, data) as (_, looks):
        look = _chosen(looks, method)
        return {
            "file": os.fspath(path),
            "bytes": os.path.getsize(path),
            "methods": [{"name": n.name, "calls": len(n.graph.calls), "returns": n.returns} for n in looks],
            "method": look.name,
            **method_data(look.graph, look.planner, look.problem),
        }


def _chosen(looks: Sequence[ParsedMethod], name: str | None) -> ParsedMethod:
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

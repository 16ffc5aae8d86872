"""Return everything the report of a method shows, as plain data. Needs no GPU."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypedDict

import numpy as np

from ...errors import InputError
from ...graph import Graph
from ...plan import Planner
from ...runtime import describe
from ...runtime.checks import check_method_name
from ...typing import PathLike
from ..inspect import ConstantReport, Execution, constants, execution
from ..parsed_method import ParsedMethod, dynamic_dims, lowered_calls, parse_methods
from .calls import (
    CallRow,
    MemoryData,
    Order,
    ValueRow,
    call_data,
    lifetimes,
    memory_data,
    order_of,
    value_data,
)

Repeat = tuple[int, int]  # first, one past the last
Values = Mapping[int, ValueRow]


class DelegateCrossing(TypedDict):
    """The tensors that enter and leave a delegate."""

    first: int | None  # row
    enters: list[int]
    leaves: list[int]
    bytes_in: int
    bytes_out: int


class DelegateData(DelegateCrossing):
    """A delegate."""

    number: int
    backend: str
    known: bool
    calls: int
    constants: int
    constant_bytes: int
    options: dict[str, str]


class StageData(TypedDict):
    """A stage, with the tensors copied to the device before it and to the host after it."""

    kind: str
    part: int
    first: int
    calls: int
    uploads: list[int]
    reads: list[int]
    bytes_up: int
    bytes_down: int


class JumpData(TypedDict):
    """A jump after the last stage of a part."""

    part: int
    condition: int
    target: int


class BlockData(TypedDict):
    """One of several equal blocks of calls, with the tensors that enter and leave it."""

    first: int
    calls: int
    enters: list[int]
    leaves: list[int]
    constant_bytes: int


class ConstantData(ConstantReport):
    """A constant, with the rows that read it."""

    read: list[int]


class MethodData(TypedDict):
    """How a method runs."""

    problem: str | None
    exported_calls: int
    inputs: list[int]
    outputs: list[int]
    signature: dict[int, str]
    calls: list[CallRow]
    values: dict[int, ValueRow]
    repeats: list[list[BlockData]]
    stages: list[StageData]
    jumps: list[JumpData]
    delegates: list[DelegateData]
    constants: list[ConstantData]
    execution: Execution | None
    memory: MemoryData | None


class MethodSummary(TypedDict):
    """A method of the program."""

    name: str
    calls: int
    returns: Any


class MethodReport(MethodData):
    """How one method of a program runs."""

    file: str
    bytes: int
    methods: list[MethodSummary]
    method: str


MIN_KINDS = 4  # of calls in a period; shorter runs need no heading
MAX_PERIOD = 1000


def find_repeats(signatures: Sequence[Hashable], crossings: Sequence[int]) -> list[list[Repeat]]:
    """Return groups of consecutive spans with equal calls, in order.

    Files do not name modules, but the layers of a model are equal runs of calls. `crossings[i]` counts the values alive
    between call i - 1 and call i. A periodic run can be cut anywhere; it is cut where the fewest values cross, which is
    where its author would have cut it.
    """
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(s, len(numbers)) for s in signatures], np.int64)
    return sorted(_search(ids, np.asarray(crossings), 0, len(ids)))


def _search(ids: Any, crossings: Any, low: int, high: int) -> list[list[Repeat]]:
    """Return the repetition that covers most of [low, high), and those on either side of it."""
    longest = _longest(ids[low:high])
    if longest is None:
        return []
    first, stop, period = longest[0] + low, longest[1] + low, longest[2]
    spans = _cut(crossings, first, stop, period)
    pattern = ids[spans[0][0] : spans[0][1]]
    # Values that all layers share, such as a mask, are computed in the first layer, and calls after the last layer may
    # have moved into it.
    start = spans[0][0]
    if length := _length_with_extras(pattern[::-1], ids[low:start][::-1]):
        spans.insert(0, (start - length, start))
    stop = spans[-1][1]
    if length := _length_with_extras(pattern, ids[stop:high]):
        spans.append((stop, stop + length))
    before = _search(ids, crossings, low, spans[0][0])
    return [*before, spans, *_search(ids, crossings, spans[-1][1], high)]


def _longest(ids: Any) -> tuple[int, int, int] | None:
    """Return first, stop and period of the run with the most whole periods; the shortest period wins."""
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
    """Return the whole periods of a run. Of equal cuts the last wins: extra calls are more often at the start."""
    # The cut between the first and the second span stands for all, because the run is periodic.
    starts = range(first, min(first + period, stop - 2 * period + 1))
    start = min(starts, key=lambda s: (crossings[s + period], -((stop - s) // period), -s))
    return [(at, at + period) for at in range(start, stop - period + 1, period)]


def _length_with_extras(pattern: Any, ids: Any) -> int:
    """Return how many of `ids` contain the pattern in order, with a few others in between; 0 if they do not."""
    spare = len(pattern) // 3
    at = 0
    for expected in pattern:
        while at < len(ids) and ids[at] != expected and spare:
            at, spare = at + 1, spare - 1
        if at == len(ids) or ids[at] != expected:
            return 0
        at += 1
    return at


def delegate_data(exported: Graph, calls: Sequence[CallRow], values: Values) -> list[DelegateData]:
    """Return the delegates, each with the tensors that enter and leave it."""
    return [
        {
            "number": delegate.number,
            "backend": delegate.backend,
            "known": delegate.known,
            "calls": delegate.calls,
            "constants": delegate.constants,
            "constant_bytes": delegate.nbytes,
            "options": dict(delegate.options),
            **_crossing(delegate.number, calls, values),
        }
        for delegate in exported.delegates
    ]


def _crossing(number: int, calls: Sequence[CallRow], values: Values) -> DelegateCrossing:
    inside = {call["row"] for call in calls if call["delegate"] == number}
    enters, leaves = [], []
    for value_id, value in values.items():
        if value["kind"] != "activation":
            continue
        writers = inside.intersection(value["made"])
        if not writers and inside.intersection(value["read"]):
            enters.append(value_id)
        elif writers and (value["output"] or not inside.issuperset(value["read"])):
            leaves.append(value_id)
    return {
        "first": min(inside, default=None),
        "enters": enters,
        "leaves": leaves,
        "bytes_in": nbytes(enters, values),
        "bytes_out": nbytes(leaves, values),
    }


def stage_data(order: Order, values: Values) -> list[StageData]:
    """Return the stages of the method with the tensors copied to the device before and to the host after each."""
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


def report_data(path: PathLike, data: Iterable[PathLike] = (), method: str | None = None) -> MethodReport:
    """Return how one method of a .pte file runs: calls in order, values, buffers, delegates. The data is JSON.

    `method` is optional if only one method has calls, or if there is a `forward`.
    """
    with parse_methods(path, data) as (_, methods):
        selected = _select(methods, method)
        return {
            "file": os.fspath(path),
            "bytes": os.path.getsize(path),
            "methods": [{"name": n.name, "calls": len(n.graph.calls), "returns": n.returns} for n in methods],
            "method": selected.name,
            **method_data(selected.graph, selected.planner, selected.problem),
        }


def _select(methods: Sequence[ParsedMethod], name: str | None) -> ParsedMethod:
    """Return the method of that name; without a name, `forward` or the only one with calls."""
    by_name = {method.name: method for method in methods}
    if name is not None:
        return by_name[check_method_name(name, tuple(by_name), "method")]
    if not methods:
        raise InputError("the program has no methods", code="no_methods")
    running = [m for m in methods if m.graph.steps] or [m for m in methods if m.problem] or list(methods)
    if len(running) > 1 and "forward" not in by_name:
        names = ", ".join(method.name for method in running)
        raise InputError(
            f"{len(running)} methods have calls: {names}", hint="Name one with --method.", code="ambiguous_method"
        )
    return by_name.get("forward", running[0])


def method_data(exported: Graph, planner: Planner | None, problem: str | None) -> MethodData:
    """Return the data of a method: as planned, or as in the file if `problem` prevents a plan."""
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


def _repeats(calls: Sequence[CallRow], values: Values) -> list[list[BlockData]]:
    """Return groups of equal blocks, each block with the tensors that enter and leave it."""
    change = [0] * (len(calls) + 1)  # of the number of live values from the row before
    for value in values.values():
        rows = (*value["made"], *value["read"])
        if value["kind"] in ("activation", "scalar") and rows:
            change[min(rows) + 1] += 1
            change[max(rows) + 1] -= 1
    signatures = [_signature(call, values) for call in calls]
    groups = find_repeats(signatures, list(accumulate(change)))
    return [[_block(first, stop, values) for first, stop in spans] for spans in groups]


def _signature(call: CallRow, values: Values) -> tuple[object, ...]:
    """Return a key that is equal for calls that do the same work on other data."""

    def kind_of(value_id: int) -> tuple[object, ...]:
        value = values[value_id]
        return value["kind"], value["dtype"], tuple(value["dims"] or ())

    parts = (p for argument in call["args"] for p in argument["parts"])
    return (
        call["name"],
        call["runs"],
        *(kind_of(p) if isinstance(p, int) else p for p in parts),
        *map(kind_of, call["outs"]),
    )


def _block(first: int, stop: int, values: Values) -> BlockData:
    rows = range(first, stop)

    def inside(candidates: Sequence[int]) -> bool:
        return any(row in rows for row in candidates)

    # The largest first: the output of the block before, then masks and positions that all blocks share.
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


def _constants(graph: Graph, values: Values) -> list[ConstantData]:
    """Return the constants that calls read, largest first, with the rows that read them."""
    return [
        {**constant, "read": sorted({row for v in constant["values"] for row in values[v]["read"]})}
        for constant in constants(graph)
    ]

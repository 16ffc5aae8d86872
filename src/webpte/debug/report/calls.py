"""Return calls and values as plain data: the order of calls, the lifetimes of tensors, and their rows.

The row of a call is its place in that order. A value has the rows that write and read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypedDict

from ...graph import (
    LIVE_SCALARS,
    Bool,
    BoolList,
    Call,
    Double,
    DoubleList,
    Graph,
    Int,
    IntList,
    Null,
    String,
    TensorSpec,
    Value,
    ValueList,
    parse_program,
)
from ...lowering import find, mutated_values, stored_bytes
from ...plan import LoweredCall, Plan, PlanSegment, padded
from ...plan.memory import resolve_aliases


@dataclass(frozen=True)
class ExecutionStage:
    """Rows that run together: one submit, or calls on the CPU. Without a plan: all calls of the file."""

    kind: str  # "submit", "cpu" or "file"
    part: int  # a method with jumps has several, each a straight line
    first: int  # row of its first call
    steps: tuple[int, ...]  # of the graph
    uploads: tuple[int, ...] = ()  # tensors copied to the device before it
    reads: tuple[int, ...] = ()  # tensors copied to the host after it


@dataclass(frozen=True)
class StageJump:
    """After the last stage of `part`: go to part `target` if the condition is false."""

    part: int
    condition: int
    target: int


@dataclass(frozen=True)
class Order:
    """The order in which a method runs."""

    stages: tuple[ExecutionStage, ...]
    jumps: tuple[StageJump, ...] = ()

    @property
    def steps(self) -> list[int]:
        """Return the step of the graph for each row."""
        return [step for stage in self.stages for step in stage.steps]


def order_of(graph: Graph, plan: Plan | None) -> Order:
    """Return the order of a plan, or of the file without one."""
    if plan is None:
        steps = tuple(i for i, step in enumerate(graph.steps) if isinstance(step, Call))
        return Order((ExecutionStage("file", 0, 0, steps),))
    stages: list[ExecutionStage] = []
    jumps: list[StageJump] = []
    row = 0
    for number, block in enumerate(plan.flow.blocks):
        for stage in block.stages:
            if isinstance(stage, PlanSegment):
                stages.append(
                    ExecutionStage("submit", number, row, stage.steps, plan.uploads.get(stage, ()), stage.readbacks)
                )
            else:
                stages.append(ExecutionStage("cpu", number, row, stage.steps))
            row += len(stage.steps)
        if block.condition is not None and block.target is not None:
            jumps.append(StageJump(number, block.condition, block.target))
    return Order(tuple(stages), tuple(jumps))


Rows = tuple[int, int]  # first and last row, both inclusive


def roots_of(plan: Plan) -> dict[int, int]:
    """Return view -> the tensor whose storage it uses."""
    return resolve_aliases(plan.aliases)


def lifetimes(plan: Plan, order: Order) -> dict[int, Rows]:
    """Return root tensor -> first and last row at which it or a view of it is in use.

    Tensors that outlive the method are in use at every row.
    """
    roots = roots_of(plan)
    scratch: dict[int, list[int]] = {}
    for value_id, request in plan.scratch.items():
        scratch.setdefault(request.step, []).append(value_id)
    end = max(len(order.steps) - 1, 0)
    rows: dict[int, Rows] = {roots.get(v, v): (0, 0) for v in plan.graph.inputs if v in plan.buffer_of}

    def use(value_id: int, row: int) -> None:
        root = roots.get(value_id, value_id)
        if root in plan.buffer_of:
            first, last = rows.get(root, (row, row))
            rows[root] = (min(first, row), max(last, row))

    for stage in order.stages:
        for row, step in enumerate(stage.steps, stage.first):
            call = plan.graph.steps[step]
            assert isinstance(call, Call)
            for value_id in (*plan.graph.flatten(call.args), *call.outs, *scratch.get(step, ())):
                use(value_id, row)
        for value_id in stage.reads:
            use(value_id, stage.first + len(stage.steps) - 1)
    for buffer in plan.buffers:
        for tensor in buffer.tensors:
            if buffer.kind != "activation" or tensor in plan.flow.shared:
                rows[tensor] = (0, end)
    return rows


class BufferData(TypedDict):
    """A buffer of the plan."""

    number: int
    kind: str
    bytes: int
    tensors: list[int]


class MemoryData(TypedDict):
    """The buffers of a method, and the bytes of activations in use at each row."""

    buffers: list[BufferData]
    in_use: list[int]
    unshared: int  # bytes without sharing


def memory_data(plan: Plan, order: Order, lives: Mapping[int, Rows]) -> MemoryData:
    """Return the buffers with their tensors, and the bytes of activations in use at each row."""
    scratch = plan.scratch

    def nbytes(tensor: int) -> int:
        if tensor in scratch:
            spec = scratch[tensor].spec
            return padded(stored_bytes(spec.dtype, spec.dims))
        return padded(plan.stored_bytes(tensor))

    change = [0] * (len(order.steps) + 1)  # of the bytes in use, from the row before
    total = 0
    buffers: list[BufferData] = []
    for number, buffer in enumerate(plan.buffers):
        tensors = sorted(buffer.tensors, key=lambda t: lives.get(t, (0, 0)))
        buffers.append({"number": number, "kind": buffer.kind, "bytes": buffer.nbytes, "tensors": tensors})
        if buffer.kind == "activation":
            total += sum(map(nbytes, tensors))
            for tensor in tensors:
                first, last = lives[tensor]
                change[first] += nbytes(tensor)
                change[last + 1] -= nbytes(tensor)
    return {"buffers": buffers, "in_use": list(accumulate(change[:-1])), "unshared": total}


Part = str | int  # literal text, or the id of a tensor or live scalar


class ArgumentData(TypedDict):
    """An argument of a call."""

    name: str | None
    parts: list[Part]


class CallRow(TypedDict):
    """A call in the order in which the method runs."""

    row: int
    name: str
    args: list[ArgumentData]
    outs: list[int]
    in_place: list[int]
    delegate: int | None
    origin: str
    place: str  # the origin in a few characters
    runs: str  # "gpu", "constant", "view" or "scalar"; without a plan, the kind of the stage
    kernels: list[str]


class ValueRow(TypedDict):
    """A tensor or live scalar."""

    id: int
    kind: str  # "activation", "constant", "state", "scratch", "scalar" or "literal"
    dtype: str
    dims: list[int] | None  # at the bound; None for scalars
    dynamic: list[bool]  # which dims may be smaller
    host_dtype: str | None  # of the caller, if it differs
    name: str | None  # of a constant
    bytes: int
    buffer: int | None
    view_of: int | None
    live: Rows | None  # first and last row
    input: bool
    output: bool
    made: list[int]  # rows that write it
    read: list[int]  # rows that read it


def call_data(graph: Graph, plan: Plan | None, order: Order, lowered: dict[int, LoweredCall]) -> list[CallRow]:
    """Return the call of each row."""
    calls: list[CallRow] = []
    for stage in order.stages:
        for row, step in enumerate(stage.steps, stage.first):
            call = graph.steps[step]
            assert isinstance(call, Call)
            lowered_call = lowered.get(step)
            op = find(call) if lowered_call else None
            names = [name for name, _ in op.bound_parameters(call)] if op else [None] * len(call.args)
            calls.append(
                {
                    "row": row,
                    "name": call.name,
                    "args": [
                        {"name": name, "parts": _parts(graph, value_id)}
                        for name, value_id in zip(names, call.args, strict=True)
                    ],
                    "outs": list(call.outs),
                    "in_place": list(mutated_values(call, graph)) if op else [],
                    "delegate": call.origin.delegate,
                    "origin": _origin(call),
                    "place": _place(call),
                    "runs": stage.kind
                    if lowered_call is None or plan is None
                    else _runs(call, lowered_call, graph, plan),
                    "kernels": [d.kernel.label for d in lowered_call.dispatches] if lowered_call else [],
                }
            )
    return calls


def _origin(call: Call) -> str:
    origin = call.origin
    if origin.delegate is None:
        return f"instruction {origin.instruction}"
    return f"delegate {origin.delegate}, {'input or output' if origin.node is None else f'node {origin.node}'}"


def _place(call: Call) -> str:
    """Return the origin in a few characters, for a narrow column."""
    origin = call.origin
    if origin.delegate is None:
        return f"i{origin.instruction}"
    return f"d{origin.delegate}" if origin.node is None else f"d{origin.delegate} n{origin.node}"


def _runs(call: Call, lowered: LoweredCall, graph: Graph, plan: Plan) -> str:
    """Return the cost of a call: "gpu" dispatches; "constant" is filled once; "view" and "scalar" have no dispatch."""
    outs = call.outs
    if lowered.dispatches:
        return "gpu"
    if all(isinstance(graph.values[out], LIVE_SCALARS) for out in outs):
        return "scalar"
    return "constant" if any(out in plan.materialized for out in outs) else "view"


def _parts(graph: Graph, value_id: int) -> list[Part]:
    match graph.values[value_id]:
        case TensorSpec():
            return [value_id]
        case ValueList(ids):
            members = [_parts(graph, i) for i in ids]
            return ["[", *(part for n, m in enumerate(members) for part in ([", "] if n else []) + m), "]"]
        case value if isinstance(value, LIVE_SCALARS):
            return [value_id]
        case value:
            return [_literal(value)]


def _literal(value: Value) -> str:
    match value:
        case Int(number) | Bool(number):
            return str(number)
        case Double(number):
            return f"{number:.7g}"
        case String(text):
            return _formula(text) if "\n" in text else json.dumps(text, ensure_ascii=False)
        case IntList(items) | BoolList(items):
            return f"[{', '.join(map(str, items))}]"
        case DoubleList(numbers):
            return f"[{', '.join(f'{n:.7g}' for n in numbers)}]"
        case Null():
            return "None"
    raise TypeError(f"{type(value).__name__} is not a literal")


def _formula(text: str) -> str:
    """Return an elementwise program as formulas: `relu(x0)`, or `v0 = mul(x0, x1); v1 = relu(v0); v1`."""
    steps, outputs = parse_program(text)
    calls = [f"{step.name.split('.')[1]}({', '.join(step.args)})" for step in steps]
    if len(calls) == 1:
        return calls[0]
    return "; ".join([*(f"v{number} = {call}" for number, call in enumerate(calls)), ", ".join(outputs)])


def value_data(
    graph: Graph,
    plan: Plan | None,
    order: Order,
    calls: Sequence[CallRow],
    dynamic: dict[int, tuple[bool, ...]],
    lives: dict[int, Rows],
) -> dict[int, ValueRow]:
    """Return every tensor and live scalar of calls, jumps, inputs and outputs."""
    written: dict[int, list[int]] = {}
    read: dict[int, list[int]] = {}
    for call in calls:
        for out in (*call["outs"], *call["in_place"]):
            written.setdefault(out, []).append(call["row"])
        for value_id in dict.fromkeys(p for a in call["args"] for p in a["parts"] if isinstance(p, int)):
            read.setdefault(value_id, []).append(call["row"])
    conditions = [jump.condition for jump in order.jumps]
    mentioned = sorted({*written, *read, *conditions, *graph.inputs, *graph.outputs})
    values: dict[int, ValueRow] = {}
    for value_id in mentioned:
        values[value_id] = entry = _value(graph, plan, value_id, dynamic.get(value_id))
        entry["made"], entry["read"] = written.get(value_id, []), read.get(value_id, [])
    if plan is not None:
        _add_storage(values, plan, lives)
    return values


def _value(graph: Graph, plan: Plan | None, value_id: int, dynamic: tuple[bool, ...] | None) -> ValueRow:
    value = graph.values[value_id]
    if not isinstance(value, TensorSpec):  # an output may also be a literal or a list
        live = isinstance(value, LIVE_SCALARS)
        text = type(value).__name__ if live else "".join(map(str, _parts(graph, value_id)))
        entry = _row(value_id, "scalar" if live else "literal", text)
        entry["input"], entry["output"] = value_id in graph.inputs, value_id in graph.outputs
        return entry
    materialized = plan.materialized if plan is not None else {}
    constant = value.constant or materialized.get(value_id)
    state = value.mutable or (plan is not None and constant is not None and value_id in plan.flow.mutated)
    kind = "state" if state else "constant" if constant is not None else "activation"
    entry = _tensor(value_id, value, kind)
    entry["input"], entry["output"] = value_id in graph.inputs, value_id in graph.outputs
    if dynamic is not None:
        entry["dynamic"] = list(dynamic)
    if constant is not None:
        entry["name"] = constant.name
    return entry


def _row(value_id: int, kind: str, dtype: str) -> ValueRow:
    """Return the row of a value without dims, storage and uses."""
    return {
        "id": value_id,
        "kind": kind,
        "dtype": dtype,
        "dims": None,
        "dynamic": [],
        "host_dtype": None,
        "name": None,
        "bytes": 0,
        "buffer": None,
        "view_of": None,
        "live": None,
        "input": False,
        "output": False,
        "made": [],
        "read": [],
    }


def _tensor(value_id: int, spec: TensorSpec, kind: str) -> ValueRow:
    return {
        **_row(value_id, kind, spec.dtype.short),
        "host_dtype": spec.host_dtype.short if spec.host_dtype is not spec.dtype else None,
        "dims": list(spec.dims),
        "dynamic": [spec.dynamic] * len(spec.dims),
        "bytes": stored_bytes(spec.dtype, spec.dims),
    }


def _add_storage(values: dict[int, ValueRow], plan: Plan, lives: dict[int, Rows]) -> None:
    """Add buffer and lifetime of each tensor, and entries for scratch."""
    roots = roots_of(plan)
    for value_id, spec in ((v, scratch.spec) for v, scratch in plan.scratch.items()):
        values[value_id] = _tensor(value_id, spec, "scratch")
        values[value_id]["made"] = [lives[value_id][0]] if value_id in lives else []
    for value_id, entry in values.items():
        if entry["dims"] is not None:
            entry["buffer"] = plan.buffer_of.get(value_id)
            entry["view_of"] = roots.get(value_id)
            entry["live"] = lives.get(roots.get(value_id, value_id))

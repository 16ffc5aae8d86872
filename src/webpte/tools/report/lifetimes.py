"""The order of calls and the lifetimes of tensors. The row of a call is its place in that order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ...graph import Call, Graph
from ...lowering import stored_bytes
from ...plan import Plan, PlanSegment, padded
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
        """The step of the graph for each row."""
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
                    ExecutionStage("submit", number, row, stage.steps, plan.uploads.get(stage, ()), stage.reads)
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


def memory_data(plan: Plan, order: Order, lives: Mapping[int, Rows]) -> dict[str, Any]:
    """Return the buffers with their tensors, and the bytes of activations in use at each row."""
    scratch = plan.scratch

    def nbytes(tensor: int) -> int:
        if tensor in scratch:
            spec = scratch[tensor].spec
            return padded(stored_bytes(spec.dtype, spec.dims))
        return padded(plan.stored_bytes(tensor))

    change = [0] * (len(order.steps) + 1)  # of the bytes in use, from the row before
    total = 0
    buffers = []
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

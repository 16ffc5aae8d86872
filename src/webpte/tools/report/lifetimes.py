"""From which call to which a tensor needs its storage, and who shares a buffer with whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ...graph import Call, Graph
from ...lowering import stored_bytes
from ...plan import Plan, Segment, padded
from ...plan.memory import resolve_aliases


@dataclass(frozen=True)
class ExecutionStage:
    """Rows that run together: one submit, or calls on the CPU. Without a plan: all that the file holds."""

    kind: str  # "submit", "cpu" or "file"
    part: int  # a method with jumps has several, each a straight line
    first: int  # row of its first call
    steps: tuple[int, ...]  # the graph's
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
    """A method as it runs."""

    stages: tuple[ExecutionStage, ...]
    jumps: tuple[StageJump, ...] = ()

    @property
    def steps(self) -> list[int]:
        """Row -> the graph's step."""
        return [step for stage in self.stages for step in stage.steps]


def order_of(graph: Graph, plan: Plan | None) -> Order:
    if plan is None:
        steps = tuple(i for i, step in enumerate(graph.steps) if isinstance(step, Call))
        return Order((ExecutionStage("file", 0, 0, steps),))
    stages: list[ExecutionStage] = []
    jumps: list[StageJump] = []
    row = 0
    for number, block in enumerate(plan.flow.blocks):
        for stage in block.stages:
            if isinstance(stage, Segment):
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
    """View -> the tensor whose storage it uses."""
    return resolve_aliases(plan.aliases)


def lifetimes(plan: Plan, order: Order) -> dict[int, Rows]:
    """Root tensor -> the rows at which it or a view of it is in use. What outlives the method is there throughout."""
    roots = roots_of(plan)
    scratch: dict[int, list[int]] = {}
    for value_id, asked in plan.scratch.items():
        scratch.setdefault(asked.step, []).append(value_id)
    end = max(len(order.steps) - 1, 0)
    found: dict[int, Rows] = {roots.get(v, v): (0, 0) for v in plan.graph.inputs if v in plan.buffer_of}

    def touch(value_id: int, row: int) -> None:
        root = roots.get(value_id, value_id)
        if root in plan.buffer_of:
            first, last = found.get(root, (row, row))
            found[root] = (min(first, row), max(last, row))

    for stage in order.stages:
        for row, step in enumerate(stage.steps, stage.first):
            call = plan.graph.steps[step]
            assert isinstance(call, Call)
            for value_id in (*plan.graph.flatten(call.args), *call.outs, *scratch.get(step, ())):
                touch(value_id, row)
        for value_id in stage.reads:
            touch(value_id, stage.first + len(stage.steps) - 1)
    for buffer in plan.buffers:
        for tensor in buffer.tensors:
            if buffer.kind != "activation" or tensor in plan.flow.shared:
                found[tensor] = (0, end)
    return found


def memory_data(plan: Plan, order: Order, lives: Mapping[int, Rows]) -> dict[str, Any]:
    """Buffers with their tenants, and how many bytes of activations are in use at each row."""
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
        tenants = sorted(buffer.tensors, key=lambda t: lives.get(t, (0, 0)))
        buffers.append({"number": number, "kind": buffer.kind, "bytes": buffer.nbytes, "tensors": tenants})
        if buffer.kind == "activation":
            total += sum(map(nbytes, tenants))
            for tensor in tenants:
                first, last = lives[tensor]
                change[first] += nbytes(tensor)
                change[last + 1] -= nbytes(tensor)
    return {"buffers": buffers, "in_use": list(accumulate(change[:-1])), "unshared": total}

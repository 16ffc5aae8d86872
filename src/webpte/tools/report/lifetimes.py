"""From which call to which a tensor needs its storage, and who shares a buffer with whom."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from ...graph import Call
from ...lowering import stored_bytes
from ...plan import Plan, padded
from ...plan.memory import resolve
from .order import Order

Rows = tuple[int, int]  # first and last row, both inclusive


def roots_of(plan: Plan) -> dict[int, int]:
    """View -> the tensor whose storage it uses."""
    return resolve(plan.aliases)


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

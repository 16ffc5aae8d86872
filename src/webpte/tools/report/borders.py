"""What crosses: between delegates and the rest of the method, and between host and device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...graph import Graph
from .order import Order

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

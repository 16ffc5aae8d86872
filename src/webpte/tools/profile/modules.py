"""Which part of a model a call belongs to. Files do not name modules; equal blocks of calls stand in for layers."""

from __future__ import annotations

from ...plan import Planner
from ..report import method_data
from ..report.order import order_of


def modules_of(planner: Planner) -> dict[int, str]:
    """Step of the graph -> "block 3 of 30", or where it stands among the blocks."""
    steps = order_of(planner.plan.graph, planner.plan).steps
    groups = method_data(planner.plan.graph, planner, None)["repeats"]
    labels: dict[int, str] = {}  # row -> label
    for number, blocks in enumerate(groups):
        kind = f" of kind {number + 1}" if len(groups) > 1 else ""
        for index, block in enumerate(blocks):
            rows = range(block["first"], block["first"] + block["calls"])
            labels.update(dict.fromkeys(rows, f"block {index + 1} of {len(blocks)}{kind}"))
    place = "before the blocks" if groups else "the whole method"
    named: dict[int, str] = {}
    for row, step in enumerate(steps):
        if row in labels:
            place = "after the blocks" if row >= max(labels) else "between the blocks"
        named[step] = labels.get(row, place)
    return named

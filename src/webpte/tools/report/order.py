"""Calls in the order in which they run. The row of a call is its place in that order."""

from __future__ import annotations

from dataclasses import dataclass

from ...graph import Call, Graph
from ...plan import Plan, Segment


@dataclass(frozen=True)
class Stage:
    """Rows that run together: one submit, or calls on the CPU. Without a plan: all that the file holds."""

    kind: str  # "submit", "cpu" or "file"
    part: int  # a method with jumps has several, each a straight line
    first: int  # row of its first call
    steps: tuple[int, ...]  # the graph's
    uploads: tuple[int, ...] = ()  # tensors copied to the device before it
    reads: tuple[int, ...] = ()  # tensors copied to the host after it


@dataclass(frozen=True)
class Jump:
    """After the last stage of `part`: go to part `target` if the condition is false."""

    part: int
    condition: int
    target: int


@dataclass(frozen=True)
class Order:
    """A method as it runs."""

    stages: tuple[Stage, ...]
    jumps: tuple[Jump, ...] = ()

    @property
    def steps(self) -> list[int]:
        """Row -> the graph's step."""
        return [step for stage in self.stages for step in stage.steps]


def order_of(graph: Graph, plan: Plan | None) -> Order:
    if plan is None:
        steps = tuple(i for i, step in enumerate(graph.steps) if isinstance(step, Call))
        return Order((Stage("file", 0, 0, steps),))
    stages: list[Stage] = []
    jumps: list[Jump] = []
    row = 0
    for number, block in enumerate(plan.flow.blocks):
        for stage in block.stages:
            if isinstance(stage, Segment):
                stages.append(Stage("submit", number, row, stage.steps, plan.uploads.get(stage, ()), stage.reads))
            else:
                stages.append(Stage("cpu", number, row, stage.steps))
            row += len(stage.steps)
        if block.condition is not None and block.target is not None:
            jumps.append(Jump(number, block.condition, block.target))
    return Order(tuple(stages), tuple(jumps))

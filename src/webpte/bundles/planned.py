"""A method planned for a device that need not be here, at the shapes that a page will call it with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, ShapeError, UnsupportedError
from ..graph import Graph, TensorSpec
from ..plan import Planner
from ..plan.segments import Segment
from ..runtime import Program
from ..runtime.arguments import zeros_like_input
from ..runtime.converter import ArgumentConverter
from ..runtime.program import Rewrite
from ..wgsl import Caps

Call = Sequence[Any]  # arguments of a method
Shapes = Sequence[Sequence[int]]  # the dims of each of its inputs; () for a number


def planned(program: Program, name: str, caps: Caps, calls: Iterable[Call], rewrite: Rewrite | None = None) -> Planner:
    """A planner that has made the schedules of the calls."""
    return with_schedules(program.planner(name, caps, rewrite), calls)


def planned_at(program: Program, name: str, caps: Caps, shapes: Sequence[Shapes]) -> Planner:
    """The same for all calls of these shapes, whatever data they are given."""
    return for_any_data(with_schedules(program.planner(name, caps), [zeros(program.graph(name), s) for s in shapes]))


def with_schedules(planner: Planner, calls: Iterable[Call]) -> Planner:
    segment = only_segment(planner)
    converter = ArgumentConverter(planner.plan)
    made = list(calls)
    planner.make_room(len(made))
    for call in made:
        live = converter.bind_inputs(call)
        live.arrays.update({v: _constant(planner, v) for v in segment.looks})
        planner.prepare(segment, live)
    return planner


def for_any_data(planner: Planner) -> Planner:
    """The planner, unless what it made serves only calls with certain numbers in them."""
    terms = {str(term) for _, schedule in planner.known() for term, _ in schedule.decisions}
    if terms:
        graph = planner.plan.graph
        inputs = ", ".join(f"input {number} is %{value}" for number, value in enumerate(graph.inputs))
        raise UnsupportedError(
            f"{graph.name} decides by the data of a call what to run: {', '.join(sorted(terms))}, where {inputs}. "
            "A bundle has what runs at given shapes: let shapes of inputs tell sizes, not numbers.",
            sorted(terms),
            code="data_dependent",
        )
    return planner


def extents(program: Program, name: str) -> list[Shapes]:
    """The largest inputs, and the smallest if the program can take those."""
    plan = program.plan(name, Caps())
    largest, *smaller = [[bound.get(i, ()) for i in plan.graph.inputs] for bound in plan.extents()]
    found: list[Shapes] = [largest]
    for shapes in smaller:
        with contextlib.suppress(ShapeError):
            planned_at(program, name, Caps(), [shapes])
            found.append(shapes)
    return found


def zeros(graph: Graph, shapes: Shapes) -> Call:
    """Arguments of these shapes, of which nothing but the shapes is looked at."""
    if len(shapes) != len(graph.inputs):
        raise InputError(
            f"{graph.name} takes {len(graph.inputs)} inputs; {len(shapes)} shapes were named", code="input_count"
        )
    return [zeros_like_input(graph.values[i], tuple(dims)) for i, dims in zip(graph.inputs, shapes, strict=True)]


def only_segment(planner: Planner) -> Segment:
    """The submit that is the whole method."""
    plan = planner.plan
    if plan.cpu_calls:
        listed = ", ".join(f"{name} x{count}" for name, count in sorted(plan.cpu_calls.items()))
        raise UnsupportedError(
            f"{plan.graph.name} calls CPU kernels, which a page does not have: {listed}. Export it so that the "
            "partitioner takes them, too; `webpte check` tells why it did not.",
            sorted(plan.cpu_calls),
        )
    stages = [stage for block in plan.flow.blocks for stage in block.stages]
    if len(plan.flow.blocks) != 1 or len(stages) != 1 or not isinstance(stages[0], Segment):
        raise UnsupportedError(
            f"{plan.graph.name} takes {len(plan.flow.segments)} submits, for what comes next depends on data. A bundle "
            "has plans of one: export it without branches on data, or each branch as a method of its own."
        )
    return stages[0]


def _constant(planner: Planner, value_id: int) -> np.ndarray[Any, Any]:
    """What a lowering looks at in a tensor that it does not compute."""
    graph = planner.plan.graph
    spec = graph.values[value_id]
    if not isinstance(spec, TensorSpec) or spec.constant is None or value_id in planner.plan.flow.state:
        raise UnsupportedError(
            f"{graph.name} decides by the data of value {value_id} what to run; a bundle has what runs at given shapes",
            code="data_dependent",
        )
    return spec.constant.array(spec.dims)

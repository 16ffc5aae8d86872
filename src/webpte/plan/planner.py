"""The Planner: it has made a method's Plan, and makes schedules for shapes that come later."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ..budgets import limit, over, spend
from ..errors import GraphError, Problem, ShapeError
from ..fusion import apply_passes, widen_halves
from ..graph import LIVE_SCALARS, OVERFLOW, Graph, TensorSpec
from ..graph.expressions import Numbers
from ..lowering import Job
from ..wgsl import Caps
from .integers import exact_integers, overflow_message
from .limits import over_limits, refuse_over_limits
from .lowering import Example, Lowering
from .memory import assign
from .plan import Dims, Plan, Scratch, shrunk
from .schedules import CallValues, Schedule, Scheduler
from .segments import Flow, Segment, cut_graph
from .validate import refuse_wrong

SMALLEST = (1, 2, 4)  # what dims that may vary are tried at,
FEW = (8,)  # and once more: kernels may differ for one row, a few and many


class Planner(Scheduler):
    """A method's schedules, lowered when they are asked for."""

    def __init__(self, plan: Plan, lowering: Lowering) -> None:
        super().__init__(plan)
        self._lowering = lowering

    @property
    def caps(self) -> Caps:
        """The device that was planned for."""
        return self._lowering.context.caps

    @property
    def examples(self) -> dict[Job, Example]:
        """What could be tuned."""
        return self._lowering.examples

    @property
    def runs(self) -> int:
        """Lowerings executed so far."""
        return self._lowering.runs

    def missing(self, segment: Segment, live: CallValues, numbers: Numbers) -> Schedule:
        return self._lowering.lower(segment, live, numbers)

    def lower(self, inputs: Mapping[int, Dims]) -> list[Schedule]:
        """What every segment would do for these input shapes; others are at their bound. For looking only."""
        return _lower_method(self.plan.graph, self.plan.flow, self._lowering, dict(inputs))


def make_planner(
    graph: Graph,
    caps: Caps,
    cpu_kernels: Container[str],
    fallback: bool = False,
    passes: Sequence[str] = (),
    tuning: Mapping[str, str] | None = None,
) -> Planner:
    """Decide everything about a method. Raises one error that lists all problems of a kind.

    `passes` names the rewrites to apply, of fusion.PASSES; `tuning` the kernels to prefer, see Context.variant.
    """
    planner, problems = draft(graph, caps, cpu_kernels, fallback, passes, tuning)
    refuse_over_limits(graph.name, caps, problems)
    return planner


def draft(
    graph: Graph,
    caps: Caps,
    cpu_kernels: Container[str],
    fallback: bool = False,
    passes: Sequence[str] = (),
    tuning: Mapping[str, str] | None = None,
) -> tuple[Planner, list[Problem]]:
    """A planner, and what of its plan the device cannot hold or bind."""
    refuse_wrong(graph)
    graph = exact_integers(graph, cpu_kernels)
    if "shader-f16" not in caps.features:
        graph = widen_halves(graph)
    graph, applied = apply_passes(graph, passes)
    flow = cut_graph(graph, cpu_kernels, fallback)
    lowering = Lowering(graph, flow, caps, tuning)
    bounds = {i: graph.tensor(i).dims for i in graph.inputs if isinstance(graph.values[i], TensorSpec)}
    schedules = _lower_method(graph, flow, lowering, bounds)
    examples = dict(lowering.examples)
    dynamic = _dynamic_dims(graph, flow, lowering, bounds)
    lowering.examples = examples  # nobody will ask for the shapes that were tried in between
    schedules += _lower_smaller(graph, flow, lowering, bounds, dynamic, SMALLEST)
    schedules += _lower_smaller(graph, flow, lowering, bounds, dynamic, FEW)
    lowering.context.sealed = True
    plan = _plan(graph, flow, lowering, schedules, dynamic, applied)
    return Planner(plan, lowering), over_limits(plan, caps, schedules, lowering.touched)


def _plan(
    graph: Graph,
    flow: Flow,
    lowering: Lowering,
    schedules: Sequence[Schedule],
    dynamic: dict[int, tuple[bool, ...]],
    applied: dict[str, int],
) -> Plan:
    context = lowering.context
    memory = assign(graph, flow, lowering.touched, lowering.context)
    kernels = tuple(dict.fromkeys(d.kernel for s in schedules for d in s.dispatches))
    spend("kernels", len(kernels), graph.name)
    return Plan(
        graph,
        flow,
        memory.buffers,
        memory.buffer_of,
        memory.uploads,
        memory.kept,
        kernels,
        len({d.params for s in schedules for d in s.dispatches}),
        dynamic,
        applied,
        dict(context.aliases),
        dict(context.materialised),
        {tensor.id: Scratch(step, tensor.spec) for (step, _), tensor in context.scratch_tensors.items()},
        _checks(graph),
        frozenset(lowering.touched),
        context.caps.limit("max-storage-buffer-binding-size"),
        context.caps.subgroup,
    )


def _checks(graph: Graph) -> dict[int, str]:
    looks = [call for call in graph.calls if call.name == OVERFLOW]
    return {o: overflow_message(graph, call) for call in looks for o in call.outs if o not in graph.outputs}


def _lower_method(graph: Graph, flow: Flow, lowering: Lowering, inputs: dict[int, Dims]) -> list[Schedule]:
    """Lower every segment once for the given input shapes. What the CPU makes is taken at its bound."""
    live = CallValues(dict(inputs), {}, {})
    for value_id, value in enumerate(graph.values):
        if isinstance(value, TensorSpec):
            live.dims.setdefault(value_id, value.dims)
        elif isinstance(value, LIVE_SCALARS):
            live.scalars.setdefault(value_id, 0)
    return [lowering.build(segment, live) for segment in flow.segments]


def _lower_smaller(
    graph: Graph,
    flow: Flow,
    lowering: Lowering,
    bounds: dict[int, Dims],
    dynamic: dict[int, tuple[bool, ...]],
    sizes: Sequence[int],
) -> list[Schedule]:
    """Lower at the first of the sizes that works: small shapes may want other kernels. No file names its minimum."""
    for size in sizes:
        smallest = shrunk(bounds, dynamic, size)
        if smallest == bounds:
            break
        try:
            return _lower_method(graph, flow, lowering, smallest)
        except ShapeError:
            continue
    return []


def _dynamic_dims(graph: Graph, flow: Flow, lowering: Lowering, bounds: dict[int, Dims]) -> dict[int, tuple[bool, ...]]:
    """Which dims of dynamic inputs can really vary.

    The file only says that a tensor is dynamic. So we try: dims of equal bound usually share one symbol and are shrunk
    together first, then each alone. A dim that some op contradicts is static.
    """
    candidates = [(i, d) for i in bounds if graph.tensor(i).dynamic for d, size in enumerate(bounds[i]) if size > 1]

    granted = max(limit("trial lowerings"), 16 * len(graph.steps))
    before = lowering.runs

    def fits(group: list[tuple[int, int]]) -> bool:
        if lowering.runs - before > granted:
            raise GraphError(
                f"{graph.name} has {len(candidates)} dims that may vary, too many to try: "
                f"{over('trial lowerings', lowering.runs - before)}. Re-export with fewer dynamic dims.",
                code="over_budget",
            )
        trial = {i: list(dims) for i, dims in bounds.items()}
        for i, d in group:
            trial[i][d] -= 1
        try:
            _lower_method(graph, flow, lowering, {i: tuple(dims) for i, dims in trial.items()})
        except ShapeError:
            return False
        return True

    varying: set[tuple[int, int]] = set()
    for size in sorted({bounds[i][d] for i, d in candidates}):
        group = [(i, d) for i, d in candidates if bounds[i][d] == size]
        if fits(group):
            varying.update(group)
        elif len(group) > 1:
            varying.update(single for single in group if fits([single]))
    return {i: tuple((i, d) in varying for d in range(len(dims))) for i, dims in bounds.items()}

"""The Plan: a frozen, printable account of how a method will run on a device with given capabilities."""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from ..budgets import limit, over, spend
from ..errors import GraphError, Problem, ShapeError
from ..graph import LIVE_SCALARS, OVERFLOW, Call, Graph, TensorSpec, apply_passes, widen_halves
from ..ops import WHOLE, Binding, mutated_positions, stored_bytes
from ..wgsl import Caps, Kernel
from .integers import exact_integers
from .limits import over_limits, refuse_over_limits
from .lowering import Dims, Live, Lowering, Schedule
from .memory import Buffer, assign, padded
from .segments import HostCalls, Layout, Segment, lay_out
from .validate import refuse_wrong

SMALLEST = (1, 2, 4)  # what dims that may vary are tried at,
FEW = (8,)  # and once more: kernels may differ for one row, a few and many


@dataclass(frozen=True)
class Plan:
    """Everything decided before a GPU object exists."""

    graph: Graph
    layout: Layout
    buffers: tuple[Buffer, ...]
    buffer_of: dict[int, int]  # tensor id (aliases included) -> buffer
    uploads: dict[Segment, tuple[int, ...]]  # tensors copied to the device before a segment
    kept: frozenset[int]  # those of them that are still there when the method has run
    kernels: tuple[Kernel, ...]
    parameter_blocks: int  # different ones, at the shapes that were lowered here
    dynamic_dims: dict[int, tuple[bool, ...]]  # method input -> which dims may vary
    passes: dict[str, int]  # rewrites applied to the graph, each with the calls it saved
    lowering: Lowering = field(compare=False, repr=False)

    @functools.cached_property
    def host_state(self) -> tuple[int, ...]:
        """State that no kernel of the device touches: it lives on the host, in the dtypes the program declares."""
        return tuple(sorted(v for v in self.layout.state if v not in self.buffer_of))

    @functools.cached_property
    def checks(self) -> dict[int, Call]:
        """Tensors that must be zero when a submit is done: the results of calls that look for overflows."""
        found = {out: call for call in self.graph.calls if call.name == OVERFLOW for out in call.outs}
        return {out: call for out, call in found.items() if out not in self.graph.outputs}

    @property
    def limits(self) -> dict[str, int]:
        """The device limits this plan needs, beyond which it asks for nothing."""
        largest = max((b.nbytes for b in self.buffers), default=0)
        return {
            "max-storage-buffer-binding-size": max(map(self.bound_bytes, self.lowering.touched), default=0),
            "max-buffer-size": max(largest, self.staging_bytes),
            "max-storage-buffers-per-shader-stage": max((k.reads + k.writes for k in self.kernels), default=0),
            "max-compute-invocations-per-workgroup": max((k.workgroup for k in self.kernels), default=0),
            "max-compute-workgroup-size-x": max((k.workgroup for k in self.kernels), default=0),
        }

    @property
    def cpu_calls(self) -> dict[str, int]:
        """Calls that run on the CPU, by name, with how often each stands in the method."""
        counts: dict[str, int] = {}
        for block in self.layout.blocks:
            for stage in block.stages:
                if isinstance(stage, HostCalls):
                    for index in stage.steps:
                        counts[self._step_name(index)] = counts.get(self._step_name(index), 0) + 1
        return counts

    @property
    def staging_bytes(self) -> int:
        return max((self.read_bytes(s) for s in self.layout.segments), default=0)

    def read_bytes(self, segment: Segment) -> int:
        """The most a segment reads back."""
        return sum(padded(self.stored_bytes(t)) for t in segment.reads)

    def bound_bytes(self, binding: Binding) -> int:
        """What of a buffer is bound: of one that the device cannot bind no more than the tensor takes."""
        if binding.nbytes != WHOLE:
            return binding.nbytes
        buffer = self.buffers[self.buffer_of[binding.tensor]]
        context = self.lowering.context
        limit = context.caps.limit("max-storage-buffer-binding-size")
        if buffer.nbytes <= limit:
            return buffer.nbytes
        scratch = next((t.spec for t in context.scratch_tensors.values() if t.id == binding.tensor), None)
        spec = scratch or self.graph.tensor(binding.tensor)
        return min(padded(nbytes := stored_bytes(spec.dtype, spec.dims)), max(nbytes, limit))

    def stored_bytes(self, value_id: int) -> int:
        """Bytes of a tensor on the device, at its bound."""
        spec = self.graph.tensor(value_id)
        return stored_bytes(spec.dtype, spec.dims)

    def extents(self) -> list[dict[int, Dims]]:
        """The dims of the tensor inputs at their largest and, if any may vary, at their smallest."""
        largest = {i: self.graph.tensor(i).dims for i in self.dynamic_dims}
        return [largest, *(s for s in [_shrunk(largest, self.dynamic_dims, 1)] if s != largest)]

    def bytes_by_kind(self) -> dict[str, int]:
        totals = {"constant": 0, "state": 0, "activation": 0}
        for buffer in self.buffers:
            totals[buffer.kind] += buffer.nbytes
        return totals

    def lower(self, inputs: Mapping[int, Dims]) -> list[Schedule]:
        """What every segment would do for these input shapes; others are at their bound. For looking only."""
        return _lower_method(self.graph, self.layout, self.lowering, dict(inputs))

    def __str__(self) -> str:
        lines = [f"plan of {self.graph.name}"]
        for number, block in enumerate(self.layout.blocks):
            for stage in block.stages:
                where = "host" if isinstance(stage, HostCalls) else "submit"
                names = [self._step_name(i) for i in stage.steps]
                lines.append(f"  block {number} {where}: {len(names)} calls: {', '.join(names)}")
            if block.condition is not None:
                lines.append(f"  block {number}: if value {block.condition} is false go to block {block.target}")
        for number, buffer in enumerate(self.buffers):
            tensors = ", ".join(f"%{t}" for t in buffer.tensors)
            lines.append(f"  buffer {number}: {buffer.kind} {buffer.nbytes} bytes: {tensors}")
        return "\n".join(lines)

    def _step_name(self, index: int) -> str:
        step = self.graph.steps[index]
        return step.name if isinstance(step, Call) else "jump"


def make_plan(
    graph: Graph,
    caps: Caps,
    cpu_kernels: Container[str],
    fallback: bool = False,
    passes: Sequence[str] = (),
    tuning: Mapping[str, str] | None = None,
) -> Plan:
    """Decide everything about a method. Raises one error that lists all problems of a kind.

    `passes` names the rewrites to apply, of graph.PASSES; `tuning` the kernels to prefer, see Context.variant.
    """
    plan, problems = draft_plan(graph, caps, cpu_kernels, fallback, passes, tuning)
    refuse_over_limits(graph.name, caps, problems)
    return plan


def draft_plan(
    graph: Graph,
    caps: Caps,
    cpu_kernels: Container[str],
    fallback: bool = False,
    passes: Sequence[str] = (),
    tuning: Mapping[str, str] | None = None,
) -> tuple[Plan, list[Problem]]:
    """A plan, and what of it the device cannot hold or bind."""
    refuse_wrong(graph)
    graph = exact_integers(graph, cpu_kernels)
    if "shader-f16" not in caps.features:
        graph = widen_halves(graph)
    graph, applied = apply_passes(graph, passes, mutated_positions)
    layout = lay_out(graph, cpu_kernels, fallback)
    lowering = Lowering(graph, layout, caps, tuning)
    bounds = {i: graph.tensor(i).dims for i in graph.inputs if isinstance(graph.values[i], TensorSpec)}
    schedules = _lower_method(graph, layout, lowering, bounds)
    examples = dict(lowering.examples)
    dynamic = _dynamic_dims(graph, layout, lowering, bounds)
    lowering.examples = examples  # nobody will ask for the shapes that were tried in between
    schedules += _lower_smaller(graph, layout, lowering, bounds, dynamic, SMALLEST)
    schedules += _lower_smaller(graph, layout, lowering, bounds, dynamic, FEW)
    memory = assign(graph, layout, lowering)
    kernels = tuple(dict.fromkeys(d.kernel for s in schedules for d in s.dispatches))
    spend("kernels", len(kernels), graph.name)
    places = memory.buffers, memory.buffer_of, memory.uploads, memory.kept
    blocks = len({d.params for s in schedules for d in s.dispatches})
    plan = Plan(graph, layout, *places, kernels, blocks, dynamic, applied, lowering)
    return plan, over_limits(plan, caps, schedules)


def _lower_method(graph: Graph, layout: Layout, lowering: Lowering, inputs: dict[int, Dims]) -> list[Schedule]:
    """Lower every segment once for the given input shapes. What the CPU makes is taken at its bound."""
    live = Live(dict(inputs), {}, {})
    for value_id, value in enumerate(graph.values):
        if isinstance(value, TensorSpec):
            live.dims.setdefault(value_id, value.dims)
        elif isinstance(value, LIVE_SCALARS):
            live.scalars.setdefault(value_id, 0)
    schedules = []
    for segment in layout.segments:
        schedule = lowering.build(segment, live)
        live.dims.update(schedule.dims)
        live.scalars.update({v: value for v, (value, _) in schedule.scalars.items()})
        schedules.append(schedule)
    return schedules


def _shrunk(bounds: dict[int, Dims], dynamic: Mapping[int, tuple[bool, ...]], size: int) -> dict[int, Dims]:
    """Input dims with those that may vary cut down to `size`."""
    return {
        i: tuple(min(size, d) if may else d for d, may in zip(dims, dynamic[i], strict=True))
        for i, dims in bounds.items()
    }


def _lower_smaller(
    graph: Graph,
    layout: Layout,
    lowering: Lowering,
    bounds: dict[int, Dims],
    dynamic: dict[int, tuple[bool, ...]],
    sizes: Sequence[int],
) -> list[Schedule]:
    """Lower at the first of the sizes that works: small shapes may want other kernels. No file names its minimum."""
    for size in sizes:
        smallest = _shrunk(bounds, dynamic, size)
        if smallest == bounds:
            break
        try:
            return _lower_method(graph, layout, lowering, smallest)
        except ShapeError:
            continue
    return []


def _dynamic_dims(
    graph: Graph, layout: Layout, lowering: Lowering, bounds: dict[int, Dims]
) -> dict[int, tuple[bool, ...]]:
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
                f"{over('trial lowerings', lowering.runs - before)}. Re-export with fewer dynamic dims."
            )
        trial = {i: list(dims) for i, dims in bounds.items()}
        for i, d in group:
            trial[i][d] -= 1
        try:
            _lower_method(graph, layout, lowering, {i: tuple(dims) for i, dims in trial.items()})
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

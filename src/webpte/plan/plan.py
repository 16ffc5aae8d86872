"""The Plan: a frozen, printable account of how a method will run on a device with given capabilities."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from ..errors import DeviceError, ShapeError
from ..graph import LIVE_SCALARS, Call, Constant, Graph, TensorSpec
from ..ops import stored_bytes
from ..wgsl import Caps, Kernel
from .lowering import Dims, Live, Lowering, Schedule
from .memory import Buffer, Fill, Root, padded, resolve, share
from .segments import HostCalls, Layout, Segment, lay_out


@dataclass(frozen=True)
class Plan:
    """Everything decided before a GPU object exists."""

    graph: Graph
    layout: Layout
    buffers: tuple[Buffer, ...]
    buffer_of: dict[int, int]  # tensor id (aliases included) -> buffer
    uploads: dict[Segment, tuple[int, ...]]  # tensors copied to the device before a segment
    kernels: tuple[Kernel, ...]
    dynamic_dims: dict[int, tuple[bool, ...]]  # method input -> which dims may vary
    lowering: Lowering = field(compare=False, repr=False)

    @property
    def limits(self) -> dict[str, int]:
        """The device limits this plan needs, beyond which it asks for nothing."""
        largest = max((b.nbytes for b in self.buffers), default=0)
        return {
            "max-storage-buffer-binding-size": largest,
            "max-buffer-size": max(largest, self.staging_bytes),
            "max-storage-buffers-per-shader-stage": max((k.reads + k.writes for k in self.kernels), default=0),
            "max-compute-invocations-per-workgroup": max((k.workgroup for k in self.kernels), default=0),
            "max-compute-workgroup-size-x": max((k.workgroup for k in self.kernels), default=0),
        }

    @property
    def staging_bytes(self) -> int:
        return max((self.read_bytes(s) for s in self.layout.segments), default=0)

    def read_bytes(self, segment: Segment) -> int:
        """The most a segment reads back."""
        return sum(padded(self.stored_bytes(t)) for t in segment.reads)

    def stored_bytes(self, value_id: int) -> int:
        """Bytes of a tensor on the device, at its bound."""
        spec = self.graph.tensor(value_id)
        return stored_bytes(spec.dtype, spec.dims)

    def bytes_by_kind(self) -> dict[str, int]:
        totals = {"constant": 0, "state": 0, "activation": 0}
        for buffer in self.buffers:
            totals[buffer.kind] += buffer.nbytes
        return totals

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


def make_plan(graph: Graph, caps: Caps, cpu_kernels: Container[str]) -> Plan:
    """Decide everything about a method. Raises one error that lists all problems of a kind."""
    layout = lay_out(graph, cpu_kernels)
    lowering = Lowering(graph, layout, caps)
    bounds = {i: graph.tensor(i).dims for i in graph.inputs if isinstance(graph.values[i], TensorSpec)}
    schedules = _lower_method(graph, layout, lowering, bounds)
    dynamic = _dynamic_dims(graph, layout, lowering, bounds)
    schedules += _lower_smallest(graph, layout, lowering, bounds, dynamic)
    buffers, buffer_of, uploads = _Memory(graph, layout, lowering).plan()
    kernels = tuple(dict.fromkeys(d.kernel for s in schedules for d in s.dispatches))
    plan = Plan(graph, layout, buffers, buffer_of, uploads, kernels, dynamic, lowering)
    _check_limits(plan, caps)
    return plan


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


def _lower_smallest(
    graph: Graph, layout: Layout, lowering: Lowering, bounds: dict[int, Dims], dynamic: dict[int, tuple[bool, ...]]
) -> list[Schedule]:
    """Lower at the smallest shapes that work: small ones may want other kernels. The file does not name the minimum."""
    for size in (1, 2, 4):
        smallest = {
            i: tuple(min(size, d) if may else d for d, may in zip(bounds[i], dynamic[i], strict=True)) for i in bounds
        }
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

    def fits(group: list[tuple[int, int]]) -> bool:
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


class _Memory:
    """From lowered calls to buffers."""

    def __init__(self, graph: Graph, layout: Layout, lowering: Lowering) -> None:
        self.graph = graph
        self.layout = layout
        self.touched = lowering.touched
        self.roots = resolve(lowering.context.aliases)
        self.materialised = lowering.context.materialised
        self.scratch = lowering.context.scratch_tensors
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}

    def root(self, value_id: int) -> int:
        return self.roots.get(value_id, value_id)

    def plan(self) -> tuple[tuple[Buffer, ...], dict[int, int], dict[Segment, tuple[int, ...]]]:
        end = self._lifetimes()
        reads = {self.root(r) for segment in self.layout.segments for r in segment.reads}
        needed = {self.root(t) for t in self.touched} | reads
        buffers: list[Buffer] = []
        place: dict[int, int] = {}
        pooled: dict[object, int] = {}
        activations: list[Root] = []
        for value_id in sorted(needed):
            constant = self._constant(value_id)
            if constant is not None:
                self._place_constant(value_id, constant, buffers, place, pooled)
            elif value_id in self.first:
                lifetime = (0, end) if value_id in self.layout.shared else (self.first[value_id], self.last[value_id])
                activations.append(Root(value_id, self._nbytes(value_id), *lifetime))
        for nbytes, tenants in share(activations):
            for tenant in tenants:
                place[tenant.id] = len(buffers)
            buffers.append(Buffer(nbytes, "activation", tuple(t.id for t in tenants)))
        uploads = self._uploads()
        for alias, root in self.roots.items():
            if root in place:
                place[alias] = place[root]
        return tuple(buffers), place, uploads

    def _lifetimes(self) -> int:
        position = 0
        for block in self.layout.blocks:
            for stage in block.stages:
                position += 1  # uploads
                for index in stage.steps:
                    position += 1
                    call = self.graph.steps[index]
                    assert isinstance(call, Call)
                    for value_id in (*self.graph.flatten(call.args), *call.outs):
                        self._touch(value_id, position)
                    for (owner, _), tensor in self.scratch.items():
                        if owner == index:
                            self._touch(tensor.id, position)
                position += 1  # readback
                if isinstance(stage, Segment):
                    for value_id in stage.reads:
                        self._touch(value_id, position)
        for value_id in self.graph.inputs:  # all of them are uploaded before the first call
            self.first[value_id] = 0
        return position

    def _touch(self, value_id: int, position: int) -> None:
        root = self.root(value_id)
        self.first.setdefault(root, position)
        self.last[root] = position

    def _constant(self, value_id: int) -> Constant | None:
        if value_id in self.materialised:
            return self.materialised[value_id]
        if value_id >= len(self.graph.values):
            return None
        return self.graph.tensor(value_id).constant

    def _nbytes(self, value_id: int) -> int:
        if value_id < len(self.graph.values):
            spec = self.graph.tensor(value_id)
        else:
            spec = next(t.spec for t in self.scratch.values() if t.id == value_id)
        return padded(stored_bytes(spec.dtype, spec.dims))

    def _place_constant(
        self, value_id: int, constant: Constant, buffers: list[Buffer], place: dict[int, int], pooled: dict[object, int]
    ) -> None:
        spec = self.graph.tensor(value_id)
        state = value_id in self.layout.mutated
        identity = (constant.identity, spec.dtype)
        if not state and identity in pooled:
            number = pooled[identity]
            buffers[number] = Buffer(
                buffers[number].nbytes, "constant", (*buffers[number].tensors, value_id), buffers[number].fill
            )
        else:
            number = len(buffers)
            kind = "state" if state else "constant"
            buffers.append(Buffer(self._nbytes(value_id), kind, (value_id,), Fill(constant, spec.dtype)))
            if not state:
                pooled[identity] = number
        place[value_id] = number

    def _uploads(self) -> dict[Segment, tuple[int, ...]]:
        """Tensors that come from the host, each before the first segment of its block that binds it."""
        made = {o for segment in self.layout.segments for i in segment.steps for o in self._outs(i)}
        made -= set(self.graph.inputs)  # an input may be overwritten, but not before it was uploaded
        uploads: dict[Segment, tuple[int, ...]] = {}
        for block in self.layout.blocks:
            present: set[int] = set()
            for stage in block.stages:
                if not isinstance(stage, Segment):
                    continue
                bound = {self.root(v) for i in stage.steps for v in self._operands(i) if v in self.touched}
                bound |= {self.root(v) for v in stage.reads}
                wanted = [v for v in sorted(bound - made - present) if self._constant(v) is None and v in self.first]
                uploads[stage] = tuple(v for v in wanted if v < len(self.graph.values))
                present.update(wanted)
        return uploads

    def _outs(self, index: int) -> tuple[int, ...]:
        call = self.graph.steps[index]
        assert isinstance(call, Call)
        return call.outs

    def _operands(self, index: int) -> tuple[int, ...]:
        call = self.graph.steps[index]
        assert isinstance(call, Call)
        return (*self.graph.flatten(call.args), *call.outs)


def _check_limits(plan: Plan, caps: Caps) -> None:
    problems = []
    largest = caps.limit("max-storage-buffer-binding-size")
    for buffer in plan.buffers:
        if buffer.nbytes > largest:
            names = ", ".join(f"value {t} {plan.graph.tensor(t)}" for t in buffer.tensors[:3])
            problems.append(f"{names}: {buffer.nbytes} bytes, the adapter binds {largest}")
    count = caps.limit("max-storage-buffers-per-shader-stage")
    problems += [
        f"{kernel.label} binds {kernel.reads + kernel.writes} buffers, the adapter allows {count}"
        for kernel in plan.kernels
        if kernel.reads + kernel.writes > count
    ]
    if problems:
        listed = "\n  ".join(problems)
        raise DeviceError(f"{plan.graph.name} exceeds the limits of {caps.adapter}:\n  {listed}")

"""Running lowerings: from live shapes to a Schedule, cached by what selected it.

There is one path. A new set of input shapes lowers every call of the segment; a known one is a dictionary look-up,
after which only the volatile lowerings (those that read integers taken from input data) run again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import Error, GraphError, GuardError, ShapeError
from ..graph import Call, Graph, TensorSpec
from ..ops import Binding, BoundCall, Context, Dispatch, Frame, Guard, Job, LiveScalar, Tensor, gpu_op
from ..ops.numbers import INT32_HIGH, INT32_LOW
from ..wgsl import Caps
from .segments import Layout, Segment

Dims = tuple[int, ...]
Array = np.ndarray[Any, Any]
SCHEDULES = 64  # per segment; a schedule is a few hundred small objects


@dataclass(slots=True)
class LoweredCall:
    """What one call does at these shapes."""

    bound: BoundCall
    dispatches: tuple[Dispatch, ...]
    guards: tuple[Guard, ...]
    volatile: bool


@dataclass(slots=True, eq=False)
class Schedule:
    """Dims, scalars and dispatches of a segment for one set of live shapes."""

    segment: Segment
    calls: list[LoweredCall]
    dims: dict[int, Dims]
    scalars: dict[int, tuple[float, bool]]
    volatile: tuple[int, ...]
    version: int = 0  # grows when a volatile call changes a dispatch

    @property
    def dispatches(self) -> list[Dispatch]:
        return [dispatch for call in self.calls for dispatch in call.dispatches]


@dataclass(slots=True)
class Live:
    """What the world outside a segment looks like during one call of the method."""

    dims: dict[int, Dims]
    scalars: dict[int, float]
    arrays: dict[int, Array]
    unsaved: set[int] = field(default_factory=set)  # state that the host has written and nobody has kept yet


@dataclass(slots=True)
class Example:
    """A call that does a job, with the live dims and scalars it had, and how many calls do."""

    step: int
    dims: dict[int, Dims]
    scalars: dict[int, tuple[float, bool]]  # value, and whether it comes from input data
    uses: int = 0


class Lowering:
    """The lowerings of one method. Not thread safe: one call at a time."""

    def __init__(self, graph: Graph, layout: Layout, caps: Caps, tuning: Mapping[str, str] | None = None) -> None:
        self.graph = graph
        self.context = Context(caps, tuning)
        self.context.pinned = layout.pinned
        self.frame = Frame(graph, self.context)
        self.runs = 0  # lowerings executed, ever; tests and `bench` read it
        self.touched: set[Binding] = set()  # what some dispatch may bind
        self.examples: dict[Job, Example] = {}  # what could be tuned
        self._bound: dict[int, BoundCall] = {}
        self._cache: dict[Segment, OrderedDict[tuple[object, ...], Schedule]] = {}
        self._current: dict[Segment, Schedule] = {}  # whose dims and scalars the handles hold
        self._slots: dict[Segment, set[int]] = {}
        for segment in layout.segments:
            self._cache[segment] = OrderedDict()
            self._slots[segment] = set()
            for index in segment.steps:
                call = graph.steps[index]
                assert isinstance(call, Call)
                op = gpu_op(call, graph)
                assert op is not None
                self._bound[index] = BoundCall(op, call, self.frame)
        for value_id, value in enumerate(graph.values):
            if isinstance(value, TensorSpec) and value.stored:
                self.frame.tensors[value_id].dims = value.dims
        lowered = {out for bound in self._bound.values() for out in bound.call.outs}
        for value_id, handle in self.frame.scalars.items():
            handle.derived = value_id not in lowered  # given by the caller or a CPU kernel: data, not shape

    def build(self, segment: Segment, live: Live) -> Schedule:
        """Lower without data, to learn aliases, scratch and kernels. Guards are not checked."""
        self.context.building = True
        try:
            return self._lower_all(segment, live)
        finally:
            self.context.building = False

    def prepare(self, segment: Segment, live: Live) -> Schedule:
        """The schedule for this call, its volatile parts up to date, its guards checked."""
        cache = self._cache[segment]
        try:
            key = self._key(segment, live)
        except KeyError as unknown:  # on the way that the jumps took
            raise GraphError(f"value {unknown.args[0]} is read before anything wrote it") from None
        schedule = cache.get(key)
        # Until all is done the handles belong to nobody: what is refused or interrupted leaves half of a call in them.
        current = self._current.pop(segment, None)
        if schedule is not None and not self._refresh(schedule, live, schedule is current):
            # A data-derived integer changed a dim: those integers join the key.
            key = (*key, tuple(value for value, derived in self._scalars(segment) if derived))
            schedule = cache.get(key)
            if schedule is not None and not self._refresh(schedule, live, False):
                schedule = None
        if schedule is None:
            schedule = self._lower_all(segment, live)
            cache[key] = schedule
            while len(cache) > SCHEDULES:
                cache.popitem(last=False)
        else:
            cache.move_to_end(key)
        self._check_guards(schedule)
        self._current[segment] = schedule
        return schedule

    def slot_values(self) -> dict[int, int]:
        """The values of the live integers of the segment that was prepared last, by slot."""
        context = self.context
        values = {slot: context.slot_values[slot]() for slot in context.used_slots}
        if values and (min(values.values()) < INT32_LOW or max(values.values()) > INT32_HIGH):
            wrong = ", ".join(str(value) for value in values.values() if not INT32_LOW <= value <= INT32_HIGH)
            raise GuardError(f"the kernels would read the live integers {wrong}; the device's have 32 bits")
        return values

    # -- inside ----------------------------------------------------------------------------------------------------

    def _key(self, segment: Segment, live: Live) -> tuple[object, ...]:
        dims = tuple(live.dims[t] for t in segment.tensors)
        shapely = tuple(live.scalars[s] for s in segment.scalars if not self.frame.scalars[s].derived)
        return (dims, shapely)

    def _enter(self, segment: Segment, live: Live) -> None:
        tensors, scalars = self.frame.tensors, self.frame.scalars
        for value_id in segment.tensors:
            tensors[value_id].dims = live.dims[value_id]
        for value_id in segment.scalars:
            scalars[value_id].restore(live.scalars[value_id], scalars[value_id].derived)
        self.context.host_data = _HostData(live.arrays, tensors, self.context.building)
        self.context.used_slots = self._slots[segment]

    def _lower_all(self, segment: Segment, live: Live) -> Schedule:
        self._enter(segment, live)
        calls = [self._lower(self._bound[index], index) for index in segment.steps]
        dims: dict[int, Dims] = {}
        scalars: dict[int, tuple[float, bool]] = {}
        for call in calls:
            for out in call.bound.call.outs:
                if out in self.frame.tensors:
                    dims[out] = self.frame.tensors[out].dims
                else:
                    handle = self.frame.scalars[out]
                    scalars[out] = (handle.peek(), handle.derived)
        volatile = tuple(i for i, call in enumerate(calls) if call.volatile)
        return Schedule(segment, calls, dims, scalars, volatile)

    def _lower(self, bound: BoundCall, index: int) -> LoweredCall:
        context = self.context
        call = bound.call
        inputs = set(call.args)
        for out in call.outs:
            tensor = self.frame.tensors.get(out)
            if tensor is not None and out not in inputs:
                tensor._dims = None
        context.begin(index, bound.op, call)
        self.runs += 1
        try:
            bound.lower(context)
        except Error as error:
            failed = type(error)(f"{call.name} ({call.origin}): {error}")
            failed.step = index
            raise failed from error
        except Exception as error:
            reason = f"{call.name} ({call.origin}) could not be lowered: {type(error).__name__}: {error}"
            wrong = GraphError(reason)
            wrong.step = index
            raise wrong from error
        for out in call.outs:
            tensor = self.frame.tensors.get(out)
            if tensor is not None and tensor._dims is None:
                raise GraphError(f"{call.name} ({call.origin}) did not set the shape of value {out}")
        self.touched.update(context.touched)
        for job in context.jobs:
            self._note_job(job, index, call)
        return LoweredCall(bound, tuple(context.dispatches), tuple(context.guards), context.volatile)

    def _note_job(self, job: Job, index: int, call: Call) -> None:
        example = self.examples.get(job)
        if example is None:
            args = self.graph.flatten(call.args)
            dims = {v: self.frame.tensors[v].dims for v in args if v in self.frame.tensors}
            handles = {v: self.frame.scalars[v] for v in args if v in self.frame.scalars}
            scalars = {v: (handle.peek(), handle.derived) for v, handle in handles.items()}
            example = self.examples[job] = Example(index, dims, scalars)
        example.uses += 1

    def _refresh(self, schedule: Schedule, live: Live, current: bool) -> bool:
        """Run the volatile lowerings again. False if one of them changed a dim: the schedule does not apply.

        `current` tells that the handles hold this schedule's dims and scalars already.
        """
        segment = schedule.segment
        if not current:
            for value_id, dims in schedule.dims.items():
                self.frame.tensors[value_id]._dims = dims
            for value_id, (value, derived) in schedule.scalars.items():
                self.frame.scalars[value_id].restore(value, derived)
        self._enter(segment, live)
        for position in schedule.volatile:
            old = schedule.calls[position]
            new = self._lower(old.bound, segment.steps[position])
            for out in old.bound.call.outs:
                tensor = self.frame.tensors.get(out)
                if tensor is None:
                    handle = self.frame.scalars[out]
                    schedule.scalars[out] = (handle.peek(), handle.derived)
                elif tensor.dims != schedule.dims[out]:
                    return False
            if new.dispatches != old.dispatches:
                schedule.version += 1  # before the change: who sees the one without the other looks once too often
            schedule.calls[position] = new
        return True

    def _scalars(self, segment: Segment) -> list[tuple[float, bool]]:
        handles: list[LiveScalar] = [self.frame.scalars[s] for s in segment.scalars]
        for index in segment.steps:
            handles += [self.frame.scalars[o] for o in self._bound[index].call.outs if o in self.frame.scalars]
        return [(handle.peek(), handle.derived) for handle in handles]

    def _check_guards(self, schedule: Schedule) -> None:
        for lowered in schedule.calls:
            for guard in lowered.guards:
                if not guard.holds():
                    call = lowered.bound.call
                    raise GuardError(f"{call.name} ({call.origin}): {guard.message()}")


class _HostData(dict[int, Array]):
    """Arrays of tensors on the host. While building there is no data: zeros stand in."""

    def __init__(self, arrays: Mapping[int, Array], tensors: Mapping[int, Tensor], building: bool) -> None:
        super().__init__(arrays)
        self._tensors = tensors
        self._building = building

    def __missing__(self, value_id: int) -> Array:
        if self._building:
            return np.zeros(self._tensors[value_id].dims, np.int64)
        raise ShapeError(f"value {value_id} has no data on the host")

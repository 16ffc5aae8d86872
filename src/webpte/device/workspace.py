"""The GPU objects that a method and its forks share. They never run at the same time, so one set is enough.

The host's record of the device's contents (parameter blocks, live scalars) holds for all of them, whichever ran last.
No call depends on the activations that another call left.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import wgpu

from ..errors import GraphError
from ..plan import Binding, DispatchWork, Plan, Schedule, padded
from ..progress import OnProgress, Progress, ignore
from ..typing import Array
from .budget import MIN_STAGING_BYTES, check_memory, memory_needs, staging_bytes
from .gpu import Gpu
from .pacing import Costs
from .parameters import Parameters
from .process_events import defer_interrupts, keep_alive_in_child
from .recording import BufferCopy, DispatchCommand
from .weights import USAGE, WeightBuffers

_USAGE = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


class Feed(NamedTuple):
    """A result that becomes an input. Source and target are tensors, or their buffers."""

    source: Any
    target: Any
    nbytes: int


class StepCopies:
    """The copies between two executions of one submit: results fed back, and the inputs of the next execution.

    All tensors begin at offset 0 of their buffers.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._inputs: Any = None  # of all executions except the first
        self._scratch: Any = None

    def feeds(self, feeds: Sequence[Feed]) -> list[BufferCopy]:
        """Return the copies that turn results into inputs, as if all were copied at once."""
        # A feed within one buffer needs no copy, and WebGPU has no copy inside one buffer.
        moved = [feed for feed in feeds if feed.source is not feed.target]
        targets = {id(feed.target) for feed in moved}
        if not any(id(feed.source) in targets for feed in moved):
            return [BufferCopy(feed.source, 0, feed.target, 0, padded(feed.nbytes)) for feed in moved]
        ends = np.cumsum([padded(feed.nbytes) for feed in moved]).tolist()
        self._scratch = self._large_enough(self._scratch, "fed results", ends[-1])
        saves, restores = [], []
        for feed, start in zip(moved, [0, *ends], strict=False):
            saves.append(BufferCopy(feed.source, 0, self._scratch, start, padded(feed.nbytes)))
            restores.append(BufferCopy(self._scratch, start, feed.target, 0, padded(feed.nbytes)))
        return saves + restores

    def inputs(self, steps: Sequence[Sequence[tuple[Any, Array]]]) -> list[list[BufferCopy]]:
        """Upload (buffer, data) of further executions, and return the copies that put each execution's in place."""
        ends = np.cumsum([0, *(padded(array.nbytes) for step in steps for _, array in step)]).tolist()
        if not ends[-1]:
            return [[] for _ in steps]
        self._inputs = self._large_enough(self._inputs, "later inputs", ends[-1])
        data = bytearray(ends[-1])
        copies: list[list[BufferCopy]] = []
        starts = iter(ends)
        for step in steps:
            copies.append([])
            for buffer, array in step:
                start = next(starts)
                data[start : start + array.nbytes] = array.tobytes()
                copies[-1].append(BufferCopy(self._inputs, start, buffer, 0, padded(array.nbytes)))
                self._gpu.counters.input_bytes += array.nbytes
        self._gpu.write(self._inputs, 0, data)
        return copies

    def close(self) -> None:
        for buffer in (self._inputs, self._scratch):
            if buffer is not None:
                buffer.destroy()

    def _large_enough(self, buffer: Any, label: str, nbytes: int) -> Any:
        if buffer is not None and buffer.size >= nbytes:
            return buffer
        return self._gpu.create_buffer(label, nbytes, _USAGE)


STAGING_USAGE = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
MAX_SUBMITS_IN_FLIGHT = 2  # whose results are read: one runs, and one follows it
MAX_ENCODED_SCHEDULES = 64  # schedules whose bind groups are kept


class BoundRanges(NamedTuple):
    """The ranges of the plan's buffers that a dispatch binds. Dispatches with equal ranges share a bind group."""

    reads: int  # number of read-only ranges, which come first
    ranges: tuple[tuple[int, int, int], ...]  # buffer, offset, bytes


@dataclass(slots=True, eq=False)
class EncodedSchedule:
    """A schedule as GPU objects, except for bind groups with state, which belong to a session."""

    dispatches: list[DispatchCommand]  # storage is None where state is bound
    stateful: dict[int, BoundRanges]  # the ranges of those, by index among the dispatches
    blocks: list[bytes]
    costs: Costs  # predicted, of the dispatches
    prepared: dict[int, DispatchCommand] = field(default_factory=dict)  # prepared by the recorder, without state
    seconds: float = math.inf  # duration of the last execution


class Workspace:
    """The GPU objects of a method and its forks, without their state. The weights belong to the program."""

    def __init__(
        self, plan: Plan, gpu: Gpu, weights: WeightBuffers, progress: OnProgress = ignore, *, lazy: bool = False
    ) -> None:
        """Allocate the buffers. With `lazy`, a kernel is compiled when a schedule first needs it."""
        # Before anything is allocated. One state is included: a method cannot run without.
        check_memory(memory_needs(plan, weights.present), weights.memory_limit())
        self.plan = plan
        self.gpu = gpu
        self.weights = weights
        self.buffers: list[Any] = []  # by number in the plan; None for state
        self._owned: list[Any] = []
        keep_alive_in_child(self)
        self.parameters = Parameters(gpu)
        self.step_copies = StepCopies(gpu)
        self._staging: list[Any] = []  # readback buffers that are not in use, the smallest first
        self.executions = 0  # of schedules, by all sessions
        self.finished = 0.0  # when the results of the latest execution were there
        self._groups: dict[BoundRanges, Any] = {}
        self._encoded: OrderedDict[Schedule, EncodedSchedule] = OrderedDict()
        try:
            kernels = () if lazy else plan.kernels
            for number, kernel in enumerate(kernels):  # before the weights: one that does not compile fails fast
                progress(Progress("compile", number, len(kernels), "kernels"))
                gpu.warm_up(kernel)
            progress(Progress("compile", len(kernels), len(kernels), "kernels"))
            weights.upload([spec for spec in plan.buffers if spec.kind == "constant"], progress)
            self._allocate()
        except BaseException:
            self.close()
            raise

    def _allocate(self) -> None:
        for number, spec in enumerate(self.plan.buffers):
            if spec.kind == "constant":
                self.buffers.append(self.weights.buffer(spec))
            elif spec.kind == "state":
                self.buffers.append(None)
            else:
                self._owned.append(self.gpu.create_buffer(f"{spec.kind} {number}", spec.nbytes, USAGE))
                self.buffers.append(self._owned[-1])
        self.give_staging(self.gpu.create_buffer("readback", staging_bytes(self.plan), STAGING_USAGE))

    def take_staging(self, nbytes: int) -> Any:
        """Return a readback buffer. The caller gives it back after unmapping it.

        After an error or Ctrl-C it is not given back: the buffer may be mapped, and a submit that used it would abort
        the process.
        """
        for number, staging in enumerate(self._staging):
            if staging.size >= nbytes:
                return self._staging.pop(number)
        return self.gpu.create_buffer("readback", max(nbytes, MIN_STAGING_BYTES), STAGING_USAGE)

    def give_staging(self, staging: Any) -> None:
        """Keep an unmapped readback buffer for further use: as many as there are submits in flight."""
        self._staging = sorted([*self._staging, staging], key=lambda buffer: buffer.size)
        if len(self._staging) > MAX_SUBMITS_IN_FLIGHT:
            self._staging.pop(0).destroy()

    @defer_interrupts
    def close(self) -> None:
        """Release the GPU objects. Sessions of this workspace must not record anything afterwards."""
        self._encoded.clear()
        self._groups.clear()
        self.parameters.close()
        self.step_copies.close()
        for buffer in self._owned:
            buffer.destroy()
        for staging in self._staging:
            staging.destroy()
        self._staging.clear()
        self._owned.clear()
        self.buffers.clear()

    def encode(self, schedule: Schedule) -> EncodedSchedule:
        """Return the GPU objects of a schedule, created at its first use."""
        encoded = self._encoded.get(schedule)
        if encoded is not None:
            self._encoded.move_to_end(schedule)
            return encoded
        encoded = self._encoded[schedule] = self._encode(schedule)
        while len(self._encoded) > MAX_ENCODED_SCHEDULES:
            self._encoded.popitem(last=False)
        return encoded

    @property
    def encoded(self) -> list[EncodedSchedule]:
        """Return the cached schedules. Parameter blocks of others may have been overwritten."""
        return list(self._encoded.values())

    def _encode(self, schedule: Schedule) -> EncodedSchedule:
        blocks = [dispatch.params for dispatch in schedule.dispatches]
        kept = (block for others in self._encoded.values() for block in others.blocks)
        uniforms = self.parameters.groups(blocks, kept)
        dispatches, stateful, work = [], {}, list(schedule.work)
        for number, (dispatch, group) in enumerate(zip(schedule.dispatches, uniforms, strict=True)):
            kernel = dispatch.kernel
            bound = self._bound(kernel.reads, dispatch.bindings)
            if not schedule.work:
                work.append(DispatchWork(0, sum(nbytes for _, _, nbytes in bound.ranges)))
            storage = None
            if any(self.buffers[buffer] is None for buffer, _, _ in bound.ranges):
                stateful[number] = bound
            else:
                storage = self.group(bound, self.buffers, self._groups)
            dispatches.append(DispatchCommand(self.gpu.pipeline(kernel), group, storage, *dispatch.grid))
        return EncodedSchedule(dispatches, stateful, blocks, Costs(self.gpu.pace, work))

    def _bound(self, reads: int, bindings: tuple[Binding, ...]) -> BoundRanges:
        try:
            ranges = tuple((self.plan.buffer_of[b.tensor], b.offset, self.plan.bound_bytes(b)) for b in bindings)
        except KeyError as error:
            raise GraphError(
                f"value {error.args[0]} is bound by a dispatch but has no buffer in the plan", code="no_buffer"
            ) from None
        return BoundRanges(reads, ranges)

    def group(self, bound: BoundRanges, buffers: Sequence[Any], groups: dict[BoundRanges, Any]) -> Any:
        """Return the bind group of ranges of these buffers, from `groups` or created and added to it."""
        group = groups.get(bound)
        if group is None:
            layout, _ = self.gpu.storage_layout(bound.reads, len(bound.ranges) - bound.reads)
            entries = [(buffers[number], offset, nbytes) for number, offset, nbytes in bound.ranges]
            group = groups[bound] = self.gpu.create_bind_group(layout, entries)
        return group

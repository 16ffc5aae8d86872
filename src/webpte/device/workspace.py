"""What a method and all its forks use in turns: they never run at the same time, so one of each is enough.

Everything here that mirrors the device on the host (parameter blocks, live scalars) is true for all of them, whoever
ran last. What a call leaves in activations means nothing to the next one, whosever that is.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import wgpu

from ..errors import GraphError
from ..plan import Binding, Plan, Schedule
from ..progress import OnProgress, Progress, ignore
from .budget import needs, refuse_beyond, staging_bytes
from .forks import keep_in_children
from .gpu import Gpu
from .handover import Handover
from .interrupts import uninterrupted
from .parameters import Parameters
from .recording import Row
from .weights import USAGE, Weights

STAGING = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
REALISED = 64  # schedules whose bind groups are kept


class Bound(NamedTuple):
    """What a dispatch binds of the plan's buffers; dispatches that bind the same share a bind group."""

    reads: int  # how many of the ranges are read only
    ranges: tuple[tuple[int, int, int], ...]  # buffer, offset, bytes


@dataclass(slots=True, eq=False)
class Realised:
    """A schedule as GPU objects, but for the bind groups that name state: those are a session's."""

    dispatches: list[Row]  # without a storage group where state is bound
    stateful: dict[int, Bound]  # what those bind, by their place among the dispatches
    blocks: list[bytes]
    rows: dict[int, Row] = field(default_factory=dict)  # as the recorder has prepared them: the same for all sessions
    seconds: float = math.inf  # what an execution took the last time


class Workspace:
    """GPU objects of a method and its forks, but for their state. Weights are the program's and only borrowed."""

    def __init__(
        self, plan: Plan, gpu: Gpu, weights: Weights, progress: OnProgress = ignore, *, lazy: bool = False
    ) -> None:
        """With `lazy`, a kernel is compiled when a schedule first needs it."""
        # Before anything is taken, and with the state of one session: a method that has no room for it cannot run.
        refuse_beyond(needs(plan, weights.present), weights.offer())
        self.plan = plan
        self.gpu = gpu
        self.weights = weights
        self.buffers: list[Any] = []  # one for each of the plan's, None for state
        self._owned: list[Any] = []
        keep_in_children(self)
        self.parameters = Parameters(gpu)
        self.handover = Handover(gpu)
        self.staging: Any = None  # to read back through, while nobody has taken it
        self._groups: dict[Bound, Any] = {}
        self._realised: OrderedDict[Schedule, Realised] = OrderedDict()
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
        self.staging = self.take_staging(0)

    def take_staging(self, nbytes: int) -> Any:
        """A buffer to read back through, for the caller to put back into `staging` once it is unmapped.

        One that an error or Ctrl-C kept from coming back may be mapped or about to be: a submit that used it would
        abort the process.
        """
        staging, self.staging = self.staging, None
        if staging is None or staging.size < nbytes:
            size = max(nbytes, staging_bytes(self.plan))
            staging = self.gpu.create_buffer("readback", size, STAGING)
        return staging

    @uninterrupted
    def close(self) -> None:
        """Free what was made here. No session of it may record anything afterwards."""
        self._realised.clear()
        self._groups.clear()
        self.parameters.close()
        self.handover.close()
        for buffer in self._owned:
            buffer.destroy()
        if self.staging is not None:
            self.staging.destroy()
        self._owned.clear()
        self.buffers.clear()

    def realise(self, schedule: Schedule) -> Realised:
        """What running a schedule needs, made once."""
        realised = self._realised.get(schedule)
        if realised is not None:
            self._realised.move_to_end(schedule)
            return realised
        made = self._realised[schedule] = self._make(schedule)
        while len(self._realised) > REALISED:
            self._realised.popitem(last=False)
        return made

    @property
    def realised(self) -> list[Realised]:
        """Those that are still in use: parameter blocks of others may have been written over."""
        return list(self._realised.values())

    def _make(self, schedule: Schedule) -> Realised:
        blocks = [dispatch.params for dispatch in schedule.dispatches]
        kept = (block for others in self._realised.values() for block in others.blocks)
        uniforms = self.parameters.groups(blocks, kept)
        dispatches, stateful = [], {}
        for number, (dispatch, group) in enumerate(zip(schedule.dispatches, uniforms, strict=True)):
            kernel = dispatch.kernel
            bound = self._bound(kernel.reads, dispatch.bindings)
            storage = None
            if any(self.buffers[buffer] is None for buffer, _, _ in bound.ranges):
                stateful[number] = bound
            else:
                storage = self.group(bound, self.buffers, self._groups)
            dispatches.append(Row(self.gpu.pipeline(kernel), group, storage, *dispatch.grid))
        return Realised(dispatches, stateful, blocks)

    def _bound(self, reads: int, bindings: tuple[Binding, ...]) -> Bound:
        try:
            ranges = tuple((self.plan.buffer_of[b.tensor], b.offset, self.plan.bound_bytes(b)) for b in bindings)
        except KeyError as error:
            raise GraphError(f"value {error.args[0]} is bound by a dispatch but was given no buffer at build") from None
        return Bound(reads, ranges)

    def group(self, bound: Bound, buffers: Sequence[Any], made: dict[Bound, Any]) -> Any:
        """The bind group over these buffers, of those made before or a new one."""
        group = made.get(bound)
        if group is None:
            layout, _ = self.gpu.storage_layout(bound.reads, len(bound.ranges) - bound.reads)
            entries = [(buffers[number], offset, nbytes) for number, offset, nbytes in bound.ranges]
            group = made[bound] = self.gpu.create_bind_group(layout, entries)
        return group

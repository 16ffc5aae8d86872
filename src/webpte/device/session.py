"""One running instance of a plan: its state, and the hot loop over what it shares with its forks.

A call writes what changed, records one compute pass, submits once and reads back what was asked for. After the first
call at a shape it creates no GPU object.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..plan import Schedule, padded
from .budget import needs_of_state, refuse_beyond
from .forks import keep_in_children
from .handover import Feed
from .interrupts import uninterrupted
from .observing import Observer
from .recording import Copy, Row, Stage
from .weights import USAGE, Stream, fill_buffer
from .workspace import Bound, Realised, Workspace

Array = np.ndarray[Any, Any]
BRIEF_SECONDS = 0.1  # work that took no longer before may be waited for in one piece


class Extent(NamedTuple):
    """A part of a state buffer, in bytes, of which WebGPU copies only multiples of 4."""

    buffer: int  # its number among those of the state
    source: int
    target: int
    nbytes: int


class Session:
    """The state of a method or a fork on the device, and the bind groups that name it; the rest is the workspace's.

    State begins as the file says, or as zeros if it is not `filled` because a copy comes next. A workspace has counted
    the state of its `first` session already. Sessions of one workspace run one at a time.
    """

    def __init__(self, workspace: Workspace, *, first: bool = False, filled: bool = True) -> None:
        plan = workspace.plan
        if not first:
            refuse_beyond(needs_of_state(plan, filled), workspace.weights.offer())
        self.plan = plan
        self.gpu = workspace.gpu
        self.workspace = workspace
        self._buffers = list(workspace.buffers)
        self._owned: list[Any] = []
        self._groups: dict[Bound, Any] = {}
        self._rows: dict[Realised, Sequence[Row]] = {}
        keep_in_children(self)
        try:
            self._allocate(filled)
        except BaseException:
            self.close()
            raise

    def _allocate(self, filled: bool) -> None:
        stream = Stream(self.gpu)
        for number, spec in enumerate(self.plan.buffers):
            if spec.kind == "state":
                buffer = self.gpu.create_buffer(f"state {number}", spec.nbytes, USAGE)
                self._owned.append(buffer)
                self._buffers[number] = buffer
                if filled and spec.fill is not None:
                    fill_buffer(stream, buffer, spec.fill, skip_zeros=True)
        stream.flush()

    @uninterrupted
    def close(self) -> None:
        """Free what this session owns. Nothing may be recorded afterwards."""
        self._rows.clear()
        self._groups.clear()
        for buffer in self._owned:
            buffer.destroy()
        self._owned.clear()
        self._buffers.clear()

    def reset(self) -> None:
        """Put every state buffer back to what the file says."""
        self.gpu.clear([buffer for buffer, _ in self._states()])
        stream = Stream(self.gpu)
        for spec, buffer in zip(self.plan.buffers, self._buffers, strict=True):
            if spec.kind == "state" and spec.fill is not None:
                fill_buffer(stream, buffer, spec.fill, skip_zeros=True)

    def _states(self) -> list[tuple[Any, int]]:
        pairs = zip(self.plan.buffers, self._buffers, strict=True)
        return [(buffer, spec.nbytes) for spec, buffer in pairs if spec.kind == "state"]

    def state_sizes(self) -> list[int]:
        return [nbytes for _, nbytes in self._states()]

    def copy_state(self, other: Session) -> None:
        """Take over the state of another session of the same plan, on the device."""
        pairs = zip(self._states(), other._states(), strict=True)
        self.gpu.submit([([Copy(theirs, 0, mine, 0, nbytes) for (mine, nbytes), (theirs, _) in pairs], ())])

    def read_state(self) -> list[memoryview]:
        return [memoryview(self.gpu.read_back(buffer, nbytes)) for buffer, nbytes in self._states()]

    def write_state(self, state: Sequence[memoryview]) -> None:
        for (buffer, _), data in zip(self._states(), state, strict=True):
            self.gpu.write(buffer, 0, data)

    def copy_extents(self, source: Session, extents: Sequence[Extent]) -> None:
        """Take over parts of the state of a session, which may be this one, of a plan with as many state buffers."""
        mine, theirs = self._states(), source._states()
        if source is not self:
            across = [Copy(theirs[e.buffer][0], e.source, mine[e.buffer][0], e.target, e.nbytes) for e in extents]
            self.gpu.submit([(across, ())])
            return
        # By way of another buffer, one after the other: WebGPU copies nothing inside one.
        between = self.gpu.create_buffer("state on its way", max(4, *(extent.nbytes for extent in extents)), USAGE)
        copies = []
        for extent in extents:
            buffer, _ = mine[extent.buffer]
            copies.append(Copy(buffer, extent.source, between, 0, extent.nbytes))
            copies.append(Copy(between, 0, buffer, extent.target, extent.nbytes))
        self.gpu.submit([(copies, ())])
        between.destroy()

    def read_extents(self, extents: Sequence[Extent]) -> list[memoryview]:
        """Parts of the state, from where each extent begins in its source."""
        states, total = self._states(), sum(extent.nbytes for extent in extents)
        staging = self.workspace.take_staging(total)
        copies, pieces, at = [], [], 0
        for extent in extents:
            copies.append(Copy(states[extent.buffer][0], extent.source, staging, at, extent.nbytes))
            at += extent.nbytes
        data = memoryview(self.gpu.read(staging, total, self.gpu.submit([(copies, ())])))
        self.workspace.staging = staging
        for extent in extents:
            pieces.append(data[: extent.nbytes])
            data = data[extent.nbytes :]
        return pieces

    def write_extents(self, extents: Sequence[Extent], pieces: Sequence[memoryview]) -> None:
        states = self._states()
        for extent, piece in zip(extents, pieces, strict=True):
            self.gpu.write(states[extent.buffer][0], extent.target, piece)

    def copy_tensors(self, source: Session, pairs: Sequence[tuple[int, int]]) -> None:
        """Take over tensors of another session's state, theirs and mine of each pair, of the same bytes."""
        copies = [
            Copy(source._buffer(theirs), 0, self._buffer(mine), 0, padded(self.plan.stored_bytes(mine)))
            for theirs, mine in pairs
        ]
        self.gpu.submit([(copies, ())])

    def read_tensor(self, tensor: int, observer: Observer | None = None) -> memoryview:
        """All of a tensor, which must be state: others share their memory."""
        nbytes = self.plan.stored_bytes(tensor)
        return memoryview(self.gpu.read_back(self._buffer(tensor), padded(nbytes), observer))[:nbytes]

    def run(
        self,
        schedule: Schedule,
        scalars: Sequence[Mapping[int, int]],
        uploads: Sequence[tuple[int, Array]],
        reads: Sequence[tuple[int, int]],
        feeds: Sequence[Feed] = (),
        later_uploads: Sequence[Sequence[tuple[int, Array]]] = (),
        observer: Observer | None = None,
    ) -> list[dict[int, memoryview]]:
        """Execute a schedule, once for each entry of `scalars`, in one submit; the results of each.

        `uploads` are (tensor, contiguous device-ready array), `reads` (tensor, bytes). Between two executions the
        results in `feeds` become inputs and `later_uploads`, of each execution but the first, are put in place.
        """
        workspace = self.workspace
        written = workspace.parameters.written
        if observer is not None:
            observer.phase("bind")
        realised = workspace.realise(schedule)
        rows = self._rows.get(realised)
        if rows is None:
            rows = self._bind(realised)
        if observer is not None:
            observer.phase("write")
        later = workspace.parameters.write_scalars(scalars)
        handed = self._hand_over(feeds, later_uploads, later) if later else []
        for tensor, array in uploads:
            self.upload(tensor, array)
        count, total = len(scalars), sum(padded(nbytes) for _, nbytes in reads)
        staging = workspace.take_staging(total * count)
        if observer is not None:
            sent = sum(array.nbytes for step in (uploads, *later_uploads) for _, array in step)
            observer.moved(workspace.parameters.written - written + sent, count * sum(n for _, n in reads))
            observer.phase("record")
        stages = self._stages(rows, count, handed, reads, staging, total)
        # Inside the driver Ctrl-C waits too: nothing longer, such as work that nobody has waited for, may come before.
        brief = realised.seconds * count < BRIEF_SECONDS and self.gpu.idle
        started = time.perf_counter()
        submit = self.gpu.submit(stages) if observer is None else observer.submit(self.gpu, stages)
        workspace.parameters.submitted()
        results = self._read_back(reads, staging, total, count, submit, brief, observer)
        workspace.staging = staging
        if total:
            realised.seconds = (time.perf_counter() - started) / count
        return results

    def _hand_over(
        self, feeds: Sequence[Feed], later: Sequence[Sequence[tuple[int, Array]]], scalars: Sequence[Copy]
    ) -> list[list[Copy]]:
        """The copies between two executions, for each time; the last of them are `scalars`."""
        fed = self.workspace.handover.feeds([Feed(self._buffer(a), self._buffer(b), nbytes) for a, b, nbytes in feeds])
        steps = [[(self._buffer(tensor), array) for tensor, array in step] for step in later]
        inputs = self.workspace.handover.inputs(steps) or [[] for _ in scalars]
        # An input may lie where a result did: what is fed is taken first.
        return [[*fed, *copies, scalar] for copies, scalar in zip(inputs, scalars, strict=True)]

    def _stages(
        self,
        rows: Sequence[Row],
        count: int,
        handed: Sequence[Sequence[Copy]],
        reads: Sequence[tuple[int, int]],
        staging: Any,
        total: int,
    ) -> list[Stage]:
        """So many executions, with what is handed over between them, each read into its part of the staging buffer."""
        stages: list[Stage] = []
        copies: list[Copy] = []
        for number in range(count):
            stages.append((copies, rows))
            copies = self._copies_out(reads, staging, number * total)
            if number < len(handed):
                copies += handed[number]
        stages.append((copies, ()))
        return stages

    def warm_up(self, schedule: Schedule) -> None:
        """Make what running a schedule needs."""
        self._bind(self.workspace.realise(schedule))

    def _buffer(self, tensor: int) -> Any:
        return self._buffers[self.plan.buffer_of[tensor]]

    def _copies_out(self, reads: Sequence[tuple[int, int]], staging: Any, offset: int) -> list[Copy]:
        copies = []
        for tensor, nbytes in reads:
            if nbytes:
                copies.append(Copy(self._buffer(tensor), 0, staging, offset, padded(nbytes)))
            offset += padded(nbytes)
        return copies

    def upload(self, tensor: int, array: Array) -> None:
        """Write a tensor, as the device stores it, before whatever is submitted next."""
        data: Any = array
        if array.nbytes == 0:
            return
        if array.nbytes % 4:  # WebGPU writes whole words; buffers are padded
            data = array.tobytes() + bytes(-array.nbytes % 4)
        self.gpu.counters.input_bytes += array.nbytes
        self.gpu.write(self._buffers[self.plan.buffer_of[tensor]], 0, data)

    def _bind(self, realised: Realised) -> Sequence[Row]:
        """A schedule's dispatches with this session's state in place, ready to be recorded."""
        dispatches = list(realised.dispatches)
        for number, bound in realised.stateful.items():
            group = self.workspace.group(bound, self._buffers, self._groups)
            dispatches[number] = dispatches[number]._replace(storage=group)
        prepared = self.gpu.recorder.prepare(dispatches)
        # One copy of the rows that are the same for all sessions: there may be hundreds of both.
        alike, own = realised.rows, realised.stateful
        rows = [row if number in own else alike.setdefault(number, row) for number, row in enumerate(prepared)]
        current = self.workspace.realised
        self._rows = {known: old for known, old in self._rows.items() if known in current} | {realised: rows}
        return rows

    def _read_back(
        self,
        reads: Sequence[tuple[int, int]],
        staging: Any,
        total: int,
        count: int,
        submit: int,
        brief: bool,
        observer: Observer | None,
    ) -> list[dict[int, memoryview]]:
        if not total:
            return [{} for _ in range(count)]
        self.gpu.counters.output_bytes += sum(nbytes for _, nbytes in reads) * count
        phase = None if observer is None else observer.phase
        data = memoryview(self.gpu.read(staging, total * count, submit, brief, phase))
        results: list[dict[int, memoryview]] = []
        offset = 0
        for _ in range(count):
            results.append({})
            for tensor, nbytes in reads:
                results[-1][tensor] = data[offset : offset + nbytes]
                offset += padded(nbytes)
        return results

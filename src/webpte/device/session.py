"""One running instance of a plan: its state on the device, and the execution of schedules.

A call writes changed inputs and uniforms, records one compute pass, submits once and reads back the requested outputs.
After the first call at a shape it creates no GPU object. Long work is submitted in parts: see pacing.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..plan import Schedule, padded
from ..typing import Array
from .budget import check_memory, state_memory_needs
from .gpu import NO_OBSERVER, Observer
from .pacing import Costs, submit_parts
from .process_events import defer_interrupts, keep_alive_in_child
from .recording import BufferCopy, DispatchCommand, Stage
from .weights import USAGE, UploadStream, fill_buffer
from .workspace import BoundRanges, EncodedSchedule, Feed, Workspace

BRIEF_SECONDS = 0.1  # work that was shorter the last time may be waited for inside the driver


class Extent(NamedTuple):
    """A range of a state buffer, in bytes. WebGPU copies only multiples of 4."""

    buffer: int  # its number among the state buffers
    source: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Submission:
    """Executions of a schedule, one for each entry of `scalars`, and what they transfer.

    Between two executions the results in `feeds` become inputs, and the next entry of `later_uploads` is put in place.
    If the submission `follows` another, which may be in flight, so do the results of that one before the first
    execution, whose inputs are the first entry of `later_uploads` then.
    """

    schedule: Schedule
    scalars: Sequence[Mapping[int, int]]
    uploads: Sequence[tuple[int, Array]] = ()  # tensor, contiguous array in the device's dtype
    reads: Sequence[tuple[int, int]] = ()  # tensor, bytes
    feeds: Sequence[Feed] = ()
    later_uploads: Sequence[Sequence[tuple[int, Array]]] = ()
    follows: bool = False

    @property
    def count(self) -> int:
        """Return the number of executions."""
        return len(self.scalars)

    @property
    def read_bytes(self) -> int:
        """Return the bytes of the results of an execution."""
        return sum(nbytes for _, nbytes in self.reads)

    @property
    def staging_bytes(self) -> int:
        """Return the bytes of the staging buffer for the results of an execution."""
        return sum(padded(nbytes) for _, nbytes in self.reads)

    @property
    def uploaded_bytes(self) -> int:
        """Return the bytes of the inputs of all executions."""
        return sum(array.nbytes for step in (self.uploads, *self.later_uploads) for _, array in step)


class SubmissionInFlight(NamedTuple):
    """A submission in flight."""

    submission: Submission
    encoded: EncodedSchedule
    staging: Any
    submit: int  # its number
    brief: bool
    several: bool  # submits
    started: float
    number: int  # among the executions of the workspace


class Session:
    """The state of a method or a fork on the device, and the bind groups that contain it.

    State is initialized from the file, or to zeros if it is not `filled` because a copy comes next. The workspace has
    counted the memory of its `first` session already. Sessions of one workspace run one at a time.
    """

    def __init__(self, workspace: Workspace, *, first: bool = False, filled: bool = True) -> None:
        plan = workspace.plan
        if not first:
            check_memory(state_memory_needs(plan, filled), workspace.weights.memory_limit())
        self.plan = plan
        self.gpu = workspace.gpu
        self.workspace = workspace
        self._buffers = list(workspace.buffers)
        self._owned: list[Any] = []
        self._groups: dict[BoundRanges, Any] = {}
        self._dispatches: dict[EncodedSchedule, Sequence[DispatchCommand]] = {}
        keep_alive_in_child(self)
        try:
            self._allocate(filled)
        except BaseException:
            self.close()
            raise

    def _allocate(self, filled: bool) -> None:
        stream = UploadStream(self.gpu)
        for number, spec in enumerate(self.plan.buffers):
            if spec.kind == "state":
                buffer = self.gpu.create_buffer(f"state {number}", spec.nbytes, USAGE)
                self._owned.append(buffer)
                self._buffers[number] = buffer
                if filled and spec.fill is not None:
                    fill_buffer(stream, buffer, spec.fill, skip_zeros=True)
        stream.flush()

    @defer_interrupts
    def close(self) -> None:
        """Release the state. Nothing may be recorded afterwards."""
        self._dispatches.clear()
        self._groups.clear()
        for buffer in self._owned:
            buffer.destroy()
        self._owned.clear()
        self._buffers.clear()

    def reset(self, kept: int | None = None) -> None:
        """Set every state buffer to its initial value in the file, except that of the tensor `kept`."""
        numbered = enumerate(zip(self.plan.buffers, self._buffers, strict=True))
        kept_buffer = None if kept is None else self.plan.buffer_of[kept]
        states = [pair for number, pair in numbered if pair[0].kind == "state" and number != kept_buffer]
        self.gpu.clear([buffer for _, buffer in states])
        stream = UploadStream(self.gpu)
        for spec, buffer in states:
            if spec.fill is not None:
                fill_buffer(stream, buffer, spec.fill, skip_zeros=True)

    def _states(self) -> list[tuple[Any, int]]:
        pairs = zip(self.plan.buffers, self._buffers, strict=True)
        return [(buffer, spec.nbytes) for spec, buffer in pairs if spec.kind == "state"]

    def state_sizes(self) -> list[int]:
        return [nbytes for _, nbytes in self._states()]

    def copy_state(self, other: Session) -> None:
        """Copy the state of another session of the same plan, on the device."""
        pairs = zip(self._states(), other._states(), strict=True)
        self.gpu.submit([([BufferCopy(theirs, 0, mine, 0, nbytes) for (mine, nbytes), (theirs, _) in pairs], ())])

    def read_state(self) -> list[memoryview]:
        return [memoryview(self.gpu.read_back(buffer, nbytes)) for buffer, nbytes in self._states()]

    def write_state(self, state: Sequence[memoryview]) -> None:
        for (buffer, _), data in zip(self._states(), state, strict=True):
            self.gpu.write(buffer, 0, data)

    def copy_extents(self, source: Session, extents: Sequence[Extent]) -> None:
        """Copy ranges of the state of a session, which may be this one. Both plans have the same state buffers."""
        mine, theirs = self._states(), source._states()
        if source is not self:
            across = [BufferCopy(theirs[e.buffer][0], e.source, mine[e.buffer][0], e.target, e.nbytes) for e in extents]
            self.gpu.submit([(across, ())])
            return
        # Through another buffer, one after the other: WebGPU has no copy inside one buffer.
        scratch = self.gpu.create_buffer("state copy", max(4, *(extent.nbytes for extent in extents)), USAGE)
        copies = []
        for extent in extents:
            buffer, _ = mine[extent.buffer]
            copies.append(BufferCopy(buffer, extent.source, scratch, 0, extent.nbytes))
            copies.append(BufferCopy(scratch, 0, buffer, extent.target, extent.nbytes))
        self.gpu.submit([(copies, ())])
        scratch.destroy()

    def copy_into(self, tensor: int, offset: int, source: Session, theirs: int) -> None:
        """Copy a state tensor of another session on this device to an offset in bytes of one of this session."""
        nbytes = padded(source.plan.stored_bytes(theirs))
        self.gpu.submit([([BufferCopy(source._buffer(theirs), 0, self._buffer(tensor), offset, nbytes)], ())])

    def write_into(self, tensor: int, offset: int, data: Array) -> None:
        """Write data at an offset in bytes of a state tensor."""
        self.gpu.write(self._buffer(tensor), offset, data)

    def read_extents(self, extents: Sequence[Extent]) -> list[memoryview]:
        """Return ranges of the state, each from the extent's `source`."""
        states, total = self._states(), sum(extent.nbytes for extent in extents)
        staging = self.workspace.take_staging(total)
        copies, pieces, offset = [], [], 0
        for extent in extents:
            copies.append(BufferCopy(states[extent.buffer][0], extent.source, staging, offset, extent.nbytes))
            offset += extent.nbytes
        data = memoryview(self.gpu.read(staging, total, self.gpu.submit([(copies, ())])))
        self.workspace.give_staging(staging)
        for extent in extents:
            pieces.append(data[: extent.nbytes])
            data = data[extent.nbytes :]
        return pieces

    def write_extents(self, extents: Sequence[Extent], pieces: Sequence[memoryview]) -> None:
        states = self._states()
        for extent, piece in zip(extents, pieces, strict=True):
            self.gpu.write(states[extent.buffer][0], extent.target, piece)

    def copy_tensors(self, source: Session, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy state tensors from another session. Each pair is (its tensor, this session's tensor), of equal bytes."""
        copies = [
            BufferCopy(source._buffer(theirs), 0, self._buffer(mine), 0, padded(self.plan.stored_bytes(mine)))
            for theirs, mine in pairs
        ]
        self.gpu.submit([(copies, ())])

    def read_tensor(self, tensor: int, observer: Observer = NO_OBSERVER) -> memoryview:
        """Return the bytes of a state tensor. Other tensors share their memory and cannot be read."""
        nbytes = self.plan.stored_bytes(tensor)
        return memoryview(self.gpu.read_back(self._buffer(tensor), padded(nbytes), observer))[:nbytes]

    def run(self, submission: Submission, observer: Observer = NO_OBSERVER) -> list[dict[int, memoryview]]:
        """Execute a schedule once or several times, in one submit if that is short, and return all results."""
        return self.finish(self.start(submission, observer), observer)

    def start(self, submission: Submission, observer: Observer = NO_OBSERVER) -> SubmissionInFlight:
        """Submit the executions of a schedule. The results of several `start` may be in flight."""
        workspace = self.workspace
        written = workspace.parameters.written
        observer.phase("bind")
        encoded = workspace.encode(submission.schedule)
        dispatches = self._dispatches.get(encoded)
        if dispatches is None:
            dispatches = self._bind(encoded)
        observer.phase("write")
        later = workspace.parameters.write_scalars(submission.scalars)
        scalars = [[], *([copy] for copy in later)] if submission.follows else [[copy] for copy in later]
        between = self._copies_between(submission, scalars) if scalars else []
        for tensor, array in submission.uploads:
            self.upload(tensor, array)
        count = submission.count
        staging = workspace.take_staging(submission.staging_bytes * count)
        sent = workspace.parameters.written - written + submission.uploaded_bytes
        observer.moved(sent, count * submission.read_bytes)
        observer.phase("record")
        stages = self._stages(dispatches, submission, between, staging)
        brief = encoded.seconds * count < BRIEF_SECONDS
        started = time.perf_counter()
        several = False
        if encoded.seconds * count <= self.gpu.pace.limit:
            submit = observer.submit(self.gpu, stages)
        else:  # long, or the first time
            submit, several = self._submit_parts(stages, encoded.costs, observer)
        workspace.parameters.submitted()
        workspace.executions += 1
        return SubmissionInFlight(submission, encoded, staging, submit, brief, several, started, workspace.executions)

    def finish(self, execution: SubmissionInFlight, observer: Observer = NO_OBSERVER) -> list[dict[int, memoryview]]:
        """Wait for executions, in the order in which they were started, and return the results of each."""
        workspace, submission, encoded = self.workspace, execution.submission, execution.encoded
        count = submission.count
        results = self._read_back(execution, observer)
        workspace.give_staging(execution.staging)
        if submission.staging_bytes:
            began = max(execution.started, workspace.finished)  # after the one before
            workspace.finished = time.perf_counter()
            encoded.seconds = (workspace.finished - began) / count
            if encoded.seconds * count > self.gpu.pace.limit and not execution.several:
                encoded.costs.correct_all(encoded.seconds)
        return results

    def discard(self, execution: SubmissionInFlight) -> None:
        """Leave executions in flight unread."""
        self.workspace.give_staging(execution.staging)

    def is_latest(self, execution: SubmissionInFlight) -> bool:
        """Return whether nothing has run since: its results are still on the device."""
        return execution.number == self.workspace.executions

    def _submit_parts(self, stages: Sequence[Stage], costs: Costs, observer: Observer) -> tuple[int, bool]:
        gpu = self.gpu

        def submit(part: Sequence[Stage]) -> tuple[int, int]:
            observer.phase("record")
            with gpu.lock:
                return observer.submit(gpu, part), gpu.fence()

        def wait_for(fence: int) -> None:
            observer.phase("wait")
            gpu.wait_for(fence)

        return submit_parts(stages, costs, submit, wait_for)

    def _copies_between(self, submission: Submission, scalars: Sequence[list[BufferCopy]]) -> list[list[BufferCopy]]:
        """Return the copies before each execution that is fed. `scalars` come last."""
        fed = self.workspace.step_copies.feeds(
            [Feed(self._buffer(a), self._buffer(b), nbytes) for a, b, nbytes in submission.feeds]
        )
        steps = [[(self._buffer(tensor), array) for tensor, array in step] for step in submission.later_uploads]
        inputs = self.workspace.step_copies.inputs(steps) or [[] for _ in scalars]
        # An input may share memory with a result: results are fed back first.
        return [[*fed, *copies, *scalar] for copies, scalar in zip(inputs, scalars, strict=True)]

    def _stages(
        self,
        dispatches: Sequence[DispatchCommand],
        submission: Submission,
        between: Sequence[Sequence[BufferCopy]],
        staging: Any,
    ) -> list[Stage]:
        """Return the executions with the copies `between` them, each read into its part of the staging buffer."""
        stages: list[Stage] = []
        copies: list[BufferCopy] = []
        if submission.follows:
            copies, between = list(between[0]), between[1:]
        for number in range(submission.count):
            stages.append((copies, dispatches))
            copies = self._copies_out(submission.reads, staging, number * submission.staging_bytes)
            if number < len(between):
                copies += between[number]
        stages.append((copies, ()))
        return stages

    def warm_up(self, schedule: Schedule) -> None:
        """Create the GPU objects of a schedule."""
        self._bind(self.workspace.encode(schedule))

    def _buffer(self, tensor: int) -> Any:
        return self._buffers[self.plan.buffer_of[tensor]]

    def _copies_out(self, reads: Sequence[tuple[int, int]], staging: Any, offset: int) -> list[BufferCopy]:
        copies = []
        for tensor, nbytes in reads:
            if nbytes:
                copies.append(BufferCopy(self._buffer(tensor), 0, staging, offset, padded(nbytes)))
            offset += padded(nbytes)
        return copies

    def upload(self, tensor: int, array: Array) -> None:
        """Write a tensor, in the device's dtype, before the next submit."""
        data: Any = array
        if array.nbytes == 0:
            return
        if array.nbytes % 4:  # WebGPU writes whole words; buffers are padded
            data = array.tobytes() + bytes(-array.nbytes % 4)
        self.gpu.counters.input_bytes += array.nbytes
        self.gpu.write(self._buffers[self.plan.buffer_of[tensor]], 0, data)

    def _bind(self, encoded: EncodedSchedule) -> Sequence[DispatchCommand]:
        """Return a schedule's dispatches with this session's state bound, ready to be recorded."""
        dispatches = list(encoded.dispatches)
        for number, bound in encoded.stateful.items():
            group = self.workspace.group(bound, self._buffers, self._groups)
            dispatches[number] = dispatches[number]._replace(storage=group)
        prepared = self.gpu.recorder.prepare(dispatches)
        # All sessions share one copy of the dispatches without state: there may be hundreds of both.
        shared, own = encoded.prepared, encoded.stateful
        dispatches = [
            dispatch if number in own else shared.setdefault(number, dispatch)
            for number, dispatch in enumerate(prepared)
        ]
        current = self.workspace.encoded
        self._dispatches = {key: old for key, old in self._dispatches.items() if key in current} | {encoded: dispatches}
        return dispatches

    def _read_back(self, execution: SubmissionInFlight, observer: Observer) -> list[dict[int, memoryview]]:
        submission = execution.submission
        count, total = submission.count, submission.staging_bytes
        if not total:
            return [{} for _ in range(count)]
        self.gpu.counters.output_bytes += submission.read_bytes * count
        submit, brief = execution.submit, execution.brief
        data = memoryview(self.gpu.read(execution.staging, total * count, submit, brief, observer))
        results: list[dict[int, memoryview]] = []
        offset = 0
        for _ in range(count):
            results.append({})
            for tensor, nbytes in submission.reads:
                results[-1][tensor] = data[offset : offset + nbytes]
                offset += padded(nbytes)
        return results

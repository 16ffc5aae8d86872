"""One running instance of a plan: its state, its activations, and the hot loop.

A call writes what changed, records one compute pass, submits once and reads back what was asked for. After the first
call at a shape it creates no GPU object.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import wgpu

from ..errors import GraphError
from ..plan import Binding, Plan, Schedule, padded
from ..progress import OnProgress, Progress, ignore
from .budget import needs, refuse_beyond, staging_bytes
from .forks import keep_in_children
from .gpu import Gpu
from .handover import Feed, Handover
from .interrupts import uninterrupted
from .parameters import Parameters
from .recording import Copy, Row, Stage
from .weights import USAGE, Stream, Weights, fill_buffer

Array = np.ndarray[Any, Any]
STAGING = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
BRIEF_SECONDS = 0.1  # work that took no longer before may be waited for in one piece
REALISED = 64  # schedules whose bind groups are kept


@dataclass(slots=True)
class _Realised:
    rows: Sequence[Row]
    blocks: list[bytes]
    seconds: float = math.inf  # what an execution took the last time


class Session:
    """GPU objects of one method. Weights belong to the program and are only borrowed."""

    def __init__(self, plan: Plan, gpu: Gpu, weights: Weights, progress: OnProgress = ignore) -> None:
        refuse_beyond(needs(plan, weights.present), weights.offer())  # before anything is taken
        self.plan = plan
        self.gpu = gpu
        self._buffers: list[Any] = []
        self._owned: list[Any] = []
        keep_in_children(self)
        self._staging: Any = None
        self._parameters = Parameters(gpu)
        self._handover = Handover(gpu)
        self._groups: dict[tuple[object, ...], Any] = {}
        self._realised: OrderedDict[Schedule, _Realised] = OrderedDict()
        try:
            for number, kernel in enumerate(plan.kernels):  # before the weights: one that does not compile fails fast
                progress(Progress("compile", number, len(plan.kernels), "kernels"))
                gpu.warm_up(kernel)
            progress(Progress("compile", len(plan.kernels), len(plan.kernels), "kernels"))
            weights.upload([spec for spec in plan.buffers if spec.kind == "constant"], progress)
            self._allocate(weights)
        except BaseException:
            self.close()
            raise

    def _allocate(self, weights: Weights) -> None:
        stream = Stream(self.gpu)
        for number, spec in enumerate(self.plan.buffers):
            if spec.kind == "constant":
                self._buffers.append(weights.buffer(spec))
                continue
            buffer = self._own(f"{spec.kind} {number}", spec.nbytes, USAGE)
            if spec.fill is not None:
                fill_buffer(stream, buffer, spec.fill, skip_zeros=True)
            self._buffers.append(buffer)
        stream.flush()
        self._staging = self._take_staging(0)

    def _take_staging(self, nbytes: int) -> Any:
        """A buffer to read back through, for the caller to put back into `_staging` once it is unmapped.

        One that an error or Ctrl-C kept from coming back may be mapped or about to be: a submit that used it would
        abort the process.
        """
        staging, self._staging = self._staging, None
        if staging is None or staging.size < nbytes:
            size = max(nbytes, staging_bytes(self.plan))
            staging = self.gpu.create_buffer("readback", size, STAGING)
        return staging

    def _own(self, label: str, nbytes: int, usage: int) -> Any:
        self._owned.append(self.gpu.create_buffer(label, nbytes, usage))
        return self._owned[-1]

    @uninterrupted
    def close(self) -> None:
        """Free what this session owns. Nothing may be recorded afterwards."""
        self._realised.clear()
        self._groups.clear()
        self._parameters.close()
        self._handover.close()
        for buffer in self._owned:
            buffer.destroy()
        if self._staging is not None:
            self._staging.destroy()
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

    def read_tensor(self, tensor: int) -> memoryview:
        """All of a tensor, which must be state: others share their memory."""
        nbytes = self.plan.stored_bytes(tensor)
        return memoryview(self.gpu.read_back(self._buffer(tensor), padded(nbytes)))[:nbytes]

    def run(
        self,
        schedule: Schedule,
        scalars: Sequence[Mapping[int, int]],
        uploads: Sequence[tuple[int, Array]],
        reads: Sequence[tuple[int, int]],
        feeds: Sequence[Feed] = (),
        later_uploads: Sequence[Sequence[tuple[int, Array]]] = (),
    ) -> list[dict[int, memoryview]]:
        """Execute a schedule, once for each entry of `scalars`, in one submit; the results of each.

        `uploads` are (tensor, contiguous device-ready array), `reads` (tensor, bytes). Between two executions the
        results in `feeds` become inputs and `later_uploads`, of each execution but the first, are put in place.
        """
        realised = self._realise(schedule)
        later = self._parameters.write_scalars(scalars)
        handed = self._hand_over(feeds, later_uploads, len(later)) if later else []
        for tensor, array in uploads:
            self.upload(tensor, array)
        total = sum(padded(nbytes) for _, nbytes in reads)
        staging = self._take_staging(total * len(scalars))
        stages: list[Stage] = []
        copies: list[Copy] = []
        for number in range(len(scalars)):
            stages.append((copies, realised.rows))
            copies = self._copies_out(reads, staging, number * total)
            if number < len(later):
                copies += [*handed[number], later[number]]
        stages.append((copies, ()))
        # Inside the driver Ctrl-C waits too: nothing longer, such as work that nobody has waited for, may come before.
        brief = realised.seconds * len(scalars) < BRIEF_SECONDS and self.gpu.idle
        started = time.perf_counter()
        self.gpu.submit(stages)
        self._parameters.submitted()
        results = self._read_back(reads, staging, total, len(scalars), brief)
        self._staging = staging
        if total:
            realised.seconds = (time.perf_counter() - started) / len(scalars)
        return results

    def _hand_over(
        self, feeds: Sequence[Feed], later: Sequence[Sequence[tuple[int, Array]]], count: int
    ) -> list[list[Copy]]:
        """The copies between two executions, for each of `count` times."""
        fed = self._handover.feeds([Feed(self._buffer(a), self._buffer(b), nbytes) for a, b, nbytes in feeds])
        steps = [[(self._buffer(tensor), array) for tensor, array in step] for step in later]
        inputs = self._handover.inputs(steps) or [[] for _ in range(count)]
        # An input may lie where a result did: what is fed is taken first.
        return [fed + copies for copies in inputs]

    def warm_up(self, schedule: Schedule) -> None:
        """Make what running a schedule needs."""
        self._realise(schedule)

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

    def _realise(self, schedule: Schedule) -> _Realised:
        realised = self._realised.get(schedule)
        if realised is not None:
            self._realised.move_to_end(schedule)
            return realised
        blocks = [dispatch.params for dispatch in schedule.dispatches]
        kept = (block for others in self._realised.values() for block in others.blocks)
        uniforms = self._parameters.groups(blocks, kept)
        objects = []
        for dispatch, group in zip(schedule.dispatches, uniforms, strict=True):
            kernel = dispatch.kernel
            storage = self._storage_group(kernel.reads, kernel.writes, dispatch.bindings)
            objects.append(Row(self.gpu.pipeline(kernel), group, storage, *dispatch.grid))
        rows = self.gpu.recorder.prepare(objects)
        made = self._realised[schedule] = _Realised(rows, blocks)
        while len(self._realised) > REALISED:
            self._realised.popitem(last=False)
        return made

    def _storage_group(self, reads: int, writes: int, bindings: tuple[Binding, ...]) -> Any:
        try:
            ranges = tuple((self.plan.buffer_of[b.tensor], b.offset, self.plan.bound_bytes(b)) for b in bindings)
        except KeyError as error:
            raise GraphError(f"value {error.args[0]} is bound by a dispatch but was given no buffer at build") from None
        key = (reads, ranges)
        group = self._groups.get(key)
        if group is None:
            layout, _ = self.gpu.storage_layout(reads, writes)
            entries = [(self._buffers[n], offset, nbytes) for n, offset, nbytes in ranges]
            group = self._groups[key] = self.gpu.create_bind_group(layout, entries)
        return group

    def _read_back(
        self, reads: Sequence[tuple[int, int]], staging: Any, total: int, count: int, brief: bool
    ) -> list[dict[int, memoryview]]:
        if not total:
            return [{} for _ in range(count)]
        self.gpu.counters.output_bytes += sum(nbytes for _, nbytes in reads) * count
        data = memoryview(self.gpu.read(staging, total * count, brief))
        results: list[dict[int, memoryview]] = []
        offset = 0
        for _ in range(count):
            results.append({})
            for tensor, nbytes in reads:
                results[-1][tensor] = data[offset : offset + nbytes]
                offset += padded(nbytes)
        return results

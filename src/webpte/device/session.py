"""One running instance of a plan: its state, its activations, and the hot loop.

A call writes what changed, records one compute pass, submits once and reads back what was asked for. After the first
call at a shape it creates no GPU object.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import wgpu

from ..errors import GraphError
from ..plan import WHOLE, Binding, Plan, Schedule, padded
from ..progress import OnProgress, Progress, ignore
from .gpu import Gpu, guarded
from .parameters import Parameters
from .weights import USAGE, Weights, fill_buffer

Array = np.ndarray[Any, Any]
Row = tuple[Any, Any, Any, int, int, int]  # pipeline, uniforms, storage, grid
STAGING = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
REALISED = 64  # schedules whose bind groups are kept


@dataclass(slots=True)
class _Realised:
    version: int
    rows: list[Row]
    blocks: list[bytes]


class Session:
    """GPU objects of one method. Weights belong to the program and are only borrowed."""

    def __init__(self, plan: Plan, gpu: Gpu, weights: Weights, progress: OnProgress = ignore) -> None:
        self.plan = plan
        self.gpu = gpu
        self._buffers: list[Any] = []
        self._owned: list[Any] = []
        self._staging: Any = None
        self._parameters = Parameters(gpu)
        self._groups: dict[tuple[object, ...], Any] = {}
        self._realised: OrderedDict[Schedule, _Realised] = OrderedDict()
        try:
            for number, kernel in enumerate(plan.kernels):  # before the weights: one that does not compile fails fast
                progress(Progress("compile", number, len(plan.kernels), "kernels"))
                gpu.pipeline(kernel)
            progress(Progress("compile", len(plan.kernels), len(plan.kernels), "kernels"))
            weights.upload([spec for spec in plan.buffers if spec.kind == "constant"], progress)
            self._allocate(weights)
        except BaseException:
            self.close()
            raise

    def _allocate(self, weights: Weights) -> None:
        for number, spec in enumerate(self.plan.buffers):
            if spec.kind == "constant":
                self._buffers.append(weights.buffer(spec))
                continue
            buffer = self._own(f"{spec.kind} {number}", spec.nbytes, USAGE)
            if spec.fill is not None:
                fill_buffer(self.gpu, buffer, spec.fill, skip_zeros=True)
            self._buffers.append(buffer)
        if self.plan.staging_bytes:
            self._staging = self._own("readback", self.plan.staging_bytes, STAGING)

    def _replace_staging(self) -> None:
        """After Ctrl-C the buffer may be mapped or about to be, and a submit that uses it would abort the process."""
        self._owned.remove(self._staging)
        self._staging = self._own("readback", self.plan.staging_bytes, STAGING)

    def _own(self, label: str, nbytes: int, usage: int) -> Any:
        self._owned.append(self.gpu.create_buffer(label, nbytes, usage))
        return self._owned[-1]

    def close(self) -> None:
        """Free what this session owns. Nothing may be recorded afterwards."""
        self._realised.clear()
        self._groups.clear()
        self._parameters.close()
        for buffer in self._owned:
            buffer.destroy()
        self._owned.clear()
        self._buffers.clear()

    def reset(self) -> None:
        """Put every state buffer back to what the file says."""
        encoder = self.gpu.device.create_command_encoder(label="reset")
        for spec, buffer in zip(self.plan.buffers, self._buffers, strict=True):
            if spec.kind == "state":
                encoder.clear_buffer(buffer)
        self.gpu.submit([encoder.finish()])
        for spec, buffer in zip(self.plan.buffers, self._buffers, strict=True):
            if spec.kind == "state" and spec.fill is not None:
                fill_buffer(self.gpu, buffer, spec.fill, skip_zeros=True)

    def _states(self) -> list[tuple[Any, int]]:
        pairs = zip(self.plan.buffers, self._buffers, strict=True)
        return [(buffer, spec.nbytes) for spec, buffer in pairs if spec.kind == "state"]

    def state_sizes(self) -> list[int]:
        return [nbytes for _, nbytes in self._states()]

    @guarded
    def copy_state(self, other: Session) -> None:
        """Take over the state of another session of the same plan, on the device."""
        encoder = self.gpu.device.create_command_encoder(label="copy state")
        for (mine, nbytes), (theirs, _) in zip(self._states(), other._states(), strict=True):
            encoder.copy_buffer_to_buffer(theirs, 0, mine, 0, nbytes)
        self.gpu.submit([encoder.finish()])

    @guarded
    def read_state(self) -> list[memoryview]:
        return [memoryview(self.gpu.device.queue.read_buffer(buffer, 0, nbytes)) for buffer, nbytes in self._states()]

    def write_state(self, state: Sequence[bytes]) -> None:
        for (buffer, _), data in zip(self._states(), state, strict=True):
            self.gpu.write(buffer, 0, data)

    def run(
        self,
        schedule: Schedule,
        slots: Mapping[int, int],
        uploads: Sequence[tuple[int, Array]],
        reads: Sequence[tuple[int, int]],
    ) -> dict[int, memoryview]:
        """Execute a schedule: `uploads` are (tensor, contiguous device-ready array), `reads` (tensor, bytes)."""
        rows = self._rows(schedule)
        self._parameters.write_scalars(slots)
        for tensor, array in uploads:
            self._upload(tensor, array)
        self._record_and_submit(rows, reads)
        return self._read_back(reads)

    def _upload(self, tensor: int, array: Array) -> None:
        data: Any = array
        if array.nbytes == 0:
            return
        if array.nbytes % 4:  # WebGPU writes whole words; buffers are padded
            data = array.tobytes() + bytes(-array.nbytes % 4)
        self.gpu.counters.input_bytes += array.nbytes
        self.gpu.write(self._buffers[self.plan.buffer_of[tensor]], 0, data)

    def _rows(self, schedule: Schedule) -> list[Row]:
        realised = self._realised.get(schedule)
        if realised is not None and realised.version == schedule.version:
            self._realised.move_to_end(schedule)
            return realised.rows
        blocks = [dispatch.params for dispatch in schedule.dispatches]
        uniforms = [self._parameters.group(block) for block in blocks]
        rows = []
        for dispatch, group in zip(schedule.dispatches, uniforms, strict=True):
            kernel = dispatch.kernel
            storage = self._storage_group(kernel.reads, kernel.writes, dispatch.bindings)
            rows.append((self.gpu.pipeline(kernel), group, storage, *dispatch.grid))
        self._parameters.flush()
        if realised is not None:
            self._parameters.release(realised.blocks)
        self._realised[schedule] = _Realised(schedule.version, rows, blocks)
        if len(self._realised) > REALISED:
            _, oldest = self._realised.popitem(last=False)
            self._parameters.release(oldest.blocks)
        return rows

    def _storage_group(self, reads: int, writes: int, bindings: tuple[Binding, ...]) -> Any:
        try:
            ranges = tuple((self.plan.buffer_of[b.tensor], b.offset, b.nbytes) for b in bindings)
        except KeyError as error:
            raise GraphError(f"value {error.args[0]} is bound by a dispatch but was given no buffer at build") from None
        key = (reads, ranges)
        group = self._groups.get(key)
        if group is None:
            layout, _ = self.gpu.storage_layout(reads, writes)
            entries = [
                (self._buffers[n], offset, self.plan.buffers[n].nbytes if nbytes == WHOLE else nbytes)
                for n, offset, nbytes in ranges
            ]
            group = self._groups[key] = self.gpu.create_bind_group(layout, entries)
        return group

    @guarded
    def _record_and_submit(self, rows: list[Row], reads: Sequence[tuple[int, int]]) -> None:
        counters = self.gpu.counters
        encoder = self.gpu.device.create_command_encoder(label="webpte")
        if rows:
            counters.passes += 1
            counters.dispatches += len(rows)
            compute = encoder.begin_compute_pass()
            last: Any = None
            for pipeline, uniforms, storage, x, y, z in rows:
                if pipeline is not last:
                    compute.set_pipeline(pipeline)
                    last = pipeline
                compute.set_bind_group(0, uniforms)
                compute.set_bind_group(1, storage)
                compute.dispatch_workgroups(x, y, z)
            compute.end()
        offset = 0
        for tensor, nbytes in reads:
            if nbytes:
                source = self._buffers[self.plan.buffer_of[tensor]]
                encoder.copy_buffer_to_buffer(source, 0, self._staging, offset, padded(nbytes))
            offset += padded(nbytes)
        self.gpu.submit([encoder.finish()])

    @guarded
    def _read_back(self, reads: Sequence[tuple[int, int]]) -> dict[int, memoryview]:
        total = sum(padded(nbytes) for _, nbytes in reads)
        if not total or self._staging is None:
            return {}
        self.gpu.counters.output_bytes += sum(nbytes for _, nbytes in reads)
        self.gpu.wait_for_results()
        try:
            self._staging.map_sync("READ", 0, total)
            data = self._staging.read_mapped(0, total)  # a copy: the mapping ends here
            self._staging.unmap()
        except BaseException:
            self._replace_staging()
            raise
        out: dict[int, memoryview] = {}
        offset = 0
        for tensor, nbytes in reads:
            out[tensor] = memoryview(data)[offset : offset + nbytes]
            offset += padded(nbytes)
        return out

"""The engine run bare: wgpu-native's C entry points, and no more around them than a measurement needs.

Objects are made through wgpu-py. What a run repeats (write the inputs, record one pass, submit, read back) goes
through `lib`, the fastest way Python has into the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import wgpu
from wgpu.backends.wgpu_native._api import ffi, lib, libf

Array = np.ndarray[Any, Any]
STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
STAGING = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
FLUSH_BYTES = 4 << 20  # staging memory is released after each such piece of a long write


@dataclass(frozen=True)
class Dispatch:
    """One recorded row."""

    pipeline: Any
    group: Any
    grid: tuple[int, int, int]


@dataclass
class Commands:
    """What one run does: (buffer, array) to write, rows to record in one pass, (buffer, bytes) to read back."""

    rows: list[Dispatch]
    writes: list[tuple[Any, Array]] = field(default_factory=list)
    reads: list[tuple[Any, int]] = field(default_factory=list)


class Engine:
    """One open device with everything the adapter offers."""

    def __init__(self) -> None:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        features = [name for name in ("subgroup", "shader-f16") if name in adapter.features]
        self.info: dict[str, Any] = dict(adapter.info)
        self.device = adapter.request_device_sync(required_features=features, required_limits={})
        self._mapped = _MapCallback()
        self._staging: dict[int, Any] = {}

    def buffer(self, content: Array | int) -> Any:
        """Return a storage buffer that holds an array, or zeros of that many bytes."""
        nbytes = content if isinstance(content, int) else content.nbytes
        result = self.device.create_buffer(size=max(16, nbytes + -nbytes % 16), usage=STORAGE)
        if not isinstance(content, int):
            self.upload(result, np.ascontiguousarray(content))
        return result

    def upload(self, buffer: Any, array: Array, piece: int = FLUSH_BYTES) -> None:
        """Write an array in pieces, each flushed: the fastest way to fill fresh memory."""
        queue, start = self.device.queue._internal, array.ctypes.data
        for at in range(0, array.nbytes, piece):
            pointer = ffi.cast("void *", start + at)
            lib.wgpuQueueWriteBuffer(queue, buffer._internal, at, pointer, min(piece, array.nbytes - at))
            lib.wgpuQueueSubmit(queue, 0, ffi.NULL)
            self.wait()

    def pipeline(self, code: str, label: str = "bare") -> Any:
        module = self.device.create_shader_module(label=label, code=code)
        compute = {"module": module, "entry_point": "main"}
        return self.device.create_compute_pipeline(label=label, layout="auto", compute=compute)

    def dispatch(self, pipeline: Any, buffers: Sequence[Any], grid: Sequence[int]) -> Dispatch:
        entries = [
            {"binding": i, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}
            for i, buffer in enumerate(buffers)
        ]
        group = self.device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
        x, y, z = (*grid, 1, 1)[:3]
        return Dispatch(pipeline, group, (x, y, z))

    def wait(self) -> None:
        lib.wgpuDevicePoll(self.device._internal, 1, ffi.NULL)

    def run(self, commands: Commands) -> list[Array]:
        """Write, record, submit and read back; what was read comes as bytes."""
        queue = self.device.queue._internal
        for buffer, array in commands.writes:
            pointer = ffi.cast("void *", array.ctypes.data)
            lib.wgpuQueueWriteBuffer(queue, buffer._internal, 0, pointer, array.nbytes)
        encoder = lib.wgpuDeviceCreateCommandEncoder(self.device._internal, ffi.NULL)
        record(encoder, commands.rows)
        total = sum(nbytes for _, nbytes in commands.reads)
        staging: Any = self._staging_buffer(total) if total else None
        at = 0
        for buffer, nbytes in commands.reads:
            lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, buffer._internal, 0, staging._internal, at, nbytes)
            at += nbytes
        self._submit(encoder)
        if staging is None:
            self.wait()
            return []
        return self._read(staging, [nbytes for _, nbytes in commands.reads])

    def _submit(self, encoder: Any) -> None:
        # `libf` raises where a recording is wrong; submitting it would abort the process.
        commands = libf.wgpuCommandEncoderFinish(encoder, ffi.NULL)
        lib.wgpuCommandEncoderRelease(encoder)
        lib.wgpuQueueSubmit(self.device.queue._internal, 1, ffi.new("WGPUCommandBuffer[1]", [commands]))
        lib.wgpuCommandBufferRelease(commands)

    def _staging_buffer(self, nbytes: int) -> Any:
        if nbytes not in self._staging:
            self._staging[nbytes] = self.device.create_buffer(size=nbytes, usage=STAGING)
        return self._staging[nbytes]

    def _read(self, staging: Any, sizes: Sequence[int]) -> list[Array]:
        total = sum(sizes)
        lib.wgpuBufferMapAsync(staging._internal, lib.WGPUMapMode_Read, 0, total, self._mapped.info)
        self.wait()
        self._mapped.check()
        start = lib.wgpuBufferGetConstMappedRange(staging._internal, 0, total)
        out, at = [], 0
        for nbytes in sizes:
            piece = np.empty(nbytes, np.uint8)
            ffi.memmove(ffi.cast("void *", piece.ctypes.data), start + at, nbytes)
            out.append(piece)
            at += nbytes
        lib.wgpuBufferUnmap(staging._internal)
        return out


def record(encoder: Any, rows: Sequence[Dispatch]) -> None:
    """All rows in one compute pass; a pipeline is set only where it changes."""
    if not rows:
        return
    set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    set_group = lib.wgpuComputePassEncoderSetBindGroup
    dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
    null, last = ffi.NULL, None
    compute = lib.wgpuCommandEncoderBeginComputePass(encoder, null)
    for row in rows:
        if row.pipeline is not last:
            set_pipeline(compute, row.pipeline._internal)
            last = row.pipeline
        set_group(compute, 0, row.group._internal, 0, null)
        dispatch(compute, *row.grid)
    lib.wgpuComputePassEncoderEnd(compute)
    lib.wgpuComputePassEncoderRelease(compute)


class _MapCallback:
    """Called inside the poll that finds a buffer mapped."""

    def __init__(self) -> None:
        signature = "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)"
        self._callback = ffi.callback(signature, self._done)
        self._info = ffi.new("WGPUBufferMapCallbackInfo *")
        self._info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        self._info.callback = self._callback
        self.info = self._info[0]
        self._status = 0

    def _done(self, status: int, message: Any, first: Any, second: Any) -> None:
        self._status = status

    def check(self) -> None:
        if self._status != lib.WGPUMapAsyncStatus_Success:
            raise RuntimeError(f"the staging buffer was not mapped: status {self._status}")
        self._status = 0

"""Recording, submitting and reading back, through wgpu-native's own entry points.

A decode step is hundreds of dispatches. Through wgpu-py each costs 5 to 7 microseconds of Python, through the C
functions that wgpu-py has loaded already it costs one to two. `PortableRecorder` does the same with the public API:
it serves where those functions are missing, and tests hold the two against each other.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import wgpu

from .quick_types import quicken

try:
    from wgpu.backends.wgpu_native._api import ffi, lib, libf
except ImportError:  # another backend, or a wgpu-py that keeps them elsewhere
    ffi = lib = libf = None
else:
    quicken(ffi)

Lock = AbstractContextManager[Any]
SPIN_SECONDS = 0.0003  # short work is waited for without sleeping
SLEEP_SHARE = 1 / 32  # longer work is looked after at this share of the time it has taken so far
LONGEST_SLEEP = 0.002


class Row(NamedTuple):
    """A dispatch: GPU objects, or their native handles."""

    pipeline: Any
    uniforms: Any
    storage: Any
    x: int
    y: int
    z: int


class Copy(NamedTuple):
    """Bytes from buffer to buffer."""

    source: Any
    source_offset: int
    target: Any
    target_offset: int
    nbytes: int


Stage = tuple[Sequence[Copy], Sequence[Row]]  # copies, then one compute pass; either may be empty


class Recorder(Protocol):
    """What a session needs of the queue."""

    def check(self) -> None:
        """Raise if the device is lost: what is submitted or looked at then aborts the process."""

    def prepare(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Rows in the form `submit` takes, to be made once and used often. The objects must outlive them."""

    def record(self, stages: Sequence[Stage], queries: Any = None) -> Any:
        """Everything as one command buffer, to be enqueued once.

        With `queries`, a set for timestamps, compute pass n writes entries 2n and 2n + 1 when it begins and ends.
        """

    def enqueue(self, commands: Any) -> None:
        """Submit what was recorded. Called under the lock that destroying the device takes."""

    def wait(self) -> None:
        """Return when everything submitted is done. Ctrl-C gets through, which a native wait would hold back."""

    def map(self, buffer: Any, nbytes: int, brief: bool = False) -> None:
        """Return when the first bytes of a mappable buffer are there. Ctrl-C gets through.

        `brief` work may be waited for inside the driver, which wakes up sooner and leaves the processor to others.
        """

    def take(self, buffer: Any, nbytes: int) -> bytearray:
        """The first bytes of a mapped buffer, which is unmapped."""


def wait_until(done: Callable[[], bool]) -> None:
    """Call `done` until it is true: eagerly at first, then at a share of the time that has passed."""
    started = time.perf_counter()
    while not done():
        elapsed = time.perf_counter() - started
        if elapsed > SPIN_SECONDS:
            time.sleep(min(elapsed * SLEEP_SHARE, LONGEST_SLEEP))


class NativeRecorder:
    """Through the C functions. Errors of recording surface in `finish`, which raises before anything is submitted."""

    def __init__(self, device: Any, lock: Lock | None = None) -> None:
        self._device = device._internal
        self._queue = device.queue._internal
        self._lock = lock or threading.RLock()
        self._probe = device.create_buffer(label="probe", size=4, usage=wgpu.BufferUsage.COPY_DST)
        self._encoder_info = ffi.new("WGPUCommandEncoderDescriptor *")
        self._finish_info = ffi.new("WGPUCommandBufferDescriptor *")

    def check(self) -> None:
        libf.wgpuQueueWriteBuffer(self._queue, self._probe._internal, 0, ffi.NULL, 0)  # of nothing: a microsecond

    def prepare(self, rows: Sequence[Row]) -> list[Row]:
        prepared: list[Row] = []
        pipeline = uniforms = storage = None
        for row in rows:  # None stands for what the row before has set already
            prepared.append(
                Row(
                    None if row.pipeline is pipeline else row.pipeline._internal,
                    None if row.uniforms is uniforms else row.uniforms._internal,
                    None if row.storage is storage else row.storage._internal,
                    *row[3:],
                )
            )
            pipeline, uniforms, storage = row[:3]
        return prepared

    def record(self, stages: Sequence[Stage], queries: Any = None) -> Any:
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, self._encoder_info)
        stamps = None if queries is None else _NativeStamps(queries)
        try:
            for copies, rows in stages:
                for source, start, target, offset, nbytes in copies:
                    lib.wgpuCommandEncoderCopyBufferToBuffer(
                        encoder, source._internal, start, target._internal, offset, nbytes
                    )
                if rows:
                    self._record_pass(encoder, rows, ffi.NULL if stamps is None else stamps.next())
            return libf.wgpuCommandEncoderFinish(encoder, self._finish_info)
        finally:
            lib.wgpuCommandEncoderRelease(encoder)

    def enqueue(self, commands: Any) -> None:
        try:
            self.check()
            lib.wgpuQueueSubmit(self._queue, 1, [commands])
        finally:
            lib.wgpuCommandBufferRelease(commands)
        if _raised:
            _raise_what_a_callback_could_not()

    @staticmethod
    def _record_pass(encoder: Any, rows: Sequence[Row], info: Any) -> None:
        set_pipeline = lib.wgpuComputePassEncoderSetPipeline
        set_group = lib.wgpuComputePassEncoderSetBindGroup
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        null = ffi.NULL
        compute = lib.wgpuCommandEncoderBeginComputePass(encoder, info)
        try:
            for pipeline, uniforms, storage, x, y, z in rows:
                if pipeline is not None:
                    set_pipeline(compute, pipeline)
                if uniforms is not None:
                    set_group(compute, 0, uniforms, 0, null)
                if storage is not None:
                    set_group(compute, 1, storage, 0, null)
                dispatch(compute, x, y, z)
            lib.wgpuComputePassEncoderEnd(compute)
        finally:
            lib.wgpuComputePassEncoderRelease(compute)

    def wait(self) -> None:
        wait_until(self._poll)

    def _poll(self) -> bool:
        """Let the device tell what is done; True if nothing is under way."""
        empty = lib.wgpuDevicePoll(self._device, 0, ffi.NULL) & 0xFF  # the rest of the result means nothing
        if _raised:
            _raise_what_a_callback_could_not()
        return bool(empty)

    def take(self, buffer: Any, nbytes: int) -> bytearray:
        handle = buffer._internal
        data = bytearray(nbytes)
        with self._lock:
            self.check()  # mapped memory goes with the device
            ffi.memmove(data, lib.wgpuBufferGetConstMappedRange(handle, 0, nbytes), nbytes)
            lib.wgpuBufferUnmap(handle)
        return data

    def map(self, buffer: Any, nbytes: int, brief: bool = False) -> None:
        request = next(_requests)
        _pending[request] = None
        try:
            self._wait_for_map(buffer, nbytes, request, brief)
        finally:
            del _pending[request]

    def _wait_for_map(self, buffer: Any, nbytes: int, request: int, brief: bool) -> None:
        info = ffi.new("WGPUBufferMapCallbackInfo *")
        info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        info.callback = _on_mapped
        info.userdata1 = ffi.cast("void *", request)
        libf.wgpuBufferMapAsync(buffer._internal, lib.WGPUMapMode_Read, 0, nbytes, info[0])

        if brief:
            lib.wgpuDevicePoll(self._device, 1, ffi.NULL)

        def mapped() -> bool:
            self._poll()
            return _pending[request] is not None

        wait_until(mapped)
        if _pending[request] != lib.WGPUMapAsyncStatus_Success:
            raise RuntimeError(f"results could not be mapped (status {_pending[request]})")


class _NativeStamps:
    """Descriptors of compute passes that write timestamps, one pair after the other."""

    def __init__(self, queries: Any) -> None:
        self._writes = ffi.new("WGPUPassTimestampWrites *")
        self._info = ffi.new("WGPUComputePassDescriptor *")
        self._writes.querySet = queries._internal
        self._info.timestampWrites = self._writes
        self._indices = itertools.count()

    def next(self) -> Any:
        self._writes.beginningOfPassWriteIndex = next(self._indices)
        self._writes.endOfPassWriteIndex = next(self._indices)
        return self._info


_requests = itertools.count(1)
_pending: dict[int, int | None] = {}  # request -> how its mapping ended, once it did
_raised: dict[int, BaseException] = {}  # thread -> what was raised in a callback that native code made there


def _remember_status(status: int, message: Any, request: Any, unused: Any) -> None:
    number = int(ffi.cast("intptr_t", request))
    if number in _pending:  # else Ctrl-C abandoned it
        _pending[number] = status


def _keep_what_was_raised(kind: Any, error: BaseException, traceback: Any) -> None:
    """Native code cannot pass on an exception, such as Ctrl-C, and cffi would drop it: the waiting thread raises it."""
    _raised[threading.get_ident()] = error
    if traceback is not None:  # the request may be another thread's, which should not wait for ever
        given = traceback.tb_frame.f_locals
        _remember_status(given["status"], given["message"], given["request"], None)


def _raise_what_a_callback_could_not() -> None:
    error = _raised.pop(threading.get_ident(), None)
    if error is not None:
        raise error


if ffi is not None:
    # One for the life of the process: a mapping that Ctrl-C abandoned may still end much later.
    _on_mapped = ffi.callback(
        "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)", _remember_status, onerror=_keep_what_was_raised
    )


class PortableRecorder:
    """The same through wgpu-py's public API."""

    def __init__(self, device: Any, lock: Lock | None = None) -> None:
        self._device = device
        self._lock = lock or threading.RLock()

    def check(self) -> None:
        self._device.create_command_encoder().finish()

    def prepare(self, rows: Sequence[Row]) -> Sequence[Row]:
        return rows

    def record(self, stages: Sequence[Stage], queries: Any = None) -> Any:
        encoder = self._device.create_command_encoder()
        indices = itertools.count()
        for copies, rows in stages:
            for copy in copies:
                encoder.copy_buffer_to_buffer(*copy)
            if rows:
                compute = encoder.begin_compute_pass(timestamp_writes=_stamps(queries, indices))
                for pipeline, uniforms, storage, x, y, z in rows:
                    compute.set_pipeline(pipeline)
                    compute.set_bind_group(0, uniforms)
                    compute.set_bind_group(1, storage)
                    compute.dispatch_workgroups(x, y, z)
                compute.end()
        return encoder.finish()

    def enqueue(self, commands: Any) -> None:
        self.check()
        self._device.queue.submit([commands])

    def wait(self) -> None:
        self._device._poll_wait()

    def map(self, buffer: Any, nbytes: int, brief: bool = False) -> None:
        buffer.map_sync(wgpu.MapMode.READ, 0, nbytes)

    def take(self, buffer: Any, nbytes: int) -> bytearray:
        with self._lock:
            self.check()
            data = bytearray(buffer.read_mapped(0, nbytes))
            buffer.unmap()
        return data


def _stamps(queries: Any, indices: Iterator[int]) -> dict[str, Any] | None:
    if queries is None:
        return None
    return {
        "query_set": queries,
        "beginning_of_pass_write_index": next(indices),
        "end_of_pass_write_index": next(indices),
    }


def timestamp_period(device: Any) -> float:
    """Nanoseconds per tick. WebGPU's timestamps are nanoseconds, wgpu-native's are the device's ticks."""
    return 1.0 if lib is None else float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))


def recorder(device: Any, lock: Lock) -> Recorder:
    """The fast one where it can be had. `lock` is what destroying the device takes."""
    return PortableRecorder(device, lock) if lib is None else NativeRecorder(device, lock)

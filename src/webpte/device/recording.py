"""Recording, submitting and reading back, through wgpu-native's entry points.

A decode step is hundreds of dispatches. Through wgpu-py each costs 5 to 7 microseconds of Python; through the C
functions that wgpu-py has loaded it costs 1 to 2. `PortableRecorder` does the same with the public API: it is used if
those functions are missing, and tests compare the two.

wgpu-py looks up C types such as "WGPUBufferDescriptor *" by name. For each new name cffi parses every typedef of
webgpu.h again: 20 ms per name, and a second in all before the first buffer exists. `patch_cffi_types` finds pointers
to, and arrays of, known types without the parser.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import wgpu

_NAMED = re.compile(r"\s*(?:struct\s+)?(\w+)(?:\s+const)?\s*((?:\*\s*)*)(?:\[(\d*)\])?\s*")
_FUNCTION = re.compile(r"\s*void\s*\(([^()]*)\)\s*")


def patch_cffi_types(ffi: Any) -> None:
    """Patch `ffi` to find simple types without parsing. Other types are still parsed."""
    try:
        from cffi import model

        parser = ffi._parser
        declared, parse = parser._declarations, parser.parse_type
    except (ImportError, AttributeError):  # another version of cffi: slower, with the same result
        return

    def find(text: str) -> Any:
        ctype = _find(model, declared, text)
        return parse(text) if ctype is None else ctype

    parser.parse_type = find


def _find(model: Any, declared: dict[str, Any], text: str) -> Any:
    """Return the type that `text` names, equal to the parser's result; None if that is uncertain."""
    function = _FUNCTION.fullmatch(text)
    if function is not None:
        arguments = [_find(model, declared, argument) for argument in function[1].split(",")]
        return None if None in arguments else model.RawFunctionType(tuple(arguments), model.void_type, False)
    named = _NAMED.fullmatch(text)
    if named is None:
        return None
    name, stars, length = named.groups()
    if name == "void":
        ctype = model.void_type
    elif name in model.PrimitiveType.ALL_PRIMITIVE_TYPES:
        ctype = model.PrimitiveType(name)
    elif f"typedef {name}" in declared:
        ctype, _ = declared[f"typedef {name}"]
    else:
        return None
    for _ in range(stars.count("*")):
        ctype = model.PointerType(ctype)
    if length is not None:
        ctype = model.ArrayType(ctype, int(length) if length else None)
    return ctype


try:
    from wgpu.backends.wgpu_native._api import ffi, lib, libf
except ImportError:  # another backend, or a wgpu-py that keeps them elsewhere
    ffi = lib = libf = None
else:
    patch_cffi_types(ffi)

Lock = AbstractContextManager[Any]
SPIN_SECONDS = 0.0003  # wait this long without sleeping
SLEEP_SHARE = 1 / 32  # then sleep this share of the elapsed time between two polls
MAX_SLEEP_SECONDS = 0.002


class DispatchCommand(NamedTuple):
    """A dispatch: GPU objects, or their native handles."""

    pipeline: Any
    uniforms: Any
    storage: Any
    x: int
    y: int
    z: int


class BufferCopy(NamedTuple):
    """A copy of bytes from buffer to buffer."""

    source: Any
    source_offset: int
    target: Any
    target_offset: int
    nbytes: int


Stage = tuple[Sequence[BufferCopy], Sequence[DispatchCommand]]  # copies, then one compute pass; either may be empty


class Recorder(Protocol):
    """Records and submits commands, and reads results."""

    def check(self) -> None:
        """Raise if the device is lost: a submit or an access to mapped memory would abort the process."""

    def prepare(self, dispatches: Sequence[DispatchCommand]) -> Sequence[DispatchCommand]:
        """Return dispatches in the form that `record` takes, for repeated use. Their GPU objects must outlive them."""

    def record(self, stages: Sequence[Stage], queries: Any = None) -> Any:
        """Return a command buffer with all stages, to be enqueued once.

        With `queries`, a set for timestamps, compute pass n writes entries 2n and 2n + 1 when it begins and ends.
        """

    def enqueue(self, commands: Any) -> int:
        """Submit a command buffer. Return the number of the submit: that of the one before and 1, if none was between.

        The caller holds the lock that destroying the device takes.
        """

    def wait(self) -> None:
        """Return when all submitted work is done. Ctrl-C interrupts the wait; it would not interrupt a native one."""

    def fence(self) -> int:
        """Return a number for `wait_for`. The caller holds the lock of `enqueue`."""

    def wait_for(self, fence: int) -> None:
        """Return when all work that was submitted before the fence is done. Ctrl-C interrupts the wait."""

    def map(self, buffer: Any, nbytes: int, brief: int | None = None) -> None:
        """Return when the first bytes of a mappable buffer can be read. Ctrl-C interrupts the wait.

        If the submit of the number `brief` is short work, and what comes before it is done, the wait may be inside the
        driver, which wakes up sooner and uses no processor time.
        """

    def take(self, buffer: Any, nbytes: int) -> bytearray:
        """Return the first bytes of a mapped buffer, and unmap it."""


def wait_until(done: Callable[[], bool]) -> None:
    """Call `done` until it is true: without a pause at first, then at intervals that grow with the elapsed time."""
    started = time.perf_counter()
    while not done():
        elapsed = time.perf_counter() - started
        if elapsed > SPIN_SECONDS:
            time.sleep(min(elapsed * SLEEP_SHARE, MAX_SLEEP_SECONDS))


class NativeRecorder:
    """Records through the C functions. Errors are raised by `finish`, before anything is submitted."""

    def __init__(self, device: Any, lock: Lock | None = None) -> None:
        self._device = device._internal
        self._queue = device.queue._internal
        self._lock = lock or threading.RLock()
        self._probe = device.create_buffer(label="probe", size=4, usage=wgpu.BufferUsage.COPY_DST)
        self._encoder_info = ffi.new("WGPUCommandEncoderDescriptor *")
        self._finish_info = ffi.new("WGPUCommandBufferDescriptor *")

    def check(self) -> None:
        libf.wgpuQueueWriteBuffer(
            self._queue, self._probe._internal, 0, ffi.NULL, 0
        )  # an empty write takes a microsecond

    def prepare(self, dispatches: Sequence[DispatchCommand]) -> list[DispatchCommand]:
        prepared: list[DispatchCommand] = []
        pipeline = uniforms = storage = None
        for dispatch in dispatches:  # None: as the previous dispatch has set it
            prepared.append(
                DispatchCommand(
                    None if dispatch.pipeline is pipeline else dispatch.pipeline._internal,
                    None if dispatch.uniforms is uniforms else dispatch.uniforms._internal,
                    None if dispatch.storage is storage else dispatch.storage._internal,
                    *dispatch[3:],
                )
            )
            pipeline, uniforms, storage = dispatch[:3]
        return prepared

    def record(self, stages: Sequence[Stage], queries: Any = None) -> Any:
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, self._encoder_info)
        stamps = None if queries is None else _NativeStamps(queries)
        try:
            for copies, dispatches in stages:
                for source, start, target, offset, nbytes in copies:
                    lib.wgpuCommandEncoderCopyBufferToBuffer(
                        encoder, source._internal, start, target._internal, offset, nbytes
                    )
                if dispatches:
                    self._record_pass(encoder, dispatches, ffi.NULL if stamps is None else stamps.next())
            return libf.wgpuCommandEncoderFinish(encoder, self._finish_info)
        finally:
            lib.wgpuCommandEncoderRelease(encoder)

    def enqueue(self, commands: Any) -> int:
        try:
            self.check()
            number = int(lib.wgpuQueueSubmitForIndex(self._queue, 1, [commands]))
        finally:
            lib.wgpuCommandBufferRelease(commands)
        if _raised:
            _raise_from_callback()
        return number

    @staticmethod
    def _record_pass(encoder: Any, dispatches: Sequence[DispatchCommand], info: Any) -> None:
        set_pipeline = lib.wgpuComputePassEncoderSetPipeline
        set_group = lib.wgpuComputePassEncoderSetBindGroup
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        null = ffi.NULL
        compute = lib.wgpuCommandEncoderBeginComputePass(encoder, info)
        try:
            for pipeline, uniforms, storage, x, y, z in dispatches:
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

    def fence(self) -> int:
        fence = next(_requests)
        _fences.add(fence)
        info = ffi.new("WGPUQueueWorkDoneCallbackInfo *")
        info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        info.callback = _on_done
        info.userdata1 = ffi.cast("void *", fence)
        libf.wgpuQueueOnSubmittedWorkDone(self._queue, info[0])
        return fence

    def wait_for(self, fence: int) -> None:
        wait_until(lambda: self._poll() or fence not in _fences)

    def _poll(self) -> bool:
        """Process the device's callbacks, and return whether no work is in flight."""
        empty = lib.wgpuDevicePoll(self._device, 0, ffi.NULL) & 0xFF  # only the low byte is defined
        if _raised:
            _raise_from_callback()
        return bool(empty)

    def take(self, buffer: Any, nbytes: int) -> bytearray:
        handle = buffer._internal
        data = bytearray(nbytes)
        with self._lock:
            self.check()  # mapped memory is freed with the device
            ffi.memmove(data, lib.wgpuBufferGetConstMappedRange(handle, 0, nbytes), nbytes)
            lib.wgpuBufferUnmap(handle)
        return data

    def map(self, buffer: Any, nbytes: int, brief: int | None = None) -> None:
        request = next(_requests)
        _pending[request] = None
        try:
            self._wait_for_map(buffer, nbytes, request, brief)
        finally:
            del _pending[request]

    def _wait_for_map(self, buffer: Any, nbytes: int, request: int, brief: int | None) -> None:
        info = ffi.new("WGPUBufferMapCallbackInfo *")
        info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        info.callback = _on_mapped
        info.userdata1 = ffi.cast("void *", request)
        libf.wgpuBufferMapAsync(buffer._internal, lib.WGPUMapMode_Read, 0, nbytes, info[0])

        if brief is not None:  # later submits, which may be in flight, are not waited for
            lib.wgpuDevicePoll(self._device, 1, ffi.new("WGPUSubmissionIndex *", brief))

        def mapped() -> bool:
            self._poll()
            return _pending[request] is not None

        wait_until(mapped)
        if _pending[request] != lib.WGPUMapAsyncStatus_Success:
            raise RuntimeError(f"cannot map the results (status {_pending[request]})")


class _NativeStamps:
    """Descriptors of compute passes that write consecutive pairs of timestamps."""

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
_pending: dict[int, int | None] = {}  # request -> the status of its mapping; None while it is in flight
_fences: set[int] = set()  # requests that were not reached yet
_raised: dict[int, BaseException] = {}  # thread -> the exception raised in a callback of native code


def _remember_status(status: int, message: Any, request: Any, unused: Any) -> None:
    number = int(ffi.cast("intptr_t", request))
    _fences.discard(number)
    if number in _pending:  # else Ctrl-C abandoned it
        _pending[number] = status


def _remember_exception(kind: Any, error: BaseException, traceback: Any) -> None:
    """Keep an exception, such as KeyboardInterrupt, for the waiting thread: native code cannot propagate it."""
    _raised[threading.get_ident()] = error
    if traceback is not None:  # the request may belong to another thread, which must not wait for ever
        arguments = traceback.tb_frame.f_locals
        _remember_status(arguments["status"], arguments["message"], arguments["request"], None)


def _raise_from_callback() -> None:
    error = _raised.pop(threading.get_ident(), None)
    if error is not None:
        raise error


if ffi is not None:
    # They live as long as the process: a mapping that Ctrl-C abandoned may end much later.
    _on_mapped, _on_done = (
        ffi.callback(f"void({status}, WGPUStringView, void *, void *)", _remember_status, onerror=_remember_exception)
        for status in ("WGPUMapAsyncStatus", "WGPUQueueWorkDoneStatus")
    )


class PortableRecorder:
    """Records through wgpu-py's public API."""

    def __init__(self, device: Any, lock: Lock | None = None) -> None:
        self._device = device
        self._lock = lock or threading.RLock()
        self._numbers = itertools.count(1)

    def check(self) -> None:
        self._device.create_command_encoder().finish()

    def prepare(self, dispatches: Sequence[DispatchCommand]) -> Sequence[DispatchCommand]:
        return dispatches

    def record(self, stages: Sequence[Stage], queries: Any = None) -> Any:
        encoder = self._device.create_command_encoder()
        indices = itertools.count()
        for copies, dispatches in stages:
            for copy in copies:
                encoder.copy_buffer_to_buffer(*copy)
            if dispatches:
                compute = encoder.begin_compute_pass(timestamp_writes=_stamps(queries, indices))
                for pipeline, uniforms, storage, x, y, z in dispatches:
                    compute.set_pipeline(pipeline)
                    compute.set_bind_group(0, uniforms)
                    compute.set_bind_group(1, storage)
                    compute.dispatch_workgroups(x, y, z)
                compute.end()
        return encoder.finish()

    def enqueue(self, commands: Any) -> int:
        self.check()
        self._device.queue.submit([commands])
        return next(self._numbers)

    def wait(self) -> None:
        self._device._poll_wait()

    def fence(self) -> int:
        return 0

    def wait_for(self, fence: int) -> None:
        self.wait()  # also for later work: the public API has no narrower wait that Ctrl-C could interrupt

    def map(self, buffer: Any, nbytes: int, brief: int | None = None) -> None:
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
    """Return the nanoseconds per tick. WebGPU's timestamps are nanoseconds, wgpu-native's are the device's ticks."""
    return 1.0 if lib is None else float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))


def recorder(device: Any, lock: Lock) -> Recorder:
    """Return the native recorder if it is available. `lock` is the one that destroying the device takes."""
    return PortableRecorder(device, lock) if lib is None else NativeRecorder(device, lock)

"""Open devices, their pipelines and their queues.

Programs whose limits fit share one device and its pipelines. The last user closes it. One thread at a time works on a
device, under its lock; several threads may wait for results.

A device can be lost at any time, and a submit to a lost device aborts the process. So every submit and every access to
mapped memory checks the device first, under the lock that destroying the device takes too.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import wgpu

from ..errors import DeviceError, DeviceLost, OutOfMemory
from ..plan import CallValues, Schedule
from ..wgsl import Kernel, render
from ..wgsl.kernel import SYM_SLOTS
from ..wgsl.uniforms import SLOT_BYTES
from .adapter import SPEC_LIMITS, adapter_caps, adapter_number, chosen_adapter, select_adapter
from .memory import track_buffer
from .pacing import Pace, submit_limit
from .process_events import after_fork_in_child, defer_interrupts, keep_alive_in_child
from .recording import BufferCopy, DispatchCommand, Stage, recorder

logger = logging.getLogger(__name__)
T = TypeVar("T")
Phase = Callable[[str], None]  # is called with the name of the phase that begins

SYM_BYTES = SYM_SLOTS * 16


def translate_errors(function: Callable[..., T]) -> Callable[..., T]:
    """Decorate a method of `Gpu` to raise a DeviceError for an error of wgpu."""
    action = _action(function)

    @functools.wraps(function)
    def call(gpu: Gpu, *args: Any, **kwargs: Any) -> T:
        try:
            return function(gpu, *args, **kwargs)
        except (wgpu.GPUError, RuntimeError) as error:
            raise gpu._device_error(action, error) from error

    return call


def locked(function: Callable[..., T]) -> Callable[..., T]:
    """Decorate a method of `Gpu` as `translate_errors` does, and hold the lock."""
    action = _action(function)

    @functools.wraps(function)
    def call(gpu: Gpu, *args: Any, **kwargs: Any) -> T:
        try:
            with gpu.lock:
                return function(gpu, *args, **kwargs)
        except (wgpu.GPUError, RuntimeError) as error:
            raise gpu._device_error(action, error) from error

    return call


def _action(function: Callable[..., object]) -> str:
    return function.__name__.strip("_").replace("_", " ")


@dataclass
class Counters:
    """Counters of the work on a device since it was opened. Tests and `bench` compare two snapshots."""

    buffers: int = 0
    bind_groups: int = 0
    pipelines: int = 0
    shader_modules: int = 0
    passes: int = 0
    dispatches: int = 0
    submits: int = 0
    uniform_bytes: int = 0
    constant_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    wait_seconds: float = 0.0  # waiting for results and copying them

    def snapshot(self) -> Counters:
        return Counters(**asdict(self))

    def since(self, earlier: Counters) -> Counters:
        before = asdict(earlier)
        return Counters(**{name: value - before[name] for name, value in asdict(self).items()})


_reasons: list[str] = []


def _listen(record: logging.LogRecord) -> bool:
    """Remember the reason that wgpu-py logs, its only report of it. A handler would suppress the default output."""
    reason = re.match(r"The WGPU device was lost \((\w+)\)", record.getMessage())
    if reason:
        _reasons[:] = [reason[1].lower()]
    return True


logging.getLogger("wgpu").addFilter(_listen)


def reason_of_loss(device: Any, error: Exception) -> str:
    """Return the reason, for messages, why a device was lost whose check has failed with `error`.

    wgpu-native calls back when the next commands are recorded. That is too late to detect the loss.
    """
    _reasons.clear()
    device.create_command_encoder()
    return _reasons[0] if _reasons else " ".join(str(error).split())


class Observer:
    """Observes the calls of one method; see `Method._observed`. This base class changes nothing."""

    def phase(self, name: str) -> None:
        """Note that a phase of the call begins. An empty name ends the last one."""

    def prepared(self, schedule: Schedule, live: CallValues) -> None:
        """Note that a segment of the method is about to run."""

    def submit(self, gpu: Gpu, stages: Sequence[Stage]) -> int:
        """Submit the work of the call, and return the number of the submit as `Gpu.submit` does."""
        return gpu.submit(stages, self.phase)

    def moved(self, to_device: int, to_host: int) -> None:
        """Note that bytes were transferred, uniforms included."""


NO_OBSERVER = Observer()


class Gpu:
    """An open device with its pipelines and the number of its users."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        adapter = chosen_adapter()
        self.caps = adapter_caps()
        self.adapter_type: str = adapter.info["adapter_type"]
        required = {n: v for n, v in {**SPEC_LIMITS, **limits}.items() if n in adapter.limits}
        try:
            self.device = adapter.request_device_sync(
                label="webpte", required_features=sorted(self.caps.features), required_limits=required
            )
        except RuntimeError as error:
            raise DeviceError(
                f"{self.caps.adapter} has no device with the limits {dict(limits)}: {error}", code="limits"
            ) from error
        keep_alive_in_child(self)
        self.lock = threading.RLock()  # taken after any lock of a program or method
        self.lost: str | None = None  # the reason, after the loss was detected
        self.limits: dict[str, int] = dict(self.device.limits)
        self.counters = Counters()
        self.recorder = recorder(self.device, self.lock)
        self.pace = Pace(submit_limit(self.caps.kind))
        self._done = 0  # the highest number of a submit that was waited for
        self.users = 0
        self.device.destroy = _with_lock(self.lock, self.device.destroy)
        self._pipelines: dict[Kernel, Any] = {}
        self._warm: set[Kernel] = set()
        self._spare: tuple[Any, Any, Any] | None = None
        self._layouts: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.uniform_layout = self._create_layout(["uniform", "uniform"])
        logger.info("opened a device of %s", self.caps.adapter)

    def satisfies(self, limits: Mapping[str, int]) -> bool:
        return all(self.limits.get(name, 0) >= value for name, value in limits.items())

    def alive(self) -> bool:
        """Return whether the device can still be used."""
        if self.lost is None:
            try:
                self.recorder.check()
            except (wgpu.GPUError, RuntimeError) as error:
                self.lost = reason_of_loss(self.device, error)
        return self.lost is None

    def check(self) -> None:
        """Raise DeviceLost if the device is lost: a submit or an access to mapped memory would abort the process."""
        if not self.alive():
            raise self.loss_error()

    def loss_error(self) -> DeviceLost:
        """Return the error for calls on the lost device."""
        return DeviceLost(
            f"the device of {self.caps.adapter} was lost ({self.lost}), with the state that methods had on it",
            hint="program.recover() opens another device and loads the methods again, with their initial state.",
        )

    def _device_error(self, action: str, error: Exception) -> DeviceError:
        """Return the typed error for an error of wgpu."""
        if isinstance(error, wgpu.GPUOutOfMemoryError):
            return OutOfMemory(
                f"the device is out of memory in {action!r}: {error}",
                hint="Set a limit with load(..., memory=) to be refused before memory is allocated.",
            )
        if not self.alive():
            return self.loss_error()
        return DeviceError(f"the GPU reported an error in {action!r}: {error}", code="validation")

    @defer_interrupts
    @locked
    def create_buffer(self, label: str, size: int, usage: int) -> Any:
        self.counters.buffers += 1
        buffer = self.device.create_buffer(label=label, size=size, usage=usage)
        track_buffer(buffer, size)
        return buffer

    @defer_interrupts
    @locked
    def create_bind_group(self, layout: Any, entries: Sequence[tuple[Any, int, int]]) -> Any:
        self.counters.bind_groups += 1
        descriptors = [
            {"binding": i, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for i, (buffer, offset, size) in enumerate(entries)
        ]
        return self.device.create_bind_group(layout=layout, entries=descriptors)

    @locked
    def _create_layout(self, kinds: Sequence[str]) -> Any:
        return self.device.create_bind_group_layout(
            entries=[
                {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for i, kind in enumerate(kinds)
            ]
        )

    @defer_interrupts
    @locked
    def storage_layout(self, reads: int, writes: int) -> tuple[Any, Any]:
        """Return the bind group layout of the storage bindings, and the pipeline layout that contains it."""
        layouts = self._layouts.get((reads, writes))
        if layouts is None:
            group = self._create_layout(["read-only-storage"] * reads + ["storage"] * writes)
            pipeline = self.device.create_pipeline_layout(bind_group_layouts=[self.uniform_layout, group])
            layouts = self._layouts[reads, writes] = (group, pipeline)
        return layouts

    def pipeline(self, kernel: Kernel) -> Any:
        pipeline = self._pipelines.get(kernel)
        return self._compile_kernel(kernel) if pipeline is None else pipeline

    @translate_errors
    def warm_up(self, kernel: Kernel) -> None:
        """Compile a kernel now. Some drivers compile at the first dispatch, so an empty one is submitted."""
        if kernel not in self._warm:
            started = time.perf_counter()
            with self.lock:
                pipeline = self.pipeline(kernel)
                dispatch = DispatchCommand(pipeline, *self._spare_groups(kernel.reads, kernel.writes), 0, 0, 0)
                self.recorder.enqueue(self.recorder.record([((), self.recorder.prepare([dispatch]))]))
            self.recorder.wait()
            self._warm.add(kernel)
            logger.debug("compiled %s in %.1f ms", kernel.label, (time.perf_counter() - started) * 1e3)

    def _spare_groups(self, reads: int, writes: int) -> tuple[Any, Any]:
        """Return bind groups over memory that nothing else uses."""
        if self._spare is None:
            usage = wgpu.BufferUsage.STORAGE
            uniforms = self.create_buffer("spare uniforms", SYM_BYTES, wgpu.BufferUsage.UNIFORM)
            self._spare = (
                self.create_bind_group(self.uniform_layout, [(uniforms, 0, SLOT_BYTES), (uniforms, 0, SYM_BYTES)]),
                self.create_buffer("spare reads", SLOT_BYTES, usage),
                self.create_buffer("spare writes", SLOT_BYTES, usage),
            )
        group, read, written = self._spare
        entries = [(read, 0, SLOT_BYTES)] * reads + [(written, 0, SLOT_BYTES)] * writes
        return group, self.create_bind_group(self.storage_layout(reads, writes)[0], entries)

    @defer_interrupts
    @locked
    def _compile_kernel(self, kernel: Kernel) -> Any:
        if kernel in self._pipelines:  # another thread compiled it
            return self._pipelines[kernel]
        self.counters.shader_modules += 1
        self.counters.pipelines += 1
        module = self.device.create_shader_module(label=kernel.label, code=render(kernel))
        pipeline = self._pipelines[kernel] = self.device.create_compute_pipeline(
            label=kernel.label,
            layout=self.storage_layout(kernel.reads, kernel.writes)[1],
            compute={"module": module, "entry_point": "main", "constants": {"wg": kernel.workgroup}},
        )
        return pipeline

    @locked
    def write(self, buffer: Any, offset: int, data: Any) -> None:
        self.device.queue.write_buffer(buffer, offset, data)

    @locked
    def submit(self, stages: Sequence[Stage], phase: Phase | None = None, queries: Any = None) -> int:
        """Record copies and compute passes, in order, submit them together and return the number of the submit.

        `phase` is called when all is recorded; `queries` are those of `Recorder.record`.
        """
        counters = self.counters
        for _, dispatches in stages:
            counters.passes += bool(dispatches)
            counters.dispatches += len(dispatches)
        counters.submits += 1
        commands = self.recorder.record(stages, queries)
        if phase is not None:
            phase("submit")
        return self.recorder.enqueue(commands)

    @locked
    def fence(self) -> int:
        """Return a number for `wait_for`, which all submits so far come before."""
        return self.recorder.fence()

    @translate_errors
    def wait_for(self, fence: int) -> None:
        """Wait for all submits before a fence. The lock is not held."""
        started = time.perf_counter()
        try:
            self.recorder.wait_for(fence)
        finally:
            with self.lock:
                self.counters.wait_seconds += time.perf_counter() - started

    @defer_interrupts
    @locked
    def clear(self, buffers: Sequence[Any]) -> None:
        """Fill whole buffers with zeros."""
        encoder = self.device.create_command_encoder(label="clear")
        for buffer in buffers:
            encoder.clear_buffer(buffer)
        commands = encoder.finish()
        self.check()
        self.device.queue.submit([commands])

    def read_back(self, buffer: Any, nbytes: int, observer: Observer = NO_OBSERVER) -> bytearray:
        """Return the first bytes of a buffer that cannot be mapped, through a staging buffer."""
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        staging = self.create_buffer("read back", nbytes, usage)
        stages: list[Stage] = [([BufferCopy(buffer, 0, staging, 0, nbytes)], ())]
        observer.moved(0, nbytes)
        return self.read(staging, nbytes, observer.submit(self, stages), observer=observer)

    @translate_errors
    def read(
        self, buffer: Any, nbytes: int, number: int = 0, brief: bool = False, observer: Observer = NO_OBSERVER
    ) -> bytearray:
        """Return the first bytes of a mappable buffer after the submit of this number; see Recorder.map for `brief`."""
        started = time.perf_counter()
        # Inside the driver Ctrl-C is delayed: longer work, such as earlier submits in flight, must not come before.
        brief = brief and self._done >= number - 1
        try:
            observer.phase("wait")
            self.recorder.map(buffer, nbytes, number if brief else None)
            observer.phase("read")
            data = self.recorder.take(buffer, nbytes)
            with self.lock:
                self._done = max(self._done, number)
            return data
        finally:
            with self.lock:
                self.counters.wait_seconds += time.perf_counter() - started

    @translate_errors
    def wait(self) -> None:
        """Block until the device is idle, and free the queue's staging memory."""
        with self.lock:
            self.check()
            self.device.queue.submit([])
        self.recorder.wait()

    @defer_interrupts
    def release(self) -> None:
        with _LOCK:
            self.users -= 1
            if self.users:
                return
            if self in _OPEN:  # a lost one was removed already
                _OPEN.remove(self)
        with self.lock:
            self._pipelines.clear()
            self._warm.clear()
            self._spare = None
            self._layouts.clear()
            self.device.destroy()


def _with_lock(lock: threading.RLock, function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that holds the lock: the device must not be destroyed between a check and a submit."""

    def call() -> None:
        with lock:
            function()

    return call


_OPEN: list[Gpu] = []
_LOCK = threading.Lock()


def use_adapter(number: int) -> None:
    """Select the adapter of this process by its number. Raise DeviceError while programs run on another one."""
    with _LOCK:
        if any(gpu.alive() for gpu in _OPEN) and adapter_number() != str(number):
            raise DeviceError(
                f"cannot select adapter {number} while programs run on {_OPEN[0].caps.adapter}",
                code="in_use",
                hint="Close them first.",
            )
        before = select_adapter(number)
        try:
            chosen_adapter()
        except DeviceError:
            select_adapter(before)
            raise


@defer_interrupts
def acquire(limits: Mapping[str, int]) -> Gpu:
    """Return the newest device with at least these limits, or a new one. Call `release` when done."""
    with _LOCK:
        for gpu in [gpu for gpu in _OPEN if not gpu.alive()]:
            _OPEN.remove(gpu)
            chosen_adapter.cache_clear()  # it may be lost with its device
        for gpu in reversed(_OPEN):
            if gpu.satisfies(limits):
                gpu.users += 1
                return gpu
        # At least the limits that the specification guarantees: they cost nothing and let programs share the device.
        gpu = Gpu({name: max(value, SPEC_LIMITS.get(name, 0)) for name, value in limits.items()})
        gpu.users = 1
        _OPEN.append(gpu)
        return gpu


@after_fork_in_child
def _forget_devices() -> None:
    """Start without devices: those of the parent are its own, and its threads hold no lock here."""
    global _LOCK
    _LOCK = threading.Lock()
    _OPEN.clear()
    chosen_adapter.cache_clear()

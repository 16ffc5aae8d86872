"""The adapter and the device: the only place that opens them.

Devices are shared: programs whose needs fit the same limits use one device and its pipelines. The last one to leave
closes it. Whatever is done on a device is done by one thread at a time, under its lock; many may wait for results.

A device can be lost at any time, and a submit to a lost one aborts the process. So every submit and every look at
mapped memory asks first, under the lock that destroying the device takes too.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import wgpu

from ..errors import DeviceError, DeviceLost, OutOfMemory
from ..wgsl import Caps, Kernel, render
from ..wgsl.kernel import SYM_SLOTS
from ..wgsl.uniforms import SLOT_BYTES
from .choosing import VARIABLE, open_adapter
from .counters import Counters
from .forks import in_children, keep_in_children
from .interrupts import uninterrupted
from .ledger import note_buffer
from .loss import reason_of_loss
from .observing import Observer
from .recording import Copy, Row, Stage, recorder
from .restrictions import restricted
from .spec_limits import SPEC_LIMITS

logger = logging.getLogger("webpte")
T = TypeVar("T")
Phase = Callable[[str], None]  # is told what is done from now on

SYM_BYTES = SYM_SLOTS * 16
_USED_FEATURES = ("shader-f16", "subgroup", "timestamp-query")


def typed(function: Callable[..., T]) -> Callable[..., T]:
    """Turn what wgpu raises in a method of `Gpu` into a DeviceError."""
    action = _action(function)

    @functools.wraps(function)
    def call(gpu: Gpu, *args: Any, **kwargs: Any) -> T:
        try:
            return function(gpu, *args, **kwargs)
        except (wgpu.GPUError, RuntimeError) as error:
            raise gpu.refusal(action, error) from error

    return call


def guarded(function: Callable[..., T]) -> Callable[..., T]:
    """The same for what one user at a time may do."""
    action = _action(function)

    @functools.wraps(function)
    def call(gpu: Gpu, *args: Any, **kwargs: Any) -> T:
        try:
            with gpu.lock:
                return function(gpu, *args, **kwargs)
        except (wgpu.GPUError, RuntimeError) as error:
            raise gpu.refusal(action, error) from error

    return call


def _action(function: Callable[..., object]) -> str:
    return function.__name__.strip("_").replace("_", " ")


@functools.cache
@uninterrupted
def chosen_adapter() -> Any:
    """The adapter that programs are run on."""
    try:
        adapter = open_adapter()
    except DeviceError:
        raise
    except Exception as error:
        raise DeviceError(
            f"no WebGPU adapter: {error}. Install a Vulkan, Metal or DX12 driver; "
            "on Debian without a GPU: apt-get install libvulkan1 mesa-vulkan-drivers."
        ) from error
    keep_in_children(adapter)
    return adapter


def adapter_caps() -> Caps:
    """What the machine's adapter could offer, as far as WEBPTE_DEVICE lets us use it."""
    adapter = chosen_adapter()
    info = adapter.info
    name = f"{info['device']} ({info['backend_type']}, {info['description']})"
    features = frozenset(f for f in _USED_FEATURES if f in adapter.features)
    kind = "cpu" if info["adapter_type"] == "CPU" else "gpu"
    subgroup = _subgroup(info) if "subgroup" in features else 0
    return restricted(Caps(dict(adapter.limits), features, name, kind, subgroup))


def _subgroup(info: Mapping[str, Any]) -> int:
    """How many invocations a subgroup has at least."""
    # llvmpipe promises no more than the standard does, but its name says how many bits its vectors have.
    vectors = re.search(r"llvmpipe .*\b(\d+) bits", info["device"])
    return int(vectors[1]) // 32 if vectors else int(info.get("subgroup_min_size", 4))


class Gpu:
    """An open device with its pipelines, counted by its users."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        adapter = chosen_adapter()
        self.caps = adapter_caps()
        self.adapter_type: str = adapter.info["adapter_type"]
        wanted = {n: v for n, v in {**SPEC_LIMITS, **limits}.items() if n in adapter.limits}
        try:
            self.device = adapter.request_device_sync(
                label="webpte", required_features=sorted(self.caps.features), required_limits=wanted
            )
        except RuntimeError as error:
            raise DeviceError(f"{self.caps.adapter} refused the limits {dict(limits)}: {error}") from error
        keep_in_children(self)
        self.lock = threading.RLock()  # of one user at a time; taken after any lock of a program or method
        self.lost: str | None = None  # why, once somebody has noticed
        self.limits: dict[str, int] = dict(self.device.limits)
        self.counters = Counters()
        self.recorder = recorder(self.device, self.lock)
        self._submitted = 0  # submits, of all users
        self.idle = True  # all of them were waited for
        self.users = 0
        self.device.destroy = _in_turn(self.lock, self.device.destroy)
        self._pipelines: dict[Kernel, Any] = {}
        self._warm: set[Kernel] = set()
        self._spare: tuple[Any, Any, Any] | None = None
        self._layouts: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.uniform_layout = self._create_layout(["uniform", "uniform"])
        logger.info("opened a device of %s", self.caps.adapter)

    def satisfies(self, limits: Mapping[str, int]) -> bool:
        return all(self.limits.get(name, 0) >= value for name, value in limits.items())

    def alive(self) -> bool:
        """Whether the device can still be used; asks it."""
        if self.lost is None:
            try:
                self.recorder.check()
            except (wgpu.GPUError, RuntimeError) as error:
                self.lost = reason_of_loss(self.device, error)
        return self.lost is None

    def check(self) -> None:
        """Raise DeviceLost if the device is gone: what comes next would abort the process."""
        if not self.alive():
            raise self.loss()

    def loss(self) -> DeviceLost:
        return DeviceLost(
            f"the device of {self.caps.adapter} was lost ({self.lost}), with the state that methods had on it. "
            "program.recover() opens another and loads its methods again; state begins as the file says."
        )

    def refusal(self, action: str, error: Exception) -> DeviceError:
        """What an error of wgpu means to a caller."""
        if isinstance(error, wgpu.GPUOutOfMemoryError):
            return OutOfMemory(
                f"the device had no memory left to {action}: {error}. Tell load(..., memory=) what it has."
            )
        return DeviceError(f"the GPU refused to {action}: {error}", code="validation") if self.alive() else self.loss()

    @uninterrupted
    @guarded
    def create_buffer(self, label: str, size: int, usage: int) -> Any:
        self.counters.buffers += 1
        buffer = self.device.create_buffer(label=label, size=size, usage=usage)
        note_buffer(buffer, size)
        return buffer

    @uninterrupted
    @guarded
    def create_bind_group(self, layout: Any, entries: Sequence[tuple[Any, int, int]]) -> Any:
        self.counters.bind_groups += 1
        listed = [
            {"binding": i, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for i, (buffer, offset, size) in enumerate(entries)
        ]
        return self.device.create_bind_group(layout=layout, entries=listed)

    @guarded
    def _create_layout(self, kinds: Sequence[str]) -> Any:
        return self.device.create_bind_group_layout(
            entries=[
                {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for i, kind in enumerate(kinds)
            ]
        )

    @uninterrupted
    @guarded
    def storage_layout(self, reads: int, writes: int) -> tuple[Any, Any]:
        """Bind group layout of the storage bindings, and the pipeline layout around it."""
        found = self._layouts.get((reads, writes))
        if found is None:
            group = self._create_layout(["read-only-storage"] * reads + ["storage"] * writes)
            pipeline = self.device.create_pipeline_layout(bind_group_layouts=[self.uniform_layout, group])
            found = self._layouts[reads, writes] = (group, pipeline)
        return found

    def pipeline(self, kernel: Kernel) -> Any:
        found = self._pipelines.get(kernel)
        return self._compile_kernel(kernel) if found is None else found

    @typed
    def warm_up(self, kernel: Kernel) -> None:
        """Let the driver compile a kernel now: some do so at the first dispatch, for which one of nothing will do."""
        if kernel not in self._warm:
            started = time.perf_counter()
            with self.lock:
                pipeline = self.pipeline(kernel)
                row = Row(pipeline, *self._spare_groups(kernel.reads, kernel.writes), 0, 0, 0)
                self.recorder.enqueue(self.recorder.record([((), self.recorder.prepare([row]))]))
            self.recorder.wait()
            self._warm.add(kernel)
            logger.debug("compiled %s in %.1f ms", kernel.label, (time.perf_counter() - started) * 1e3)

    def _spare_groups(self, reads: int, writes: int) -> tuple[Any, Any]:
        """Bind groups over memory that nobody uses."""
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

    @uninterrupted
    @guarded
    def _compile_kernel(self, kernel: Kernel) -> Any:
        if kernel in self._pipelines:  # another thread was faster
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

    @guarded
    def write(self, buffer: Any, offset: int, data: Any) -> None:
        self.device.queue.write_buffer(buffer, offset, data)

    @guarded
    def submit(self, stages: Sequence[Stage], phase: Phase | None = None, queries: Any = None) -> int:
        """Record copies and compute passes, in order, and submit them together. Gives the number of the submit.

        `phase` is told when all is recorded; `queries` are those of `Recorder.record`.
        """
        counters = self.counters
        for _, rows in stages:
            counters.passes += bool(rows)
            counters.dispatches += len(rows)
        counters.submits += 1
        self._submitted += 1
        self.idle = False
        commands = self.recorder.record(stages, queries)
        if phase is not None:
            phase("submit")
        self.recorder.enqueue(commands)
        return self._submitted

    @uninterrupted
    @guarded
    def clear(self, buffers: Sequence[Any]) -> None:
        """Fill whole buffers with zeros."""
        encoder = self.device.create_command_encoder(label="clear")
        for buffer in buffers:
            encoder.clear_buffer(buffer)
        commands = encoder.finish()
        self.check()
        self.device.queue.submit([commands])

    def read_back(self, buffer: Any, nbytes: int, observer: Observer | None = None) -> bytearray:
        """The first bytes of a buffer that cannot be mapped itself."""
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        staging = self.create_buffer("read back", nbytes, usage)
        stages: list[Stage] = [([Copy(buffer, 0, staging, 0, nbytes)], ())]
        if observer is None:
            return self.read(staging, nbytes, self.submit(stages))
        observer.moved(0, nbytes)
        return self.read(staging, nbytes, observer.submit(self, stages), phase=observer.phase)

    @typed
    def read(
        self, buffer: Any, nbytes: int, number: int = 0, brief: bool = False, phase: Phase | None = None
    ) -> bytearray:
        """The first bytes of a mappable buffer, once the submit of that number is done; see Recorder.map."""
        started = time.perf_counter()
        done = -1
        try:
            if phase is not None:
                phase("wait")
            self.recorder.map(buffer, nbytes, brief)
            if phase is not None:
                phase("read")
            data = self.recorder.take(buffer, nbytes)
            done = number
            return data
        finally:
            with self.lock:
                self.counters.wait_seconds += time.perf_counter() - started
                self.idle = self.idle or done == self._submitted

    @typed
    def wait(self) -> None:
        """Block until the device is idle; frees the queue's staging memory."""
        with self.lock:
            self.check()
            self.device.queue.submit([])
        self.recorder.wait()

    @uninterrupted
    def release(self) -> None:
        with _LOCK:
            self.users -= 1
            if self.users:
                return
            if self in _OPEN:  # a lost one has left already
                _OPEN.remove(self)
        with self.lock:
            self._pipelines.clear()
            self._warm.clear()
            self._spare = None
            self._layouts.clear()
            self.device.destroy()


def _in_turn(lock: threading.RLock, function: Callable[[], None]) -> Callable[[], None]:
    """A device must not go between the moment its user asks whether it is there and the submit."""

    def call() -> None:
        with lock:
            function()

    return call


_OPEN: list[Gpu] = []
_LOCK = threading.Lock()


def use_adapter(number: int) -> None:
    """From now on this process computes on the adapter of that number; not while it computes on another."""
    with _LOCK:
        if any(gpu.alive() for gpu in _OPEN) and os.environ.get(VARIABLE) != str(number):
            raise DeviceError(
                f"adapter {number} is wanted while programs run on {_OPEN[0].caps.adapter}; close them", code="in_use"
            )
        before = os.environ.get(VARIABLE, "")
        os.environ[VARIABLE] = str(number)
        chosen_adapter.cache_clear()
        try:
            chosen_adapter()
        except DeviceError:
            os.environ[VARIABLE] = before
            raise


@uninterrupted
def acquire(limits: Mapping[str, int]) -> Gpu:
    """A device with at least these limits. Pair with `release`."""
    with _LOCK:
        for gpu in [gpu for gpu in _OPEN if not gpu.alive()]:
            _OPEN.remove(gpu)
            chosen_adapter.cache_clear()  # it may have gone with its device
        for gpu in _OPEN:
            if gpu.satisfies(limits):
                gpu.users += 1
                return gpu
        # Never ask for less than the specification guarantees: it costs nothing and lets programs share the device.
        gpu = Gpu({name: max(value, SPEC_LIMITS.get(name, 0)) for name, value in limits.items()})
        gpu.users = 1
        _OPEN.append(gpu)
        return gpu


@in_children
def _forget_devices() -> None:
    """Those of the parent are not ours, and its threads hold no lock here."""
    global _LOCK
    _LOCK = threading.Lock()
    _OPEN.clear()
    chosen_adapter.cache_clear()

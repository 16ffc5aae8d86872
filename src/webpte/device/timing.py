"""Timing: the duration of each dispatch, the measured peak of a device, and the cost of a dispatch and a submit.

Work is submitted with one pass per dispatch. Devices with `timestamp-query` record the begin and the end of a pass.
On other devices every dispatch is submitted and waited for, and the host's clock is used: that includes the round trip.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import wgpu

from ..wgsl import Kernel, Uniforms, grid_for, home_of, u32
from .gpu import Gpu, Phase
from .parameters import Parameters
from .recording import DispatchCommand, Stage, timestamp_period
from .weights import USAGE

Interval = tuple[int, int]  # begin and end, in nanoseconds of `time.perf_counter_ns`
TIMESTAMP_FEATURE = "timestamp-query"
MAX_QUERIES = 4096  # in the largest set WebGPU allows
MAX_PASSES = MAX_QUERIES // 2


@dataclass(frozen=True)
class _Stamped:
    """Passes whose timestamps are still on the device."""

    began: int  # when the host began to submit them
    queries: Any
    passes: int


class DispatchClock:
    """Submits work with every dispatch timed, which takes longer. Other users of the device are not affected."""

    def __init__(self, gpu: Gpu) -> None:
        self.stamps = TIMESTAMP_FEATURE in gpu.caps.features
        self.gpu = gpu
        self._device = gpu.device
        self._intervals: list[Interval] = []
        self._stamped: list[_Stamped] = []
        self._sets: list[Any] = []  # query sets to reuse

    def submit(self, stages: Sequence[Stage], phase: Phase | None = None) -> int:
        """Submit as `Gpu.submit` does, and return the number of the last submit."""
        single = [stage for several in stages for stage in one_dispatch_per_pass(several)]
        if not self.stamps:
            return self._wait_for_each(single, phase)
        number = 0
        for first in range(0, len(single), MAX_PASSES):
            batch = single[first : first + MAX_PASSES]
            queries = (
                self._sets.pop() if self._sets else self._device.create_query_set(type="timestamp", count=MAX_QUERIES)
            )
            self._stamped.append(
                _Stamped(time.perf_counter_ns(), queries, sum(bool(dispatches) for _, dispatches in batch))
            )
            number = self.gpu.submit(batch, phase, queries)
        return number

    def _wait_for_each(self, stages: Sequence[Stage], phase: Phase | None) -> int:
        gpu, number = self.gpu, 0
        with gpu.lock:  # else the wait would include work that other threads submit
            for stage in stages:
                gpu.recorder.wait()
                began = time.perf_counter_ns()
                number = gpu.submit([stage], phase)
                if phase is not None:
                    phase("wait")
                gpu.recorder.wait()
                if stage[1]:
                    self._intervals.append((began, time.perf_counter_ns()))
        return number

    def take(self) -> list[Interval]:
        """Return the intervals of all dispatches since the last call, in order. Wait for their results first."""
        done = time.perf_counter_ns()
        raw = [(stamped, self._resolve(stamped)) for stamped in self._stamped if stamped.passes]
        low = max((stamped.began - int(times[0, 0]) for stamped, times in raw), default=0)
        high = done - max((int(times[-1, 1]) for _, times in raw), default=done)
        # The device began after the host's submit and ended before the host noticed. If the clocks are the same, an
        # offset of zero satisfies that; else the middle of the possible range has the smallest maximum error.
        offset = 0 if low <= 0 <= high else (low + high) // 2
        taken = self._intervals + [(int(a) + offset, int(b) + offset) for _, times in raw for a, b in times]
        self._sets += [stamped.queries for stamped in self._stamped]
        self._intervals, self._stamped = [], []
        return taken

    def _resolve(self, stamped: _Stamped) -> np.ndarray[Any, Any]:
        """Return the timestamps of each pass, (passes, 2), in nanoseconds of the device's clock."""
        nbytes = stamped.passes * 16
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        buffer = self._device.create_buffer(label="timestamps", size=nbytes, usage=usage)
        encoder = self._device.create_command_encoder()
        encoder.resolve_query_set(stamped.queries, 0, 2 * stamped.passes, buffer, 0)
        with self.gpu.lock:
            self.gpu.check()
            self._device.queue.submit([encoder.finish()])
            data = self._device.queue.read_buffer(buffer, 0, nbytes)
        ticks = np.frombuffer(data, np.uint64).reshape(-1, 2)
        period = timestamp_period(self._device)
        return ticks.astype(np.int64) if period == 1.0 else (ticks * period).astype(np.int64)


def one_dispatch_per_pass(stage: Stage) -> Iterator[Stage]:
    """Yield the same work with one dispatch per pass. A prepared dispatch omits what the previous one has set."""
    copies, dispatches = stage
    if copies:
        yield copies, ()
    pipeline = uniforms = storage = None
    for dispatch in dispatches:
        pipeline = dispatch.pipeline if dispatch.pipeline is not None else pipeline
        uniforms = dispatch.uniforms if dispatch.uniforms is not None else uniforms
        storage = dispatch.storage if dispatch.storage is not None else storage
        yield (), [DispatchCommand(pipeline, uniforms, storage, *dispatch[3:])]


KERNEL_FOLDER = os.path.dirname(os.path.abspath(__file__))
PEAK_WORKGROUP = 64
COPY_BYTES = 32 << 20  # larger than caches, smaller than any device's binding limit
FMA_THREADS = 1 << 14
FMA_STEPS = 256
FMA_FLOPS_PER_STEP = 8 * 4 * 2  # eight sums of vec4, each a multiplication and an addition
PEAK_ROUNDS = 6  # the fastest counts; the first may compile


class PeakCopyParams(Uniforms):
    """No parameters except `threads`."""


class PeakFmaParams(Uniforms):
    steps: u32


PEAK_COPY = Kernel(
    home=home_of(KERNEL_FOLDER),
    template="peak_copy.wgsl",
    flags=(),
    params=PeakCopyParams.wgsl,
    workgroup=PEAK_WORKGROUP,
    reads=1,
    writes=1,
    arrays=(("x", "read"), ("y", "read_write")),
)
PEAK_FMA = Kernel(
    home=home_of(KERNEL_FOLDER),
    template="peak_fma.wgsl",
    flags=(),
    params=PeakFmaParams.wgsl,
    workgroup=PEAK_WORKGROUP,
    reads=1,
    writes=1,
    arrays=(("x", "read"), ("y", "read_write")),
)


@dataclass(frozen=True)
class Peak:
    """The measured peak rates of a device."""

    bytes_per_second: float  # read and written
    flops_per_second: float  # f32


def measure_peak(gpu: Gpu) -> Peak:
    """Return the rates of a copy and of fused multiply-adds in registers. Takes a fraction of a second."""
    copy = _seconds(gpu, PEAK_COPY, PeakCopyParams(), COPY_BYTES // 16, COPY_BYTES)
    fma = _seconds(gpu, PEAK_FMA, PeakFmaParams(steps=FMA_STEPS), FMA_THREADS, FMA_THREADS * 16)
    return Peak(2 * COPY_BYTES / copy, FMA_THREADS * FMA_STEPS * FMA_FLOPS_PER_STEP / fma)


def _seconds(gpu: Gpu, kernel: Kernel, params: Uniforms, threads: int, nbytes: int) -> float:
    """Return the duration of the fastest of several runs."""
    with _probe_dispatch(gpu, kernel, params, threads, nbytes) as dispatch:
        clock = DispatchClock(gpu)
        for _ in range(PEAK_ROUNDS):
            clock.submit([((), gpu.recorder.prepare([dispatch]))])
            gpu.wait()
        return min(end - begin for begin, end in clock.take()) / 1e9


@contextmanager
def _probe_dispatch(gpu: Gpu, kernel: Kernel, params: Uniforms, threads: int, nbytes: int) -> Iterator[DispatchCommand]:
    """Yield a dispatch from one buffer to another."""
    parameters = Parameters(gpu)
    source, target = (gpu.create_buffer(name, nbytes, USAGE) for name in ("peak source", "peak target"))
    try:
        (uniforms,) = parameters.groups([params.pack(threads)])
        layout, _ = gpu.storage_layout(kernel.reads, kernel.writes)
        storage = gpu.create_bind_group(layout, [(source, 0, nbytes), (target, 0, nbytes)])
        grid = grid_for(threads, kernel.workgroup, gpu.caps.workgroups_per_dimension)
        yield DispatchCommand(gpu.pipeline(kernel), uniforms, storage, *grid)
    finally:
        source.destroy()
        target.destroy()
        parameters.close()


MANY_DISPATCHES = 1000
COST_ROUNDS = 20


@dataclass(frozen=True)
class DispatchCost:
    """The seconds of each round: a submit of one small dispatch with the wait for it, and of MANY_DISPATCHES."""

    single: tuple[float, ...]
    many: tuple[float, ...]

    @property
    def per_dispatch(self) -> float:
        """Return the median cost of a further dispatch in a submit."""
        return (median(self.many) - median(self.single)) / (MANY_DISPATCHES - 1)


def measure_dispatch_cost(gpu: Gpu) -> DispatchCost:
    """Measure submits by the host's clock. Every dispatch writes the same buffer, so it waits for the previous one."""
    with _probe_dispatch(gpu, PEAK_COPY, PeakCopyParams(), PEAK_WORKGROUP, PEAK_WORKGROUP * 16) as dispatch:

        def seconds(count: int) -> float:
            began = time.perf_counter()
            gpu.submit([((), gpu.recorder.prepare([dispatch] * count))])
            gpu.wait()
            return time.perf_counter() - began

        seconds(1)  # compiles
        single = tuple(seconds(1) for _ in range(COST_ROUNDS))
        return DispatchCost(single, tuple(seconds(MANY_DISPATCHES) for _ in range(COST_ROUNDS)))

"""How long each dispatch takes: work submitted with a pass for every dispatch, and a look at the clock.

Devices with `timestamp-query` stamp the beginning and the end of a pass themselves. Where there is none, every dispatch
is submitted and waited for, and the host's clock tells: that includes the way to the device and back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import wgpu

from .gpu import Gpu, Phase
from .recording import Row, Stage, timestamp_period

Interval = tuple[int, int]  # begin and end, in nanoseconds of `time.perf_counter_ns`
FEATURE = "timestamp-query"
QUERIES = 4096  # in the largest set WebGPU allows
PASSES = QUERIES // 2


@dataclass(frozen=True)
class _Stamped:
    """Passes whose stamps are still on the device."""

    began: int  # when the host began to submit them
    queries: Any
    passes: int


class DispatchClock:
    """Submits what it is given with every dispatch timed, which takes longer. Others on the device do not notice."""

    def __init__(self, gpu: Gpu) -> None:
        self.stamps = FEATURE in gpu.caps.features
        self.gpu = gpu
        self._device = gpu.device
        self._intervals: list[Interval] = []
        self._stamped: list[_Stamped] = []
        self._sets: list[Any] = []  # query sets, used again

    def submit(self, stages: Sequence[Stage], phase: Phase | None = None) -> int:
        """As `Gpu.submit`: the number of the last submit."""
        single = [stage for several in stages for stage in _one_row_each(several)]
        if not self.stamps:
            return self._wait_for_each(single, phase)
        number = 0
        for first in range(0, len(single), PASSES):
            batch = single[first : first + PASSES]
            queries = self._sets.pop() if self._sets else self._device.create_query_set(type="timestamp", count=QUERIES)
            self._stamped.append(_Stamped(time.perf_counter_ns(), queries, sum(bool(rows) for _, rows in batch)))
            number = self.gpu.submit(batch, phase, queries)
        return number

    def _wait_for_each(self, stages: Sequence[Stage], phase: Phase | None) -> int:
        gpu, number = self.gpu, 0
        with gpu.lock:  # what others submitted meanwhile would be waited for too
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
        """The intervals of all dispatches since the last call, in order. Their results must have been waited for."""
        done = time.perf_counter_ns()
        raw = [(stamped, self._resolve(stamped)) for stamped in self._stamped if stamped.passes]
        low = max((stamped.began - int(times[0, 0]) for stamped, times in raw), default=0)
        high = done - max((int(times[-1, 1]) for _, times in raw), default=done)
        # The device began after the host's submit and ended before the host knew. Where the clocks are the same, zero
        # satisfies that; else the middle of what is possible is wrong by the least.
        offset = 0 if low <= 0 <= high else (low + high) // 2
        taken = self._intervals + [(int(a) + offset, int(b) + offset) for _, times in raw for a, b in times]
        self._sets += [stamped.queries for stamped in self._stamped]
        self._intervals, self._stamped = [], []
        return taken

    def _resolve(self, stamped: _Stamped) -> np.ndarray[Any, Any]:
        """The stamps of each pass, (passes, 2), in nanoseconds of the device's clock."""
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


def _one_row_each(stage: Stage) -> Iterator[Stage]:
    """The same work with one dispatch per pass. Prepared rows leave out what the row before has set."""
    copies, rows = stage
    if copies:
        yield copies, ()
    pipeline = uniforms = storage = None
    for row in rows:
        pipeline = row.pipeline if row.pipeline is not None else pipeline
        uniforms = row.uniforms if row.uniforms is not None else uniforms
        storage = row.storage if row.storage is not None else storage
        yield (), [Row(pipeline, uniforms, storage, *row[3:])]

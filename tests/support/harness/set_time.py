"""A device on which every pass takes a set time, whatever it computes: what the host costs beside it shows.

All calls are made and submitted, but no dispatch has a workgroup. So results are those of memory as it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from webpte.device import Gpu
from webpte.device.recording import DispatchCommand, NativeRecorder, Stage


class SetTimeSubmit(NamedTuple):
    """When the device begins and ends a submit."""

    start: float
    end: float


class SetTimeRecorder(NativeRecorder):
    """Records passes of `dispatches` dispatches, each of which takes `seconds` after those before it."""

    def __init__(self, gpu: Gpu, seconds: float, dispatches: int) -> None:
        super().__init__(gpu.device, gpu.lock)
        self._seconds = seconds
        self._dispatches = dispatches
        self._empty: dict[int, tuple[Sequence[DispatchCommand], list[DispatchCommand]]] = {}
        self._passes = 0  # of the latest command buffer
        self._targets: list[int] = []  # the buffers that it copies into
        self._done: dict[int, float] = {}  # when the copies into a buffer are done
        self.submits: list[SetTimeSubmit] = []

    def record(self, stages: Sequence[Stage], queries: Any = None) -> Any:
        self._passes = sum(bool(dispatches) for _, dispatches in stages)
        self._targets = [id(copy.target) for copies, _ in stages for copy in copies]
        return super().record([(copies, self._without_work(dispatches)) for copies, dispatches in stages], queries)

    def _without_work(self, dispatches: Sequence[DispatchCommand]) -> Sequence[DispatchCommand]:
        if not dispatches:
            return dispatches
        if id(dispatches) not in self._empty:
            empty = [dispatch._replace(x=0, y=0, z=0) for dispatch in dispatches]
            repeated = empty * -(-self._dispatches // len(empty))
            self._empty[id(dispatches)] = (dispatches, repeated[: self._dispatches])
        return self._empty[id(dispatches)][1]

    def enqueue(self, commands: Any) -> int:
        number = super().enqueue(commands)
        start = max(time.perf_counter(), self.submits[-1].end if self.submits else 0.0)
        self.submits.append(SetTimeSubmit(start, start + self._seconds * self._passes))
        self._done |= dict.fromkeys(self._targets, self.submits[-1].end)
        return number

    def map(self, buffer: Any, nbytes: int, brief: int | None = None) -> None:
        super().map(buffer, nbytes, brief)
        time.sleep(max(0.0, self._done[id(buffer)] - time.perf_counter()))

    def busy(self, first: int) -> float:
        """Return the share of the time since a submit began in which the device was not waiting for the host."""
        submits = self.submits[first:]
        return sum(submit.end - submit.start for submit in submits) / (submits[-1].end - submits[0].start)

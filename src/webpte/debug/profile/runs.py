"""Observe calls of a method, as they usually run and with every dispatch timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...device import Gpu, Observer
from ...device.recording import Stage
from ...device.timing import DispatchClock, Interval
from ...plan import CallValues, Schedule
from ...runtime import Method


@dataclass(frozen=True)
class HostSpan:
    """A named interval of the host's time, in nanoseconds of `time.perf_counter_ns`."""

    name: str
    begin: int
    end: int

    @property
    def duration(self) -> int:
        return self.end - self.begin


def times_by_name(spans: Sequence[HostSpan]) -> dict[str, int]:
    """Return nanoseconds by name, of spans that do not overlap."""
    totals: dict[str, int] = {}
    for span in spans:
        totals[span.name] = totals.get(span.name, 0) + span.duration
    return totals


@dataclass
class Run:
    """One observed call of the method."""

    wall: HostSpan
    spans: list[HostSpan]  # of the host, in order
    schedules: list[Schedule] = field(default_factory=list)  # of each segment, in order
    intervals: list[Interval] = field(default_factory=list)  # of each dispatch, if timed
    live: CallValues | None = None  # at the end of the call, if anything ran on the device
    submits: int = 0
    to_device: int = 0  # bytes
    to_host: int = 0

    @property
    def device(self) -> HostSpan | None:
        """Return the span from the start of the first dispatch to the end of the last."""
        if not self.intervals:
            return None
        return HostSpan("device", min(a for a, _ in self.intervals), max(b for _, b in self.intervals))

    @property
    def busy(self) -> int:
        return sum(end - begin for begin, end in self.intervals)


class ObservedMethod:
    """A method whose calls are observed."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.clock: DispatchClock | None = None  # of the device, once a call has submitted something

    @property
    def stamps(self) -> bool:
        """Return whether the device has timestamp queries for the dispatches of a timed call."""
        return self.clock is not None and self.clock.stamps

    def run(self, args: Sequence[Any]) -> Run:
        """Run a call as usual and record the host's spans."""
        return self._run(args, timed=False)

    def run_timed(self, args: Sequence[Any]) -> Run:
        """Run a call with a pass for each dispatch, which takes longer."""
        return self._run(args, timed=True)

    def _run(self, args: Sequence[Any], timed: bool) -> Run:
        observer = CallObserver(self.clock, timed)
        with self._method.observed(observer):
            begin = time.perf_counter_ns()
            self._method.run(args)
            end = time.perf_counter_ns()
            self.clock = observer.clock
            intervals = self.clock.take() if self.clock is not None else []
        return Run(
            wall=HostSpan(self._method.name, begin, end),
            spans=observer.spans,
            schedules=observer.schedules,
            intervals=intervals,
            live=observer.live,
            submits=observer.submits,
            to_device=observer.to_device,
            to_host=observer.to_host,
        )


class CallObserver(Observer):
    """Records what a call does; if `timed`, with a clock for its dispatches."""

    def __init__(self, clock: DispatchClock | None = None, timed: bool = False) -> None:
        self.spans: list[HostSpan] = []
        self.schedules: list[Schedule] = []
        self.live: CallValues | None = None
        self.submits = self.to_device = self.to_host = 0
        self.clock = clock
        self._timed = timed
        self._name, self._began = "", 0

    def phase(self, name: str) -> None:
        now = time.perf_counter_ns()
        if self._name:
            self.spans.append(HostSpan(self._name, self._began, now))
        self._name, self._began = name, now

    def prepared(self, schedule: Schedule, live: CallValues) -> None:
        self.schedules.append(schedule)
        self.live = live

    def submit(self, gpu: Gpu, stages: Sequence[Stage]) -> int:
        self.submits += 1
        self.clock = self.clock or DispatchClock(gpu)
        return self.clock.submit(stages, self.phase) if self._timed else gpu.submit(stages, self.phase)

    def moved(self, to_device: int, to_host: int) -> None:
        self.to_device += to_device
        self.to_host += to_host

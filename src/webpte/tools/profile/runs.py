"""Calls of a method under observation: as they always run, and with every dispatch timed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...device import Counters, Gpu, Session
from ...device.timing import Interval, TimedRecorder, timed
from ...plan import Live, Schedule, Scheduler, Segment
from ...runtime import Method
from .spans import Span, Target, watched


@dataclass
class Run:
    """One call of the method."""

    wall: Span
    spans: list[Span]
    schedules: list[Schedule]  # of each submit, in order
    counters: Counters  # what was done on the device
    intervals: list[Interval] = field(default_factory=list)  # of each dispatch, if they were timed
    live: Live | None = None  # what the call had in the end, if anything ran on the device

    @property
    def device(self) -> Span | None:
        """From the first dispatch's beginning to the last one's end."""
        if not self.intervals:
            return None
        return Span("device", min(a for a, _ in self.intervals), max(b for _, b in self.intervals))

    @property
    def busy(self) -> int:
        return sum(end - begin for begin, end in self.intervals)


class Observed:
    """A method whose calls are watched."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._session: Session | None = method._session
        self.gpu: Gpu | None = method._gpu if self._session is not None else None
        self.stamps = False  # whether the device has stamped the dispatches of a timed call itself

    def run(self, args: Sequence[Any]) -> Run:
        """A call as it always runs, with the host's spans."""
        return self._run(args, None)

    def run_timed(self, args: Sequence[Any]) -> Run:
        """A call with a pass for each dispatch, which takes longer."""
        if self.gpu is None:
            return self._run(args, None)
        with timed(self.gpu) as recorder:
            self.stamps = recorder.stamps
            return self._run(args, recorder)

    def _run(self, args: Sequence[Any], recorder: TimedRecorder | None) -> Run:
        spans: list[Span] = []
        prepared: list[tuple[Schedule, Live]] = []
        with ExitStack() as stack:
            stack.enter_context(watched(self._targets(recorder), spans))
            stack.enter_context(_noting_schedules(self._method.scheduler, prepared))
            before = self._method.counters.snapshot()
            begin = time.perf_counter_ns()
            self._method.run(args)
            wall = Span(self._method.name, begin, time.perf_counter_ns())
            done = self._method.counters.since(before)
        intervals = recorder.take() if recorder is not None else []
        return Run(wall, spans, [s for s, _ in prepared], done, intervals, prepared[-1][1] if prepared else None)

    def _targets(self, recorder: TimedRecorder | None) -> list[Target]:
        method = self._method
        targets: list[Target] = [
            (method._executor.borders, "enter", "check inputs"),
            (method._executor, "_run_on_host", "CPU kernels"),
            (method._executor.borders, "uploads", "convert inputs"),
            (method._executor.borders, "leave", "convert outputs"),
            (method.scheduler, "prepare", "lower"),
        ]
        if self.gpu is not None and self._session is not None:
            inner = recorder.inner if recorder is not None else self.gpu.recorder
            targets += [
                (self._session.workspace, "realise", "bind"),
                (self.gpu, "write", "write"),
                (self.gpu, "submit", "record"),
                (inner, "_enqueue", "submit"),
                (self.gpu, "read", "read"),
                (inner, "_map", "wait"),
            ]
        return targets


@contextmanager
def _noting_schedules(scheduler: Scheduler, prepared: list[tuple[Schedule, Live]]) -> Iterator[None]:
    prepare = scheduler.prepare

    def noted(segment: Segment, live: Live) -> tuple[Schedule, dict[int, int]]:
        schedule, slots = prepare(segment, live)
        prepared.append((schedule, live))
        return schedule, slots

    scheduler.prepare = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        scheduler.prepare = prepare  # type: ignore[method-assign]

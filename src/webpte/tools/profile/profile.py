"""Where the time of a call goes: on the host by what it does, on the device by op, kernel and module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...device.peak import Peak, measure_peak
from ...errors import InputError
from ...progress import OnProgress, Progress, ignore
from ...runtime import Method
from ..compare.reports import label
from ..timing import spread
from .modules import modules_of
from .runs import Observed, Run
from .spans import times_by_name
from .work import Work


@dataclass(frozen=True)
class DispatchTime:
    """One dispatch of the timed call. Times are nanoseconds since the call began."""

    step: int  # of the graph: the call it belongs to
    op: str
    kernel: str
    origin: str
    module: str
    shapes: str
    grid: tuple[int, ...]
    begin: int
    end: int
    bytes: int
    flops: int | None  # of the whole call, with its first dispatch

    @property
    def duration(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Profile:
    """A method's calls, measured."""

    plain: list[Run]  # as they always run
    timed: list[Run]  # with every dispatch timed
    dispatches: list[DispatchTime]  # of the fastest timed call
    peak: Peak | None
    stamps: bool  # whether the device stamped the dispatches itself
    cpu_calls: dict[str, int]  # calls that run on the CPU, by name

    @property
    def fastest(self) -> Run:
        return min(self.timed, key=lambda run: run.wall.duration)

    def data(self) -> dict[str, Any]:
        """Plain data; all times in seconds."""
        plain = min(self.plain, key=lambda run: run.wall.duration)
        return {
            "timestamps": self.stamps,
            "calls": spread([run.wall.duration / 1e9 for run in self.plain]),
            "timed_calls": spread([run.wall.duration / 1e9 for run in self.timed]),
            "host": _host(plain),
            "submits": plain.submits,
            "bytes_to_device": plain.to_device,
            "bytes_to_host": plain.to_host,
            "cpu_calls": self.cpu_calls,
            "timed_call": attribution(self.fastest),
            "ops": self._grouped(lambda d: d.op),
            "kernels": self._grouped(lambda d: d.kernel, products=False),
            "modules": self._grouped(lambda d: d.module),
            "origins": self._grouped(lambda d: d.origin.split(",")[0]),
            "peak": None if self.peak is None else asdict(self.peak),
            "dispatches": [
                {**asdict(d), "begin": d.begin / 1e9, "end": d.end / 1e9, "seconds": d.duration / 1e9}
                for d in self.dispatches
            ],
        }

    def _grouped(self, key: Callable[[DispatchTime], str], products: bool = True) -> list[dict[str, Any]]:
        """Sums over dispatches with the same key, the longest first."""
        groups: dict[str, list[DispatchTime]] = {}
        for dispatch in self.dispatches:
            groups.setdefault(key(dispatch), []).append(dispatch)
        busy = sum(d.duration for d in self.dispatches) or 1
        rows = []
        for name, members in groups.items():
            took = sum(d.duration for d in members)
            flops = sum(d.flops or 0 for d in members) if products else 0
            rows.append(
                {
                    "name": name,
                    "calls": len({d.step for d in members}),
                    "dispatches": len(members),
                    "seconds": took / 1e9,
                    "share": took / busy,
                    "bytes": sum(d.bytes for d in members),
                    "flops": flops or None,
                    "bytes_per_second": sum(d.bytes for d in members) / max(took, 1) * 1e9,
                    "flops_per_second": flops / max(took, 1) * 1e9 if flops else None,
                }
            )
        return sorted(rows, key=lambda row: -row["seconds"])


def profile(
    method: Method, args: Sequence[Any], repeat: int = 5, peak: bool = True, progress: OnProgress = ignore
) -> Profile:
    """Call a method `repeat` times as it always runs and `repeat` times with every dispatch timed.

    All calls have the same arguments; state carries over. The first calls of either kind are not counted.
    """
    if repeat < 1:
        raise InputError(f"repeat is {repeat}; at least one call has to be timed")
    modules = modules_of(method.planner)  # before the calls: it lowers at the bound
    observed = Observed(method)
    total = 2 * (repeat + 1)

    def several(run: Callable[[Sequence[Any]], Run], first: int) -> Iterator[Run]:
        for number in range(repeat + 1):
            progress(Progress("profile", first + number, total, "calls"))
            done = run(args)
            if number:
                yield done

    plain = list(several(observed.run, 0))
    timed = list(several(observed.run_timed, repeat + 1))
    found = Profile(
        plain,
        timed,
        _dispatches(method, min(timed, key=lambda run: run.wall.duration), modules),
        measure_peak(observed.clock.gpu) if peak and observed.clock is not None else None,
        observed.stamps,
        method.plan.cpu_calls,
    )
    progress(Progress("profile", total, total, "calls"))
    return found


def _dispatches(method: Method, run: Run, modules: dict[int, str]) -> list[DispatchTime]:
    """The intervals of a timed call, each with what was dispatched."""
    if run.live is None:
        return []
    graph, work = method.plan.graph, Work(method.plan, run.schedules, run.live)
    found: list[DispatchTime] = []
    intervals = iter(run.intervals)
    for schedule in run.schedules:
        for step, lowered in zip(schedule.segment.steps, schedule.calls, strict=True):
            call = graph.call(step)
            for number, dispatch in enumerate(lowered.dispatches):
                begin, end = next(intervals)
                found.append(
                    DispatchTime(
                        step,
                        label(call, graph),
                        dispatch.kernel.label,
                        str(call.origin),
                        modules.get(step, ""),
                        work.shapes(call),
                        dispatch.grid,
                        begin - run.wall.begin,
                        end - run.wall.begin,
                        work.bytes(lowered, dispatch),
                        work.flops(call) if number == 0 else None,
                    )
                )
    assert next(intervals, None) is None, "every interval belongs to a dispatch"
    return found


def _host(run: Run) -> dict[str, Any]:
    """What the host did in a call, by name; the rest is Python between those."""
    wall = run.wall.duration
    own = times_by_name(run.spans)
    return {
        "seconds": wall / 1e9,
        "spans": [
            {"name": n, "seconds": t / 1e9, "share": t / wall} for n, t in sorted(own.items(), key=lambda i: -i[1])
        ],
        "rest": (wall - sum(own.values())) / 1e9,
    }


def attribution(run: Run) -> dict[str, Any]:
    """A timed call's wall time, divided: no nanosecond counts twice, and what has no name is the rest."""
    wall, device = run.wall.duration, run.device
    own = times_by_name(run.spans)
    waited = own.pop("wait", 0)
    waits = [span for span in run.spans if span.name == "wait"]
    early = late = inside = busy = 0
    if device is not None:
        early = sum(max(0, min(w.end, device.begin) - w.begin) for w in waits)
        inside = sum(_overlap(w.begin, w.end, [(device.begin, device.end)]) for w in waits)
        busy = sum(_overlap(w.begin, w.end, run.intervals) for w in waits)
        late = waited - early - inside
    parts = {
        "host": sum(own.values()),
        "until the first dispatch": early,
        "dispatches": busy,
        "between dispatches": inside - busy,
        "after the last": late,
    }
    named = sum(parts.values())
    return {
        "seconds": wall / 1e9,
        "device_seconds": 0.0 if device is None else device.duration / 1e9,
        "busy_seconds": run.busy / 1e9,
        "between_seconds": 0.0 if device is None else (device.duration - run.busy) / 1e9,
        "parts": {name: took / 1e9 for name, took in parts.items()},
        "rest": (wall - named) / 1e9,
        "attributed": named / wall,
    }


def _overlap(begin: int, end: int, intervals: Sequence[tuple[int, int]]) -> int:
    return sum(max(0, min(end, b) - max(begin, a)) for a, b in intervals)

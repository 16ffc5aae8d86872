"""Measure where the time of a call goes: on the host by activity, on the device by op, kernel and module.

A timed call can be written as a Chrome JSON trace, which Perfetto and chrome://tracing open. The trace has two
processes, host and device. Slices of a track nest, and times are microseconds from the beginning of the call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, TypedDict

from ...device.timing import Peak, measure_peak
from ...errors import InputError
from ...partial_files import not_writable
from ...plan import CallWork, Planner
from ...progress import OnProgress, Progress, ignore
from ...runtime import Method, load
from ...runtime.checks import check_method_name
from ...typing import PathLike
from ..compare.reports import label
from ..inputs import check_specs, make_inputs
from ..report import method_data
from ..report.calls import order_of
from ..run import Spread, spread
from .runs import HostSpan, ObservedMethod, Run, times_by_name


def modules_of(planner: Planner) -> dict[int, str]:
    """Return step of the graph -> "block 3 of 30", or its place among the blocks.

    Files do not name modules; equal blocks of calls stand in for layers.
    """
    steps = order_of(planner.plan.graph, planner.plan).steps
    groups = method_data(planner.plan.graph, planner, None)["repeats"]
    labels: dict[int, str] = {}  # row -> label
    for number, blocks in enumerate(groups):
        kind = f" of kind {number + 1}" if len(groups) > 1 else ""
        for index, block in enumerate(blocks):
            rows = range(block["first"], block["first"] + block["calls"])
            labels.update(dict.fromkeys(rows, f"block {index + 1} of {len(blocks)}{kind}"))
    place = "before the blocks" if groups else "the whole method"
    named: dict[int, str] = {}
    for row, step in enumerate(steps):
        if row in labels:
            place = "after the blocks" if row >= max(labels) else "between the blocks"
        named[step] = labels.get(row, place)
    return named


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


class HostSpanReport(TypedDict):
    """Time of the host in one activity."""

    name: str
    seconds: float
    share: float


class HostReport(TypedDict):
    """Time of the host in a call, by activity."""

    seconds: float
    spans: list[HostSpanReport]
    rest: float


class Attribution(TypedDict):
    """The wall time of a timed call in parts that do not overlap."""

    seconds: float
    device_seconds: float
    busy_seconds: float
    between_seconds: float
    parts: dict[str, float]
    rest: float
    attributed: Annotated[float, "share of the call that has a name"]


class DispatchGroup(TypedDict):
    """Sums over the dispatches of an op, kernel, module or origin."""

    name: str
    calls: int
    dispatches: int
    seconds: float
    share: Annotated[float, "of all dispatches"]
    bytes: int
    flops: int | None
    bytes_per_second: float
    flops_per_second: float | None


class DispatchReport(TypedDict):
    """One dispatch of the timed call."""

    step: int
    op: str
    kernel: str
    origin: str
    module: str
    shapes: str
    grid: list[int]
    begin: float
    end: float
    bytes: int
    flops: int | None
    seconds: float


Groups = Annotated[list[DispatchGroup], "the longest first"]


class PeakRates(TypedDict):
    """The measured peak rates of a device."""

    bytes_per_second: float
    flops_per_second: float


class ProfileData(TypedDict):
    """Durations of a profile, in seconds."""

    timestamps: Annotated[bool, "whether the device timed the dispatches itself"]
    calls: Annotated[Spread, "ordinary calls"]
    timed_calls: Annotated[Spread, "calls with every dispatch timed"]
    host: HostReport
    submits: int
    bytes_to_device: int
    bytes_to_host: int
    cpu_calls: dict[str, int]
    timed_call: Attribution
    ops: Groups
    kernels: Groups
    modules: Groups
    origins: Groups
    peak: Annotated[PeakRates | None, "the measured peak rates of the device"]
    dispatches: list[DispatchReport]


class ProfileReport(ProfileData):
    """Where the time of a call goes."""

    file: str
    method: str
    adapter: str
    inputs: list[str]
    trace: Annotated[str | None, "the file that --trace wrote"]


@dataclass(frozen=True)
class Profile:
    """The measured calls of a method."""

    plain: list[Run]  # ordinary calls
    timed: list[Run]  # with every dispatch timed
    dispatches: list[DispatchTime]  # of the fastest timed call
    peak: Peak | None
    stamps: bool  # whether the device stamped the dispatches itself
    cpu_calls: dict[str, int]  # calls that run on the CPU, by name

    @property
    def fastest(self) -> Run:
        return min(self.timed, key=lambda run: run.wall.duration)

    def data(self) -> ProfileData:
        """Return plain data; all times are in seconds."""
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
            "peak": None if self.peak is None else _rates(self.peak),
            "dispatches": [_dispatch(dispatch) for dispatch in self.dispatches],
        }

    def _grouped(self, key: Callable[[DispatchTime], str], products: bool = True) -> list[DispatchGroup]:
        """Return sums over dispatches with the same key, the longest first."""
        groups: dict[str, list[DispatchTime]] = {}
        for dispatch in self.dispatches:
            groups.setdefault(key(dispatch), []).append(dispatch)
        busy = sum(d.duration for d in self.dispatches) or 1
        rows: list[DispatchGroup] = []
        for name, members in groups.items():
            duration = sum(d.duration for d in members)
            flops = sum(d.flops or 0 for d in members) if products else 0
            rows.append(
                {
                    "name": name,
                    "calls": len({d.step for d in members}),
                    "dispatches": len(members),
                    "seconds": duration / 1e9,
                    "share": duration / busy,
                    "bytes": sum(d.bytes for d in members),
                    "flops": flops or None,
                    "bytes_per_second": sum(d.bytes for d in members) / max(duration, 1) * 1e9,
                    "flops_per_second": flops / max(duration, 1) * 1e9 if flops else None,
                }
            )
        return sorted(rows, key=lambda row: -row["seconds"])


def profile(
    method: Method, args: Sequence[Any], repeat: int = 5, roofline: bool = True, progress: OnProgress = ignore
) -> Profile:
    """Call a method `repeat` times as usual and `repeat` times with every dispatch timed.

    All calls have the same arguments, and state carries over. The first call of each kind is not counted.
    """
    if repeat < 1:
        raise InputError(argument="repeat", expected="an integer of at least 1", got=repeat, code="out_of_range")
    modules = modules_of(method.planner)  # before the calls: it lowers at the bound
    observed = ObservedMethod(method)
    total = 2 * (repeat + 1)

    def several(run: Callable[[Sequence[Any]], Run], first: int) -> Iterator[Run]:
        for number in range(repeat + 1):
            progress(Progress("profile", first + number, total, "calls"))
            done = run(args)
            if number:
                yield done

    plain = list(several(observed.run, 0))
    timed = list(several(observed.run_timed, repeat + 1))
    result = Profile(
        plain,
        timed,
        _dispatches(method, min(timed, key=lambda run: run.wall.duration), modules),
        measure_peak(observed.clock.gpu) if roofline and observed.clock is not None else None,
        observed.stamps,
        method.plan.cpu_calls,
    )
    progress(Progress("profile", total, total, "calls"))
    return result


def _dispatches(method: Method, run: Run, modules: dict[int, str]) -> list[DispatchTime]:
    """Return the dispatches of a timed call with their intervals."""
    if run.live is None:
        return []
    graph, work = method.plan.graph, CallWork(method.plan, run.schedules, run.live)
    dispatches: list[DispatchTime] = []
    intervals = iter(run.intervals)
    for schedule in run.schedules:
        for step, lowered in zip(schedule.segment.steps, schedule.calls, strict=True):
            call = graph.call(step)
            for number, dispatch in enumerate(lowered.dispatches):
                begin, end = next(intervals)
                dispatches.append(
                    DispatchTime(
                        step=step,
                        op=label(call, graph),
                        kernel=dispatch.kernel.label,
                        origin=str(call.origin),
                        module=modules.get(step, ""),
                        shapes=work.shapes(call),
                        grid=dispatch.grid,
                        begin=begin - run.wall.begin,
                        end=end - run.wall.begin,
                        bytes=work.bytes(lowered, dispatch),
                        flops=work.flops(call) if number == 0 else None,
                    )
                )
    assert next(intervals, None) is None, "every interval belongs to a dispatch"
    return dispatches


def _rates(peak: Peak) -> PeakRates:
    return {"bytes_per_second": peak.bytes_per_second, "flops_per_second": peak.flops_per_second}


def _dispatch(dispatch: DispatchTime) -> DispatchReport:
    return {
        "step": dispatch.step,
        "op": dispatch.op,
        "kernel": dispatch.kernel,
        "origin": dispatch.origin,
        "module": dispatch.module,
        "shapes": dispatch.shapes,
        "grid": list(dispatch.grid),
        "begin": dispatch.begin / 1e9,
        "end": dispatch.end / 1e9,
        "bytes": dispatch.bytes,
        "flops": dispatch.flops,
        "seconds": dispatch.duration / 1e9,
    }


def _host(run: Run) -> HostReport:
    """Return the host's time in a call by activity. The rest is Python in between."""
    wall = run.wall.duration
    own = times_by_name(run.spans)
    return {
        "seconds": wall / 1e9,
        "spans": [
            {"name": n, "seconds": t / 1e9, "share": t / wall} for n, t in sorted(own.items(), key=lambda i: -i[1])
        ],
        "rest": (wall - sum(own.values())) / 1e9,
    }


def attribution(run: Run) -> Attribution:
    """Divide the wall time of a timed call into parts that do not overlap; the remainder is `rest`.

    The parts are the host's: dispatches that run while the host works do not count as waiting.
    """
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
        "work": sum(own.values()),
        "wait before the first dispatch": early,
        "wait during dispatches": busy,
        "wait between dispatches": inside - busy,
        "wait after the last dispatch": late,
    }
    named = sum(parts.values())
    return {
        "seconds": wall / 1e9,
        "device_seconds": 0.0 if device is None else device.duration / 1e9,
        "busy_seconds": run.busy / 1e9,
        "between_seconds": 0.0 if device is None else (device.duration - run.busy) / 1e9,
        "parts": {name: nanoseconds / 1e9 for name, nanoseconds in parts.items()},
        "rest": (wall - named) / 1e9,
        "attributed": named / wall,
    }


def _overlap(begin: int, end: int, intervals: Sequence[tuple[int, int]]) -> int:
    return sum(max(0, min(end, b) - max(begin, a)) for a, b in intervals)


HOST, DEVICE = 1, 2  # processes
BETWEEN = "between dispatches"
MIN_SLICE_NANOSECONDS = 10  # shorter intervals get no slice


def write_trace(path: str | os.PathLike[str], profile: Profile, adapter: str) -> None:
    """Write the fastest timed call of a profile as a Chrome JSON trace."""
    trace = {
        "traceEvents": list(trace_events(profile, adapter)),
        "displayTimeUnit": "ms",
        "otherData": {
            "adapter": adapter,
            "dispatches timed by": "timestamp queries" if profile.stamps else "the host, one submit for each",
        },
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(trace, file)


def trace_events(profile: Profile, adapter: str) -> Iterator[dict[str, Any]]:
    run = profile.fastest
    yield from _names(HOST, "host", "calls")
    yield from _names(DEVICE, f"device: {adapter}", "dispatches")
    origin = run.wall.begin
    for span in sorted([run.wall, *run.spans, *_inside_waits(run.spans, run.device)], key=lambda s: (s.begin, -s.end)):
        yield _slice(HOST, span.name, "host", span.begin - origin, span.end - origin, {})
    for before, dispatch in zip([None, *profile.dispatches], profile.dispatches, strict=False):
        if before is not None and dispatch.begin - before.end >= MIN_SLICE_NANOSECONDS:
            yield _slice(DEVICE, BETWEEN, "overhead", before.end, dispatch.begin, {})
        yield _slice(DEVICE, dispatch.op, "dispatch", dispatch.begin, dispatch.end, _details(dispatch))


def _names(process: int, name: str, track: str) -> Iterator[dict[str, Any]]:
    for kind, text in (("process_name", name), ("thread_name", track)):
        yield {"ph": "M", "pid": process, "tid": process, "name": kind, "args": {"name": text}}


def _inside_waits(spans: Sequence[HostSpan], device: HostSpan | None) -> Iterator[HostSpan]:
    """Split the host's waits into the queue, the device and the wake-up."""
    for span in spans:
        if span.name != "wait" or device is None:
            continue
        begin, end = (min(max(t, span.begin), span.end) for t in (device.begin, device.end))
        edges = (("queue", span.begin), ("device", begin), ("wake up", end), ("", span.end))
        for (name, start), (_, stop) in pairwise(edges):
            if stop - start >= MIN_SLICE_NANOSECONDS:
                yield HostSpan(name, start, stop)


def _slice(process: int, name: str, category: str, begin: int, end: int, details: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": process,
        "tid": process,
        "name": name,
        "cat": category,
        "ts": begin / 1e3,
        "dur": (end - begin) / 1e3,
        "args": details,
    }


def _details(dispatch: DispatchTime) -> dict[str, Any]:
    seconds = max(dispatch.duration, 1) / 1e9
    details: dict[str, Any] = {
        "kernel": dispatch.kernel,
        "shapes": dispatch.shapes,
        "origin": dispatch.origin,
        "module": dispatch.module,
        "grid": "x".join(map(str, dispatch.grid)),
        "bytes": dispatch.bytes,
        "GB/s": round(dispatch.bytes / seconds / 1e9, 3),
    }
    if dispatch.flops:
        details["GFLOP/s"] = round(dispatch.flops / seconds / 1e9, 3)
    return details


def profile_file(
    path: PathLike,
    data: Iterable[PathLike] = (),
    inputs: Sequence[str] = (),
    *,
    method: str = "forward",
    repeat: int = 5,
    seed: int = 0,
    roofline: bool = True,
    trace: PathLike | None = None,
    fallback: Literal["cpu"] | None = None,
    progress: OnProgress = ignore,
) -> ProfileReport:
    """Measure where the time of a method's call goes. `inputs` are strings as `debug.inputs` describes them.

    `trace` is a file for the fastest timed call, as a Chrome JSON trace. With `roofline`, the peak bandwidth and
    arithmetic of the device are measured too.
    """
    check_specs(inputs)
    with load(path, data, fallback=fallback, progress=progress) as program:
        check_method_name(method, program.method_names, "method")
        called = program.method(method, progress=progress)
        values = make_inputs(called.inputs, inputs, seed)
        measured = profile(called, [item.value for item in values], repeat, roofline, progress)
        adapter = called.adapter
    if trace is not None:
        try:
            write_trace(trace, measured, adapter)
        except OSError as error:
            raise not_writable(trace, error) from error
    return {
        "file": os.fspath(path),
        "method": method,
        "adapter": adapter,
        "inputs": [item.source for item in values],
        **measured.data(),
        "trace": None if trace is None else os.fspath(trace),
    }

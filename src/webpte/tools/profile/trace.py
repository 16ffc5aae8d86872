"""A timed call as a Chrome JSON trace, which Perfetto and chrome://tracing open.

Two processes: what the host did, and what the device did. Slices of a track nest; times are microseconds from the
beginning of the call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from .profile import DispatchTime, Profile
from .spans import Stretch

HOST, DEVICE = 1, 2  # processes
BETWEEN = "between dispatches"
SHORTEST = 10  # nanoseconds: what is shorter is not worth a slice


def write_trace(path: str | os.PathLike[str], profile: Profile, adapter: str) -> None:
    """Write the fastest timed call of a profile."""
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
        if before is not None and dispatch.begin - before.end >= SHORTEST:
            yield _slice(DEVICE, BETWEEN, "overhead", before.end, dispatch.begin, {})
        yield _slice(DEVICE, dispatch.op, "dispatch", dispatch.begin, dispatch.end, _details(dispatch))


def _names(process: int, name: str, track: str) -> Iterator[dict[str, Any]]:
    for kind, text in (("process_name", name), ("thread_name", track)):
        yield {"ph": "M", "pid": process, "tid": process, "name": kind, "args": {"name": text}}


def _inside_waits(spans: Sequence[Stretch], device: Stretch | None) -> Iterator[Stretch]:
    """What the host waited for: the queue, the device, and to be woken."""
    for span in spans:
        if span.name != "wait" or device is None:
            continue
        begin, end = (min(max(t, span.begin), span.end) for t in (device.begin, device.end))
        edges = (("queue", span.begin), ("device", begin), ("wake up", end), ("", span.end))
        for (name, start), (_, stop) in pairwise(edges):
            if stop - start >= SHORTEST:
                yield Stretch(name, start, stop)


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

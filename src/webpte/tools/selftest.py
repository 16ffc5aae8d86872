"""Two seconds of real work on the device: are the numbers right, how long is a round trip, how fast is a copy.

Run as a module it prints the result as JSON: a broken driver can abort the process, and `doctor` survives that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..device import Gpu, acquire
from ..device.recording import Copy
from ..device.weights import USAGE
from ..errors import Error
from ..runtime.graphs import open_graph
from .probes import Probe
from .timing import spread, timed
from .trials import TRIALS, Trial

ROUND_TRIPS = 40
COPIES = 8
COPY_BYTES = 16 << 20
BUDGET = 0.5  # seconds for each measurement


def self_test() -> dict[str, Any]:
    """Checks with their results, and two measurements."""
    started = time.perf_counter()
    gpu = acquire({})  # held, so that the graphs below do not each open a device of their own
    try:
        checks = [_check(name, make) for name, make in TRIALS.items()]
        ok = all(check["ok"] for check in checks)
        round_trip, copies = (_round_trip(), _copy_rate(gpu)) if ok else (None, None)
    finally:
        gpu.release()
    return {
        "ok": ok,
        "problem": None,
        "checks": checks,
        "round_trip": round_trip,
        "copy_bytes_per_second": copies,
        "seconds": time.perf_counter() - started,
    }


def _check(name: str, make: Callable[[], Trial]) -> dict[str, Any]:
    try:
        trial = make()
        error = _error(trial)
    except Error as problem:
        return {"name": name, "ok": False, "detail": f"{type(problem).__name__}: {problem}"}
    ok = error <= trial.tolerance  # false for NaN
    return {"name": name, "ok": ok, "detail": f"largest error {error:.1e}"}


def _error(trial: Trial) -> float:
    with open_graph(trial.graph) as method:
        return float(np.abs(method(*trial.inputs).astype(np.float64) - trial.wanted.astype(np.float64)).max())


def _round_trip() -> dict[str, Any] | None:
    """One dispatch over four numbers, there and back."""
    b = Probe()
    x = b.tensor(4)
    graph = b.graph([x], [b.call("aten.relu.default", x, out=b.tensor(4))])
    with open_graph(graph) as method:
        return spread(_measured(lambda: method(np.ones(4, np.float32)), ROUND_TRIPS))


def _copy_rate(gpu: Gpu) -> float:
    """Bytes that are read and written again per second, from buffer to buffer."""
    buffers = [gpu.create_buffer("copy", COPY_BYTES, USAGE) for _ in range(2)]
    copies = [Copy(buffers[i % 2], 0, buffers[1 - i % 2], 0, COPY_BYTES) for i in range(COPIES)]

    def copy() -> None:
        gpu.submit([(copies, ())])
        gpu.wait()

    times = _measured(copy, ROUND_TRIPS)
    for buffer in buffers:
        buffer.destroy()
    return COPIES * COPY_BYTES / float(np.median(times))


def _measured(call: Callable[[], Any], most: int) -> list[float]:
    """Times of up to `most` calls after the first, or as many as the budget allows."""
    call()
    times: list[float] = []
    while len(times) < most and (len(times) < 3 or sum(times) < BUDGET):
        times.append(timed(call)[0])
    return times


if __name__ == "__main__":
    print(json.dumps(self_test()))

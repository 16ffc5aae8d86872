"""Test the device in two seconds: small graphs against NumPy, the round trip of a dispatch, the rate of a copy.

Run as a module, it prints the result as JSON: a broken driver can abort the process, and `doctor` survives that. The
process ends early if its stdin ends, which is a pipe from the process that waits for the result.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import numpy as np

from ..device import Gpu, acquire
from ..device.recording import BufferCopy
from ..device.weights import USAGE
from ..errors import Error
from ..graph import Call, DType, Graph, Int, Null, Origin, TensorSpec, Value, ValueList
from ..runtime.program import open_graph
from ..typing import Array
from .run import Spread, spread, timed


class GraphBuilder:
    """Builds a graph of a few calls from values that are added one by one."""

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._calls: list[Call] = []

    def add(self, value: Value) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def tensor(self, *dims: int, dtype: DType = DType.FLOAT32) -> int:
        return self.add(TensorSpec(dtype, dims, dtype))

    def null(self) -> int:
        return self.add(Null())

    def dims(self, tensor: int) -> tuple[int, ...]:
        """Return the dims of a tensor."""
        spec = self._values[tensor]
        assert isinstance(spec, TensorSpec)
        return spec.dims

    def call(self, name: str, *args: int, out: int) -> int:
        self.add_call(name, args, (out,))
        return out

    def add_call(self, name: str, args: tuple[int, ...], outs: tuple[int, ...]) -> None:
        self._calls.append(Call(name, args, outs, Origin(len(self._calls))))

    def graph(self, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
        return Graph("probe", tuple(self._values), tuple(self._calls), tuple(inputs), tuple(outputs))


@dataclass(frozen=True)
class SelfTestCase:
    """A graph, its inputs, and its expected output within a tolerance."""

    graph: Graph
    inputs: Sequence[Array]
    expected: Array
    tolerance: float = 1e-5


def linear_softmax() -> SelfTestCase:
    """Return softmax(x @ w.T + b) against NumPy in float64, in sizes that no workgroup size divides."""
    rows, inner, outer = 13, 129, 67
    b = GraphBuilder()
    x, w, bias = b.tensor(rows, inner), b.tensor(outer, inner), b.tensor(outer)
    logits = b.call("aten.linear.default", x, w, bias, out=b.tensor(rows, outer))
    last, full = b.add(Int(-1)), b.null()
    out = b.call("aten._softmax.default", logits, last, full, out=b.tensor(rows, outer))
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(size).astype(np.float32) for size in ((rows, inner), (outer, inner), (outer,))]
    wide = [array.astype(np.float64) for array in inputs]
    exponents = wide[0] @ wide[1].T + wide[2]  # (rows, outer)
    powers = np.exp(exponents - exponents.max(-1, keepdims=True))
    return SelfTestCase(b.graph([x, w, bias], [out]), inputs, powers / powers.sum(-1, keepdims=True))


def half_precision() -> SelfTestCase:
    """Return x + y in float16, which devices without float16 compute in float32."""
    b = GraphBuilder()
    x, y = b.tensor(501, dtype=DType.FLOAT16), b.tensor(501, dtype=DType.FLOAT16)
    out = b.call("aten.add.Tensor", x, y, b.add(Int(1)), out=b.tensor(501, dtype=DType.FLOAT16))
    inputs = [np.linspace(-1, 1, 501).astype(np.float16), np.linspace(3, 0, 501).astype(np.float16)]
    return SelfTestCase(b.graph([x, y], [out]), inputs, inputs[0] + inputs[1], 2e-3)


def integers() -> SelfTestCase:
    """Return exact sums of 32-bit integers along a dim."""
    b = GraphBuilder()
    x = b.tensor(31, 257, dtype=DType.INT32)
    dims, keep = b.add(ValueList((b.add(Int(1)),))), b.add(Int(0))
    out = b.call("aten.sum.dim_IntList", x, dims, keep, b.null(), out=b.tensor(31, dtype=DType.INT32))
    values = np.random.default_rng(1).integers(-1000, 1000, (31, 257), dtype=np.int32)
    return SelfTestCase(b.graph([x], [out]), [values], values.sum(1), 0.0)


SELF_TEST_CASES: dict[str, Callable[[], SelfTestCase]] = {
    "float32 linear and softmax": linear_softmax,
    "float16 addition": half_precision,
    "int32 sums": integers,
}


LOG_OPTION = "--log"  # log to stderr, in a child process
ROUND_TRIPS = 40
COPIES = 8
COPY_BYTES = 16 << 20
MEASUREMENT_SECONDS = 0.5  # for each


class SelfTestCheck(TypedDict):
    """The result of one graph."""

    name: str
    ok: bool
    detail: str


class SelfTestReport(TypedDict):
    """The results of a self-test."""

    ok: bool
    problem: Annotated[str | None, "why it did not finish"]
    checks: list[SelfTestCheck]
    round_trip: Annotated[Spread | None, "one dispatch, with upload and readback"]
    copy_bytes_per_second: float | None
    seconds: float | None


def self_test() -> SelfTestReport:
    """Return checks with their results, and two measurements."""
    started = time.perf_counter()
    gpu = acquire({})  # held, so that the graphs below share one device
    try:
        checks = [_check(name, make) for name, make in SELF_TEST_CASES.items()]
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


def _check(name: str, make: Callable[[], SelfTestCase]) -> SelfTestCheck:
    try:
        case = make()
        error = _error(case)
    except Error as problem:
        return {"name": name, "ok": False, "detail": f"{type(problem).__name__}: {problem}"}
    ok = error <= case.tolerance  # false for NaN
    return {"name": name, "ok": ok, "detail": f"largest error {error:.1e}"}


def _error(case: SelfTestCase) -> float:
    with open_graph(case.graph) as method:
        return float(np.abs(method(*case.inputs).astype(np.float64) - case.expected.astype(np.float64)).max())


def _round_trip() -> Spread:
    """Measure a dispatch over four numbers, with upload and readback."""
    b = GraphBuilder()
    x = b.tensor(4)
    graph = b.graph([x], [b.call("aten.relu.default", x, out=b.tensor(4))])
    with open_graph(graph) as method:
        return spread(_times(lambda: method(np.ones(4, np.float32)), ROUND_TRIPS))


def _copy_rate(gpu: Gpu) -> float:
    """Return the bytes per second of copies between buffers."""
    buffers = [gpu.create_buffer("copy", COPY_BYTES, USAGE) for _ in range(2)]
    copies = [BufferCopy(buffers[i % 2], 0, buffers[1 - i % 2], 0, COPY_BYTES) for i in range(COPIES)]

    def copy() -> None:
        gpu.submit([(copies, ())])
        gpu.wait()

    times = _times(copy, ROUND_TRIPS)
    for buffer in buffers:
        buffer.destroy()
    return COPIES * COPY_BYTES / float(np.median(times))


def _times(call: Callable[[], Any], max_calls: int) -> list[float]:
    """Return the seconds of up to `max_calls` calls after the first, within the time of a measurement."""
    call()
    times: list[float] = []
    while len(times) < max_calls and (len(times) < 3 or sum(times) < MEASUREMENT_SECONDS):
        times.append(timed(call)[0])
    return times


def _end_with_stdin() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_stdin, daemon=True, name="stdin").start()
    if sys.argv[1:] == [LOG_OPTION]:
        logging.basicConfig(
            level=logging.DEBUG, stream=sys.stderr, format="%(relativeCreated)d ms %(name)s %(message)s"
        )
    print(json.dumps(self_test()))

"""Observe calls of a method, as they usually run and with every dispatch timed, and compute their work.

The work of a call is computed from its live shapes: bytes of its dispatches, and arithmetic of products. Bytes are
those of all bindings at their live size, once per dispatch. If an op accesses only a part of a tensor (a row of a
table, the filled part of a cache), only that part counts: see lowering.traits. It is the minimum a kernel has to move,
so the rate is the effective bandwidth, caches aside.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...device import Gpu, Observer
from ...device.recording import Stage
from ...device.timing import DispatchClock, Interval
from ...graph import LIVE_SCALARS, Call, Graph, IntList, TensorSpec
from ...graph.expressions import ScalarInput, Term, TermEvaluator
from ...lowering import WHOLE, Dispatch, find, stored_bytes
from ...plan import CallValues, LoweredCall, Plan, Schedule
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
        with self._method._observed(observer):
            begin = time.perf_counter_ns()
            self._method.run(args)
            end = time.perf_counter_ns()
            self.clock = observer.clock
            intervals = self.clock.take() if self.clock is not None else []
        return Run(
            HostSpan(self._method.name, begin, end),
            observer.spans,
            observer.schedules,
            intervals,
            observer.live,
            observer.submits,
            observer.to_device,
            observer.to_host,
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


# -- work -------------------------------------------------------------------------------------------------------------


Dims = tuple[int, ...]


class CallWork:
    """The work of a call, from its schedules and its live values."""

    def __init__(self, plan: Plan, schedules: Sequence[Schedule], live: CallValues) -> None:
        self._graph: Graph = plan.graph
        self._dims = {v: dims for s in schedules for v, dims in s.dims.items()}
        self._dtypes = {value_id: scratch.spec.dtype for value_id, scratch in plan.scratch.items()}
        self._terms: dict[int, Term] = {v: term for s in schedules for v, term in s.scalars.items()}
        self._numbers = TermEvaluator(live.arrays, live.scalars)

    def bytes(self, lowered: LoweredCall, dispatch: Dispatch) -> int:
        """Return the bytes that a dispatch reads and writes."""
        total = 0
        for position, binding in enumerate(dispatch.bindings):
            whole = self._nbytes(binding.tensor) if binding.nbytes == WHOLE else binding.nbytes
            total += int(whole * self._share(lowered, binding.tensor, position >= dispatch.kernel.reads))
        return total

    def flops(self, call: Call) -> int | None:
        """Return multiplications and additions of a product; None for other calls."""
        op = find(call)
        if op is None or op.traits.work is None:
            return None
        return op.traits.work(_Sizes(self, call, op.arguments(call)))

    def shapes(self, call: Call) -> str:
        """Return the live dims of a call's tensors, `[1, 7, 64] × [64, 64] → [1, 7, 64]`."""
        inputs, outputs = (
            [str(list(self.dims(v))) for v in ids if isinstance(self._graph.values[v], TensorSpec)]
            for ids in (self._graph.flatten(call.args), call.outs)
        )
        return f"{' × '.join(inputs)} → {', '.join(outputs)}"

    def dims(self, value_id: int) -> Dims:
        dims = self._dims.get(value_id)
        return self._graph.tensor(value_id).dims if dims is None else dims  # constants always have their full shape

    def _nbytes(self, value_id: int) -> int:
        dtype = self._dtypes.get(value_id)
        return stored_bytes(self._graph.tensor(value_id).dtype if dtype is None else dtype, self.dims(value_id))

    def number(self, value_id: int) -> Any:
        """Return the value of a scalar argument in that call."""
        value = self._graph.values[value_id]
        if not isinstance(value, LIVE_SCALARS):
            return getattr(value, "value", None)
        return self._numbers(self._terms.get(value_id, ScalarInput(value_id, True)))

    def members(self, value_id: int) -> tuple[int, ...]:
        """Return the values of a list; a single value is a list of one."""
        return self._graph.flatten((value_id,))

    def numbers(self, value_id: int) -> list[int]:
        """Return a list of integers."""
        value = self._graph.values[value_id]
        return list(value.values) if isinstance(value, IntList) else [self.number(v) for v in getattr(value, "ids", ())]

    def _share(self, lowered: LoweredCall, tensor: int, written: bool) -> float:
        """Return the share of a bound tensor that a call accesses."""
        call = self._graph.call(lowered.step)
        op = find(call)
        if op is None or tensor in call.outs:
            return 1.0
        arguments, traffic = op.arguments(call), op.traits.memory_traffic
        rule = next((traffic[name] for name, v in arguments.items() if v == tensor and name in traffic), None)
        return 1.0 if rule is None else min(1.0, rule(_Sizes(self, call, arguments), self.dims(tensor), written))


class _Sizes:
    """The live values of a call, for the rules of its op (lowering.traits.CallSizes)."""

    def __init__(self, work: CallWork, call: Call, arguments: dict[str, int]) -> None:
        self._work = work
        self._call = call
        self._arguments = arguments

    @property
    def out(self) -> Dims:
        return self._work.dims(self._call.outs[0])

    def dims(self, argument: str) -> Dims:
        return self._work.dims(self._arguments[argument])

    def each(self, argument: str) -> list[Dims]:
        return [self._work.dims(v) for v in self._work.members(self._arguments[argument])]

    def number(self, argument: str) -> Any:
        return self._work.number(self._arguments[argument])

    def numbers(self, argument: str) -> list[int]:
        return self._work.numbers(self._arguments[argument])

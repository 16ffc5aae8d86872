"""The result of a comparison, and its plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from ...graph import ELEMENTWISE, Call, Graph, String, parse_program
from .measure import EDGES, Array, Difference, finite

MAX_STEPS = 4  # named for a fused call


def label(call: Call, graph: Graph) -> str:
    """Return the op's name; for fused calls, with their steps: `webpte.elementwise[sigmoid mul]`."""
    if call.name != ELEMENTWISE:
        return call.name
    program = graph.values[call.args[0]]
    assert isinstance(program, String)
    names = [step.name.split(".")[1] for step in parse_program(program.value)[0]]
    more = [f"+{len(names) - MAX_STEPS}"] if len(names) > MAX_STEPS else []
    return f"{call.name}[{' '.join(names[:MAX_STEPS] + more)}]"


@dataclass
class CallReport:
    """The comparison of one call in one step."""

    step: int
    index: int
    op: str
    origin: str
    skipped: str | None = None
    outputs: dict[int, Difference] = field(default_factory=dict)  # by value
    not_finite: dict[int, tuple[int, int]] = field(default_factory=dict)  # value -> number of NaN, number of infinities
    finite_inputs: bool = True

    def watch(self, value_id: int, array: Array) -> None:
        """Count the elements of a value that are not finite."""
        if not finite(array):
            self.not_finite[value_id] = (int(np.isnan(array).sum()), int(np.isinf(array).sum()))

    @property
    def outside(self) -> bool:
        return not all(output.within for output in self.outputs.values())

    @property
    def nan(self) -> bool:
        return any(nan for nan, _ in self.not_finite.values())


@dataclass(frozen=True)
class Suspect:
    """A call at fault, with the operands of the device, for a repro."""

    report: CallReport
    call: Call
    graph: Graph
    tensors: Mapping[int, Array]
    scalars: Mapping[int, Any]


@dataclass
class EndReport:
    """One output of the method in one step, against another way to compute it."""

    step: int
    output: int
    against: str
    difference: Difference


@dataclass
class OpSummary:
    """Summary of all calls of an op."""

    op: str
    calls: int
    outside: int  # calls with an output out of tolerance
    max_relative: float
    worst: str  # where the largest error was
    histogram: tuple[int, ...]


@dataclass
class Comparison:
    """The result of a comparison."""

    method: str
    against: str
    rtol: float | None
    atol: float | None
    calls: list[CallReport] = field(default_factory=list)
    ends: list[EndReport] = field(default_factory=list)
    gaps: dict[str, str] = field(default_factory=dict)  # calls without a reference result, which use the device's
    suspect: Suspect | None = None  # the first call out of tolerance, or with NaN from finite inputs

    @property
    def first(self) -> CallReport | None:
        """The first call out of tolerance."""
        return next((call for call in self.calls if call.outside), None)

    @property
    def watch(self) -> list[CallReport]:
        """Calls with NaN or infinity in their outputs."""
        return [call for call in self.calls if call.not_finite]

    @property
    def ok(self) -> bool:
        """Whether everything is within tolerance and nothing is NaN. Expected infinities, as in masks, are allowed."""
        ends = all(end.difference.within for end in self.ends)
        return ends and self.first is None and not any(call.nan for call in self.calls)

    @property
    def ops(self) -> list[OpSummary]:
        """A summary by op, the worst first."""
        by_name: dict[str, list[CallReport]] = {}
        for call in self.calls:
            if call.outputs:
                by_name.setdefault(call.op, []).append(call)
        return sorted((summarize(name, calls) for name, calls in by_name.items()), key=lambda s: -s.max_relative)

    def data(self) -> dict[str, Any]:
        """Return plain data for JSON. Numbers that are not finite become strings."""
        first = self.first
        data: dict[str, Any] = _plain(
            {
                "method": self.method,
                "against": self.against,
                "rtol": self.rtol,
                "atol": self.atol,
                "ok": self.ok,
                "first_outside": None if first is None else {"step": first.step, "index": first.index},
                "histogram_edges": EDGES,
                "ops": self.ops,
                "calls": [{**_plain(call), "outside": call.outside} for call in self.calls],
                "not_finite": [{"step": c.step, "index": c.index, "op": c.op} for c in self.watch],
                "end_to_end": self.ends,
                "gaps": self.gaps,
            }
        )
        return data


def summarize(op: str, calls: Sequence[CallReport]) -> OpSummary:
    """Return the summary of all calls of an op."""
    outputs = [(output, call) for call in calls for output in call.outputs.values()]
    worst, where = max(outputs, key=lambda pair: pair[0].max_relative)
    return OpSummary(
        op,
        len(calls),
        sum(call.outside for call in calls),
        worst.max_relative,
        where.origin,
        total(output.histogram for output, _ in outputs),
    )


def total(histograms: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*histograms, strict=True)))


def _plain(value: Any) -> Any:
    if isinstance(value, Difference):
        return _plain({**asdict(value), "within": value.within, "text": str(value)})
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value

"""Measure the difference of two arrays, and report the result of a comparison as plain data.

The tolerance of an element is `rtol` times (its magnitude + the typical magnitude of the output). Sums need the second
term: if terms cancel, an element near zero has the rounding errors of its large neighbors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import numpy as np

from ...graph import Call, DType, Graph, String, parse_program
from ...graph.names import ELEMENTWISE
from ...typing import Array, JsonNumber

# Relative errors fall into these bins: none, up to 1e-8, up to 1e-7, ..., up to 1, more (and what is not a number).
EDGES = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
RTOL = {"float32": 1e-4, "float16": 4e-3}
BF16_RTOL = 8e-3  # NumPy has no such dtype
MAX_UNMASKED = 1e30  # larger values stand for minus infinity in masks and have no typical magnitude
END_TO_END_FACTOR = 10.0  # by which the end-to-end tolerance is larger
OUTLIER_SHARE = 0.01  # of the largest elements, not part of the typical magnitude


class DifferenceReport(TypedDict):
    """Two arrays, element by element."""

    dtype: str
    dims: list[int]
    size: int
    outside: Annotated[int, "elements out of tolerance"]
    max_error: JsonNumber
    max_relative: JsonNumber
    at: Annotated[list[int] | None, "of the worst element"]
    got: float | str | None
    want: float | str | None
    histogram: Annotated[list[int], "elements by relative error, over histogram_edges"]
    nan: int
    inf: int
    wanted_nan: int
    wanted_inf: int
    shape: Annotated[str | None, "the two shapes, if they differ"]
    within: bool
    text: str


class CallPosition(TypedDict):
    """A call in a step."""

    step: int
    index: int


class NotFiniteCall(CallPosition):
    """A call with NaN or infinity in its outputs."""

    op: str


class CallData(TypedDict):
    """The comparison of one call in one step."""

    step: Annotated[int, "call of the method"]
    index: int
    op: str
    origin: str
    skipped: Annotated[str | None, "why it was not compared"]
    failed: Annotated[str | None, "the error of its reference"]
    outputs: Annotated[dict[str, DifferenceReport], "by value"]
    not_finite: Annotated[dict[str, list[int]], "by value: the numbers of NaN and of infinities"]
    finite_inputs: bool
    outside: bool


class OpReport(TypedDict):
    """Summary of all calls of an op."""

    op: str
    calls: int
    outside: int
    max_relative: JsonNumber
    worst: Annotated[str, "where"]
    histogram: list[int]


class EndData(TypedDict):
    """One output of the method in one step, against another way to compute it."""

    step: int
    output: int
    against: str
    difference: DifferenceReport


class ComparisonData(TypedDict):
    """The result of a comparison."""

    method: str
    against: str
    rtol: Annotated[float | None, "null: by dtype"]
    atol: float | None
    ok: bool
    first_outside: Annotated[CallPosition | None, "the first call out of tolerance"]
    histogram_edges: list[float]
    ops: Annotated[list[OpReport], "the worst first"]
    calls: list[CallData]
    not_finite: list[NotFiniteCall]
    end_to_end: list[EndData]
    gaps: Annotated[dict[str, str], "calls where the references could not continue by themselves"]


class CompareReport(ComparisonData):
    """The comparison of a file."""

    file: str
    adapter: str
    inputs: Annotated[list[list[str]], "for each call of the method, its inputs as they were specified"]
    repro: Annotated[list[str] | None, "the files that --repro wrote"]


@dataclass(frozen=True)
class Tolerance:
    """The tolerance of a comparison. None: by dtype. Integers must be equal; 8-bit codes may be off by one."""

    rtol: float | None = None  # of floats
    atol: float | None = None  # replaces the term with the typical magnitude

    def of(self, dtype: np.dtype[Any]) -> tuple[float, float | None]:
        """Return (rtol, atol) for an output."""
        if dtype.kind not in "fc":
            return 0.0, float(dtype.itemsize == 1) if self.atol is None else self.atol
        return (RTOL.get(dtype.name, RTOL["float32"]) if self.rtol is None else self.rtol), self.atol

    def through(self, dtypes: Iterable[np.dtype[Any]]) -> Tolerance:
        """Return the tolerance of an output that may have been rounded to these dtypes on the way."""
        loosest = max((RTOL.get(dtype.name, 0.0) for dtype in dtypes), default=0.0)
        return Tolerance(loosest, self.atol) if self.rtol is None and loosest > RTOL["float32"] else self

    def of_many(self, dtypes: Iterable[DType]) -> Tolerance:
        """Return the tolerance of values that calls with these dtypes computed together: their errors add up."""
        by_dtype = (BF16_RTOL if dtype is DType.BFLOAT16 else RTOL.get(str(dtype.numpy), 0.0) for dtype in dtypes)
        loosest = max(by_dtype, default=RTOL["float32"])
        return Tolerance(END_TO_END_FACTOR * loosest if self.rtol is None else self.rtol, self.atol)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference between two arrays, `got` and `want`."""

    dtype: str
    dims: tuple[int, ...]
    size: int
    outside: int  # elements out of tolerance
    max_error: float
    max_relative: float  # to the element's magnitude plus the typical one
    at: tuple[int, ...] | None  # of the worst element
    got: float | None
    want: float | None
    histogram: tuple[int, ...]  # over EDGES, by relative error
    nan: int  # in `got`
    inf: int
    wanted_nan: int  # in `want`
    wanted_inf: int
    shape: str | None = None  # the two shapes, if they differ; nothing else is compared then

    @property
    def within(self) -> bool:
        return self.outside == 0 and self.shape is None

    def __str__(self) -> str:
        tensor = f"{self.dtype}{list(self.dims)}"
        if self.shape is not None:
            return f"{tensor}: {self.shape}"
        if self.at is None:
            return f"{tensor}: equal"
        verdict = f"{self.outside} of {self.size} elements out of tolerance" if self.outside else "within tolerance"
        return f"{tensor}: {verdict}; worst at {list(self.at)}: {self.got:.6g}, expected {self.want:.6g}"

    def data(self) -> DifferenceReport:
        """Return plain data for JSON."""
        return {
            "dtype": self.dtype,
            "dims": list(self.dims),
            "size": self.size,
            "outside": self.outside,
            "max_error": _json_number(self.max_error),
            "max_relative": _json_number(self.max_relative),
            "at": None if self.at is None else list(self.at),
            "got": None if self.got is None else _json_number(self.got),
            "want": None if self.want is None else _json_number(self.want),
            "histogram": list(self.histogram),
            "nan": self.nan,
            "inf": self.inf,
            "wanted_nan": self.wanted_nan,
            "wanted_inf": self.wanted_inf,
            "shape": self.shape,
            "within": self.within,
            "text": str(self),
        }


def _json_number(number: float) -> float | str:
    """Return a number for JSON, which has no NaN and no infinity."""
    return number if math.isfinite(number) else str(number)


def typical_size(wide: Array) -> float:
    """Return the root mean square of an output's elements, without outliers and masked ones."""
    sizes = np.abs(wide[np.isfinite(wide)])
    sizes = sizes[sizes < MAX_UNMASKED]
    if sizes.size == 0:
        return 0.0
    kept = max(1, int(sizes.size * (1 - OUTLIER_SHARE)))
    return float(np.sqrt(np.mean(np.square(np.partition(sizes, kept - 1)[:kept]))))


def difference(got: Array, want: Array, tolerance: Tolerance) -> Difference:
    """Compare element by element. Equal infinities agree, and so do two NaN."""
    want = np.asarray(want)
    name = next(d.short for d in DType if d.numpy == got.dtype)
    nan, inf = _count(np.isnan, got), _count(np.isinf, got)
    wanted_nan, wanted_inf = _count(np.isnan, want), _count(np.isinf, want)
    if got.shape != want.shape:
        text = f"shape {list(got.shape)}, expected {list(want.shape)}"
        return Difference(
            dtype=name,
            dims=got.shape,
            size=got.size,
            outside=got.size,
            max_error=np.inf,
            max_relative=np.inf,
            at=None,
            got=None,
            want=None,
            histogram=(0,) * (len(EDGES) + 1),
            nan=nan,
            inf=inf,
            wanted_nan=wanted_nan,
            wanted_inf=wanted_inf,
            shape=text,
        )
    a, b = got.astype(np.float64), want.astype(np.float64)
    rtol, atol = tolerance.of(got.dtype)
    typical = typical_size(b)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        error = np.nan_to_num(error, nan=np.inf, posinf=np.inf)
        size = np.where(np.isfinite(b), np.abs(b), 0.0)
        relative = np.where(error == 0, 0.0, error / (size + typical))
        outside = error > (rtol * (size + typical) if atol is None else atol + rtol * size)
    at = None
    if error.any():
        worst = int(np.argmax(np.where(outside, relative, -1.0) if outside.any() else relative))
        at = tuple(map(int, np.unravel_index(worst, got.shape)))
    return Difference(
        dtype=name,
        dims=got.shape,
        size=got.size,
        outside=int(outside.sum()),
        max_error=float(error.max(initial=0.0)),
        max_relative=float(relative.max(initial=0.0)),
        at=at,
        got=None if at is None else float(a[at]),
        want=None if at is None else float(b[at]),
        histogram=_histogram(relative),
        nan=nan,
        inf=inf,
        wanted_nan=wanted_nan,
        wanted_inf=wanted_inf,
    )


def finite(array: Array) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def _count(kind: Any, array: Array) -> int:
    return int(kind(array).sum()) if array.dtype.kind in "fc" else 0


def _histogram(relative: Array) -> tuple[int, ...]:
    bins = np.searchsorted(EDGES, relative.reshape(-1))  # bin i holds EDGES[i - 1] < error <= EDGES[i]
    return tuple(map(int, np.bincount(bins, minlength=len(EDGES) + 1)))


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
    failed: str | None = None  # the error of its reference
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

    def data(self) -> CallData:
        """Return plain data for JSON."""
        return {
            "step": self.step,
            "index": self.index,
            "op": self.op,
            "origin": self.origin,
            "skipped": self.skipped,
            "failed": self.failed,
            "outputs": {str(value): output.data() for value, output in self.outputs.items()},
            "not_finite": {str(value): list(counts) for value, counts in self.not_finite.items()},
            "finite_inputs": self.finite_inputs,
            "outside": self.outside,
        }


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

    def data(self) -> EndData:
        """Return plain data for JSON."""
        return {
            "step": self.step,
            "output": self.output,
            "against": self.against,
            "difference": self.difference.data(),
        }


@dataclass
class OpSummary:
    """Summary of all calls of an op."""

    op: str
    calls: int
    outside: int  # calls with an output out of tolerance
    max_relative: float
    worst: str  # where the largest error was
    histogram: tuple[int, ...]

    def data(self) -> OpReport:
        """Return plain data for JSON."""
        return {
            "op": self.op,
            "calls": self.calls,
            "outside": self.outside,
            "max_relative": _json_number(self.max_relative),
            "worst": self.worst,
            "histogram": list(self.histogram),
        }


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
        """Return the first call out of tolerance."""
        return next((call for call in self.calls if call.outside), None)

    @property
    def watch(self) -> list[CallReport]:
        """Return the calls with NaN or infinity in their outputs."""
        return [call for call in self.calls if call.not_finite]

    @property
    def ok(self) -> bool:
        """Return whether all is within tolerance, no reference failed and nothing is NaN. Infinities are allowed."""
        ends = all(end.difference.within for end in self.ends)
        return ends and self.first is None and not any(call.nan or call.failed for call in self.calls)

    @property
    def ops(self) -> list[OpSummary]:
        """Return a summary by op, the worst first."""
        by_name: dict[str, list[CallReport]] = {}
        for call in self.calls:
            if call.outputs:
                by_name.setdefault(call.op, []).append(call)
        return sorted((summarize(name, calls) for name, calls in by_name.items()), key=lambda s: -s.max_relative)

    def data(self) -> ComparisonData:
        """Return plain data for JSON. Numbers that are not finite become strings."""
        first = self.first
        return {
            "method": self.method,
            "against": self.against,
            "rtol": self.rtol,
            "atol": self.atol,
            "ok": self.ok,
            "first_outside": None if first is None else {"step": first.step, "index": first.index},
            "histogram_edges": list(EDGES),
            "ops": [op.data() for op in self.ops],
            "calls": [call.data() for call in self.calls],
            "not_finite": [{"step": call.step, "index": call.index, "op": call.op} for call in self.watch],
            "end_to_end": [end.data() for end in self.ends],
            "gaps": self.gaps,
        }


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

"""Running a method in several ways and comparing: as it always runs, with every value exposed, and by references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import Error, UnsupportedError
from ...fusion import PASSES, apply_passes
from ...graph import Graph, Jump, TensorSpec
from ...progress import OnProgress, Progress, ignore
from ...runtime import Program
from .capture import Capture, Exposed, PathLike, Watched, straighten
from .measure import Array, Tolerance, difference, finite
from .references import Ideal, References
from .reports import CallReport, Comparison, EndReport, Suspect, label

Arguments = Sequence[Any]  # the arguments of one call of the method


def compare(
    program: Program,
    name: str,
    steps: Sequence[Arguments],
    tolerance: Tolerance | None = None,
    state: PathLike | None = None,
    joined: bool = True,
    progress: OnProgress = ignore,
) -> Comparison:
    """Compare each call of a method with its op's NumPy reference, and the outputs with other ways to compute them.

    `program` was loaded with `passes=()`; the passes are applied here. `steps` are the arguments of consecutive calls
    of the method: what it keeps, such as a KV cache, carries over. `state` is a file written by `Method.snapshot`.
    Calls are compared as they run, some joined into one by passes; with `joined=False`, as the file has them.
    """
    graph = straight_graph(program, name, steps, joined)
    return _Comparing(program, name, graph, tolerance or Tolerance(), state, progress).run(steps)


def fused(graph: Graph) -> Graph:
    """The graph as an ordinary method runs it: with every pass."""
    return apply_passes(graph, tuple(PASSES))[0]


def straight_graph(program: Program, name: str, steps: Sequence[Arguments], joined: bool = True) -> Graph:
    """The graph of a method, with passes or as the file has it, its branches decided by the inputs."""
    graph = fused(program.graph(name)) if joined else program.graph(name)
    if any(isinstance(step, Jump) for step in graph.steps):
        if len(steps) != 1:
            raise UnsupportedError(
                f"{name} has branches: it is compared for one call at a time, not {len(steps)}", code="branches"
            )
        graph = straighten(program, name, graph, steps[0])
    return graph


class _Comparing:
    """The runs of one comparison."""

    def __init__(
        self,
        program: Program,
        name: str,
        graph: Graph,
        tolerance: Tolerance,
        state: PathLike | None,
        progress: OnProgress,
    ) -> None:
        self.graph = graph
        self.tolerance = tolerance
        self.progress = progress
        self.exposed = Exposed(graph)
        self.references = References(self.exposed)
        self.ideal = Ideal(self.exposed, self.references, graph.outputs)
        self.windows = list(self.exposed.windows())
        self.capture = Capture(program, name, self.exposed, [ids for _, ids in self.windows], state)
        self.ordinary = program.method(name, fused)
        same = fused(program.graph(name)) == program.graph(name)
        self.unfused = None if same else program.method(name)
        self.report = Comparison(name, "reference", tolerance.rtol, tolerance.atol, gaps=self.ideal.gaps)
        for method in (self.ordinary, self.unfused):
            if method is not None and state is not None:
                method.restore(state)

    def run(self, steps: Sequence[Arguments]) -> Comparison:
        total = len(steps) * len(self.exposed.watched)
        for number, args in enumerate(steps):
            outputs = self.ordinary.run(args)
            self.ideal.begin()
            seen: dict[int, Any] = {}
            for (calls, _), seen in zip(self.windows, self.capture.run(args), strict=True):
                for watched in calls:
                    self.progress(Progress("compare", len(self.report.calls), total, "calls"))
                    self.report.calls.append(self._call(number, watched, seen))
                    self.ideal.advance(watched, seen)
            self._outputs(number, "references", outputs, [self.ideal.values.get(v) for v in self.graph.outputs])
            self._outputs(number, "no shared buffers", outputs, [seen.get(v) for v in self.exposed.outputs])
            if self.unfused is not None:
                self._outputs(number, "no passes", outputs, self.unfused.run(args))
        self.progress(Progress("compare", total, total, "calls"))
        return self.report

    def _call(self, step: int, watched: Watched, seen: Mapping[int, Any]) -> CallReport:
        call = watched.call
        report = CallReport(step, watched.index, label(call, self.graph), str(call.origin))
        if not self.references.computes(call):
            report.skipped = "no tensor is computed"
            return report
        tensors = self.references.operands(watched, seen, {})
        report.finite_inputs = all(finite(array) for array in tensors.values())
        for value_id, holder in watched.after.items():
            report.watch(value_id, seen[holder])
        report.skipped = self.references.skipped(call)
        if report.skipped is None:
            self._difference(report, watched, tensors, seen)
        if self.report.suspect is None and (report.outside or (report.nan and report.finite_inputs)):
            scalars = self.references.scalars(watched, seen)
            self.report.suspect = Suspect(report, call, self.exposed.graph, tensors, scalars)
        return report

    def _difference(
        self, report: CallReport, watched: Watched, tensors: Mapping[int, Array], seen: Mapping[int, Any]
    ) -> None:
        try:
            wanted = self.references.run(watched, tensors, seen)
        except Error as error:
            report.skipped = str(error)
            return
        for value_id, holder in watched.after.items():
            report.outputs[value_id] = difference(seen[holder], wanted[value_id], self.tolerance)

    def _outputs(self, step: int, against: str, outputs: Sequence[Any], others: Sequence[Any]) -> None:
        for position, (value_id, got, want) in enumerate(zip(self.graph.outputs, outputs, others, strict=True)):
            if isinstance(self.graph.values[value_id], TensorSpec) and want is not None:
                found = difference(got, want, self.exposed.end_tolerance(self.tolerance))
                self.report.ends.append(EndReport(step, position, against, found))

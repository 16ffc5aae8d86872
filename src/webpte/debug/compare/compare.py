"""Compare a method with its references, with other ways to run it, or with another program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from ...errors import Error, InputError, UnsupportedError
from ...graph import Call, Graph, Jump, String, TensorSpec
from ...lowering import find
from ...progress import OnProgress, Progress, ignore
from ...runtime import Program, load_program
from ...runtime.checks import check_method_name
from ...runtime.manifest import is_bundle
from ...typing import Array, PathLike
from ..inputs import check_specs, make_inputs
from .bundle import compare_bundle
from .capture import MAX_READBACK_BYTES, Capture, Exposed, Ideal, References, Watched, fused, straighten
from .executorch import EXECUTORCH, compare_with_executorch
from .reports import CallReport, CompareReport, Comparison, EndReport, Suspect, Tolerance, difference, finite, label
from .repro import write_repro

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
    of the method; state, such as a KV cache, carries over. `state` is a file written by `Method.snapshot`. Calls are
    compared after fusion; with `joined=False`, as in the file.
    """
    graph = straight_graph(program, name, steps, joined)
    return _Comparing(program, name, graph, tolerance or Tolerance(), state, progress).run(steps)


def straight_graph(program: Program, name: str, steps: Sequence[Arguments], joined: bool = True) -> Graph:
    """Return the graph of a method, with passes or as in the file, with its branches decided by the inputs."""
    graph = fused(program.graph(name)) if joined else program.graph(name)
    if any(isinstance(step, Jump) for step in graph.steps):
        if len(steps) != 1:
            raise UnsupportedError(
                f"{name} has branches, so only one call can be compared, got {len(steps)}", code="branches"
            )
        graph = straighten(program, name, graph, steps[0])
    return graph


class _Comparing:
    """The runs of a comparison with references."""

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
            expected = self.references.run(watched, tensors, seen)
        except Error as error:
            report.failed = str(error)
            return
        tolerance = self.tolerance
        if _runs_program(watched.call, self.exposed.graph):
            tolerance = tolerance.through(array.dtype for array in tensors.values())
        for value_id, holder in watched.after.items():
            report.outputs[value_id] = difference(seen[holder], expected[value_id], tolerance)

    def _outputs(self, step: int, against: str, outputs: Sequence[Any], others: Sequence[Any]) -> None:
        for position, (value_id, got, want) in enumerate(zip(self.graph.outputs, outputs, others, strict=True)):
            if isinstance(self.graph.values[value_id], TensorSpec) and want is not None:
                result = difference(got, want, self.exposed.end_tolerance(self.tolerance))
                self.report.ends.append(EndReport(step, position, against, result))


def _runs_program(call: Call, graph: Graph) -> bool:
    """Return whether the call has an elementwise program, which may round to narrower dtypes than its output's."""
    op = find(call)
    program = None if op is None else op.arguments(call).get("program")
    return isinstance(program, int) and isinstance(graph.values[program], String)


Pair = tuple[Watched, Watched]


def compare_with(
    program: Program,
    other: Program,
    name: str,
    steps: Sequence[Arguments],
    tolerance: Tolerance | None = None,
    progress: OnProgress = ignore,
) -> Comparison:
    """Run the same method of two programs on the same inputs. Each call has the inputs of its own program.

    A difference in one call propagates to later calls: the first call out of tolerance is where the two diverge.
    """
    tolerance = tolerance or Tolerance()
    mine, theirs = (Exposed(straight_graph(p, name, steps)) for p in (program, other))
    windows = list(_windows(mine, theirs, _matched(mine, theirs)))
    runs = Capture(program, name, mine, [ids for _, ids, _ in windows])
    others = Capture(other, name, theirs, [ids for _, _, ids in windows])
    report = Comparison(name, other.path, tolerance.rtol, tolerance.atol)
    tolerance = mine.end_tolerance(tolerance)
    total = len(steps) * sum(len(pairs) for pairs, _, _ in windows)
    for number, args in enumerate(steps):
        seen: dict[int, Any] = {}
        expected: dict[int, Any] = {}
        for (pairs, _, _), seen, expected in zip(windows, runs.run(args), others.run(args), strict=True):
            for pair in pairs:
                progress(Progress("compare", len(report.calls), total, "calls"))
                report.calls.append(_call(number, pair, mine.graph, seen, expected, tolerance))
        for position, (a, b) in enumerate(zip(mine.outputs, theirs.outputs, strict=False)):
            if isinstance(mine.graph.values[a], TensorSpec) and a in seen and b in expected:
                result = difference(seen[a], expected[b], tolerance)
                report.ends.append(EndReport(number, position, report.against, result))
    progress(Progress("compare", total, total, "calls"))
    return report


def _call(
    step: int, pair: Pair, graph: Graph, seen: dict[int, Any], expected: dict[int, Any], tolerance: Tolerance
) -> CallReport:
    a, b = pair
    report = CallReport(step, a.index, label(a.call, graph), str(a.call.origin))
    for mine, theirs in zip(a.after.values(), b.after.values(), strict=True):
        if mine in seen and theirs in expected:
            report.outputs[mine] = difference(seen[mine], expected[theirs], tolerance)
            report.watch(mine, seen[mine])
    return report


def _matched(mine: Exposed, theirs: Exposed) -> list[Pair]:
    """Return the calls that match in both graphs: the longest runs of the same ops with the same outputs."""
    matcher = SequenceMatcher(None, _keys(mine), _keys(theirs), autojunk=False)
    return [
        (mine.watched[block.a + i], theirs.watched[block.b + i])
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
        if _computes(mine.graph, mine.watched[block.a + i].call)
    ]


def _keys(exposed: Exposed) -> list[tuple[object, ...]]:
    """Return keys that are equal for equal calls: the op, under any of its names, and the bounds of its outputs."""
    keys: list[tuple[object, ...]] = []
    for watched in exposed.watched:
        values = (exposed.graph.values[v] for v in watched.after)
        bounds = tuple(v.dims if isinstance(v, TensorSpec) else None for v in values)
        op = find(watched.call)
        keys.append((watched.call.name if op is None else id(op), bounds))
    return keys


def _computes(graph: Graph, call: Call) -> bool:
    return any(isinstance(graph.values[v], TensorSpec) for v in call.outs)


def _windows(
    mine: Exposed, theirs: Exposed, pairs: Sequence[Pair]
) -> Iterator[tuple[list[Pair], list[int], list[int]]]:
    """Yield consecutive pairs with the values to read back from both programs, within MAX_READBACK_BYTES."""
    held: list[Pair] = []
    left: list[int] = []
    right: list[int] = []
    for pair in pairs:
        a, b = (e.readable(w.after.values()) for e, w in zip((mine, theirs), pair, strict=True))
        if held and sum(map(mine.nbytes, (*left, *a))) + sum(map(theirs.nbytes, (*right, *b))) > MAX_READBACK_BYTES:
            yield held, left, right
            held, left, right = [], [], []
        held, left, right = [*held, pair], [*left, *a], [*right, *b]
    ends = (list(dict.fromkeys([*left, *mine.readable(mine.outputs)])), theirs.readable(theirs.outputs))
    yield held, ends[0], list(dict.fromkeys([*right, *ends[1]]))


def compare_file(
    path: PathLike,
    data: Iterable[PathLike] = (),
    *,
    method: str = "forward",
    inputs: Sequence[Sequence[str]] = ((),),
    seed: int = 0,
    against: PathLike | None = None,
    tolerance: Tolerance | None = None,
    state: PathLike | None = None,
    joined: bool = True,
    repro: PathLike | None = None,
    progress: OnProgress = ignore,
) -> CompareReport:
    """Compare a method of a file with the references, with the method of another file, or, if `against` is
    "executorch", with the executorch wheel; or compare a bundle, see :mod:`webpte.debug.compare.bundle`.

    `inputs` has a list of strings (see :mod:`webpte.debug.inputs`) for each consecutive call of the method. `repro` is
    a folder for the first call at fault, as a script and its data.
    """
    for specs in inputs:
        check_specs(specs)
    if is_bundle(path):
        if state is not None or repro is not None or not joined:
            raise InputError(
                f"{path} is a bundle: only its outputs can be compared",
                hint="Leave out --state, --repro and --no-passes.",
                code="not_applicable",
            )
        named: dict[str, Any] = {"method": method, "inputs": inputs, "seed": seed, "against": against}
        return compare_bundle(path, data, **named, tolerance=tolerance, progress=progress)
    tolerance = tolerance or Tolerance()
    with load_program(path, data, passes=(), exact=True) as program:
        check_method_name(method, program.method_names, "method")
        ordinary = program.method(method, fused, progress)
        values = [make_inputs(ordinary.inputs, specs, seed) for specs in inputs]
        steps = [[argument.value for argument in arguments] for arguments in values]
        if against is None:
            result = compare(
                program, method, steps=steps, tolerance=tolerance, state=state, joined=joined, progress=progress
            )
        elif against == EXECUTORCH:
            result = compare_with_executorch(
                program, path, data=data, name=method, steps=steps, tolerance=tolerance, progress=progress
            )
        else:
            with load_program(against, data, passes=()) as other:
                result = compare_with(program, other, method, steps, tolerance, progress)
        report: CompareReport = {
            "file": str(path),
            "adapter": ordinary.adapter,
            "inputs": [[argument.source for argument in arguments] for arguments in values],
            **result.data(),
            "repro": None,
        }
    if repro is not None:
        files = write_repro(repro, result, _title(result, report))
        report["repro"] = None if files is None else [str(file) for file in files]
    return report


def _title(result: Comparison, report: CompareReport) -> str:
    """Return the title of a repro."""
    if result.suspect is None:
        return ""
    call = result.suspect.report
    differences = "\n".join(f"    {output}" for output in call.outputs.values())
    return (
        f"{call.op} ({call.origin}) of {Path(report['file']).name}, {report['method']}.\n\n"
        f"On {report['adapter']}:\n{differences}"
    )

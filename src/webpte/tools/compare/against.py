"""A method against another program's: outputs, and the calls in which both graphs agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from ...graph import Call, Graph, TensorSpec
from ...lowering import find
from ...progress import OnProgress, Progress, ignore
from ...runtime import Program
from .capture import BUDGET, Capture, Exposed, Watched
from .compare import Arguments, straight_graph
from .measure import Tolerance, difference
from .reports import CallReport, Comparison, EndReport, label

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

    What differs in one call differs in those that follow: the first call out of tolerance is where the two part.
    """
    tolerance = tolerance or Tolerance()
    mine, theirs = (Exposed(straight_graph(p, name, steps)) for p in (program, other))
    windows = list(_windows(mine, theirs, _matched(mine, theirs)))
    runs = Capture(program, name, mine, [ids for _, ids, _ in windows])
    others = Capture(other, name, theirs, [ids for _, _, ids in windows])
    report = Comparison(name, str(other.file.path), tolerance.rtol, tolerance.atol)
    tolerance = mine.end_tolerance(tolerance)
    total = len(steps) * sum(len(pairs) for pairs, _, _ in windows)
    for number, args in enumerate(steps):
        seen: dict[int, Any] = {}
        wanted: dict[int, Any] = {}
        for (pairs, _, _), seen, wanted in zip(windows, runs.run(args), others.run(args), strict=True):
            for pair in pairs:
                progress(Progress("compare", len(report.calls), total, "calls"))
                report.calls.append(_call(number, pair, mine.graph, seen, wanted, tolerance))
        for position, (a, b) in enumerate(zip(mine.outputs, theirs.outputs, strict=False)):
            if isinstance(mine.graph.values[a], TensorSpec) and a in seen and b in wanted:
                found = difference(seen[a], wanted[b], tolerance)
                report.ends.append(EndReport(number, position, report.against, found))
    progress(Progress("compare", total, total, "calls"))
    return report


def _call(
    step: int, pair: Pair, graph: Graph, seen: dict[int, Any], wanted: dict[int, Any], tolerance: Tolerance
) -> CallReport:
    a, b = pair
    report = CallReport(step, a.index, label(a.call, graph), str(a.call.origin))
    for mine, theirs in zip(a.after.values(), b.after.values(), strict=True):
        if mine in seen and theirs in wanted:
            report.outputs[mine] = difference(seen[mine], wanted[theirs], tolerance)
            report.watch(mine, seen[mine])
    return report


def _matched(mine: Exposed, theirs: Exposed) -> list[Pair]:
    """Calls that stand in the same place of both graphs: the longest runs of the same ops with the same outputs."""
    matcher = SequenceMatcher(None, _keys(mine), _keys(theirs), autojunk=False)
    return [
        (mine.watched[block.a + i], theirs.watched[block.b + i])
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
        if _computes(mine.graph, mine.watched[block.a + i].call)
    ]


def _keys(exposed: Exposed) -> list[tuple[object, ...]]:
    """What makes calls equal: the op, under whichever of its names, and the bounds of what it writes."""
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
    """Consecutive pairs with the values to read back from either program, within the budget."""
    held: list[Pair] = []
    left: list[int] = []
    right: list[int] = []
    for pair in pairs:
        a, b = (e.readable(w.after.values()) for e, w in zip((mine, theirs), pair, strict=True))
        if held and sum(map(mine.nbytes, (*left, *a))) + sum(map(theirs.nbytes, (*right, *b))) > BUDGET:
            yield held, left, right
            held, left, right = [], [], []
        held, left, right = [*held, pair], [*left, *a], [*right, *b]
    ends = (list(dict.fromkeys([*left, *mine.readable(mine.outputs)])), theirs.readable(theirs.outputs))
    yield held, ends[0], list(dict.fromkeys([*right, *ends[1]]))

"""Divide calls into segments for the device and the CPU.

A straight line of calls is cut only where data must cross to the host: a CPU kernel, a scalar taken from computed data,
a jump. Calls are leveled by their dependencies, so that a CPU kernel splits the work in two, however often it is
called.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from ..errors import GraphError, Problem, UnsupportedError, common_code, remedies
from ..graph import LIVE_SCALARS, Call, DType, Graph, Jump, TensorSpec, fused_by_exporter, keep_out
from ..graph.names import CHECKS
from ..lowering import Op, find, gpu_op, mutated_values, refused_dtypes
from ..version import DOCUMENTATION


@dataclass(frozen=True, slots=True)
class PlanSegment:
    """Calls that share one submit, by their index among the graph's steps."""

    steps: tuple[int, ...]
    tensors: tuple[int, ...]  # read here, made elsewhere: their live dims select the schedule
    scalars: tuple[int, ...]  # the same, scalars
    readbacks: tuple[int, ...]  # computed here, read on the host
    host_reads: tuple[int, ...] = ()  # constants and state whose data the lowerings read on the host
    updates: tuple[int, ...] = ()  # state written here


@dataclass(frozen=True, slots=True)
class HostCalls:
    """Calls that run on the CPU."""

    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlowBlock:
    """Stages without jumps. If `condition` is false, block `target` follows, else the next block."""

    stages: tuple[PlanSegment | HostCalls, ...]
    condition: int | None = None
    target: int | None = None


@dataclass(frozen=True)
class Flow:
    """A method as blocks of stages."""

    blocks: tuple[FlowBlock, ...]
    pinned: frozenset[int]  # written in place, more than once, or across blocks: never aliased
    mutated: frozenset[int]
    shared: frozenset[int]  # used by more than one block: never share a buffer
    on_host: frozenset[int]  # read on the host while the method runs, whether or not they are outputs
    state: frozenset[int]  # outlives a call

    @property
    def segments(self) -> tuple[PlanSegment, ...]:
        return tuple(stage for block in self.blocks for stage in block.stages if isinstance(stage, PlanSegment))


def cut_graph(graph: Graph, cpu_kernels: Container[str], fallback: bool = False) -> Flow:
    """Return the graph as blocks. The CPU runs `cpu_kernels` outside delegates, and inside with `fallback`."""
    refuse_unsupported(graph, cpu_kernels, fallback)
    spans = _block_spans(graph)
    kept = frozenset(v for v, spec in enumerate(graph.values) if isinstance(spec, TensorSpec) and spec.mutable)
    mutated = kept | frozenset(v for step in graph.calls for v in mutated_values(step, graph))
    shared = _shared(graph, spans)
    on_host = _read_on_host(graph)
    state = _state(graph, mutated)
    # State stays on the device until it is read: only values that would be lost are read back in advance.
    read_back = (on_host - state) | {v for v in graph.outputs if isinstance(graph.values[v], TensorSpec)}
    starts = {start: index for index, (start, _) in enumerate(spans)}
    blocks = []
    for start, stop in spans:
        last = graph.steps[stop - 1] if stop > start else None
        stages = _StageBuilder(graph, read_back, state).cut(range(start, stop))
        if isinstance(last, Jump):
            target = starts.get(last.target)
            if target is None:
                raise GraphError(f"{last.origin} jumps to step {last.target}, which does not start a block")
            blocks.append(FlowBlock(stages, last.condition, target))
        else:
            blocks.append(FlowBlock(stages))
    return Flow(tuple(blocks), mutated | shared | _rewritten(graph), mutated, shared, on_host, state)


def _state(graph: Graph, mutated: frozenset[int]) -> frozenset[int]:
    """Return the used values that outlive a call: mutable buffers, and constants that a call writes in place."""
    used = set(graph.outputs).union(*(_touched(graph, step) for step in graph.steps))
    specs = {v: spec for v in used & mutated if isinstance(spec := graph.values[v], TensorSpec)}
    return frozenset(v for v, spec in specs.items() if spec.stored)


def _block_spans(graph: Graph) -> list[tuple[int, int]]:
    cuts = {0, len(graph.steps)}
    for index, step in enumerate(graph.steps):
        if isinstance(step, Jump):
            cuts |= {index + 1, step.target}
    ordered = sorted(cuts)
    # A jump may target the end of the method: an empty last block.
    spans = list(itertools.pairwise(ordered))
    if len(ordered) > 2 or not graph.steps:
        spans.append((len(graph.steps), len(graph.steps)))
    return spans


def _touched(graph: Graph, step: Call | Jump) -> set[int]:
    if isinstance(step, Jump):
        return {step.condition}
    return {*graph.flatten(step.args), *step.outs}


def _shared(graph: Graph, spans: list[tuple[int, int]]) -> frozenset[int]:
    if len(spans) == 1:
        return frozenset()
    segments_of: dict[int, set[int]] = defaultdict(set)
    for index, (start, stop) in enumerate(spans):
        for step in graph.steps[start:stop]:
            for value_id in _touched(graph, step):
                segments_of[value_id].add(index)
    # Outputs are read after the last block, whichever block wrote them.
    return frozenset(v for v, blocks in segments_of.items() if len(blocks) > 1) | frozenset(graph.outputs)


def _rewritten(graph: Graph) -> frozenset[int]:
    """Return the values that change during a call: written twice, or read before they are written."""
    count: dict[int, int] = defaultdict(int, dict.fromkeys(graph.inputs, 1))
    read: set[int] = set()
    early: set[int] = set()
    for call in graph.calls:
        read.update(graph.flatten(call.args))
        early.update(read.intersection(call.outs))
        for out in call.outs:
            count[out] += 1
    return frozenset(v for v, writers in count.items() if writers > 1) | early


def _read_on_host(graph: Graph) -> frozenset[int]:
    read_back: set[int] = set()
    for step in graph.steps:
        if isinstance(step, Jump):
            read_back.add(step.condition)
        elif (op := gpu_op(step, graph)) is None:
            read_back.update(graph.flatten(step.args))
        else:
            read_back.update(step.args[p] for p in op.host_read(step))
            read_back.update(step.outs if step.name in CHECKS else ())
    return frozenset(v for v in read_back if isinstance(graph.values[v], TensorSpec))


class _StageBuilder:
    """Levels one block: host phase 0, segment 0, host phase 1, segment 1, ...

    A moment is 2n for phase n and 2n + 1 for segment n. Inside a stage calls keep their order.
    """

    def __init__(self, graph: Graph, read_back: frozenset[int], state: frozenset[int]) -> None:
        self.graph = graph
        self.results = read_back
        self.state = state
        self.written: dict[int, int] = {}  # value -> the moment it is written, for the last time so far
        self.read: dict[int, int] = {}  # value -> the last moment at which it is read
        self.segments: dict[int, list[int]] = defaultdict(list)
        self.phases: dict[int, list[int]] = defaultdict(list)
        self.reads: dict[int, set[int]] = defaultdict(set)  # segment -> values that the host reads

    def cut(self, indices: Iterable[int]) -> tuple[PlanSegment | HostCalls, ...]:
        for index in indices:
            step = self.graph.steps[index]
            if isinstance(step, Call):
                self._place(index, step)
        self._read_back(self.results)
        stages: list[PlanSegment | HostCalls] = []
        for level in range(max([*self.segments, *self.phases], default=-1) + 1):
            if self.phases.get(level):
                stages.append(HostCalls(tuple(self.phases[level])))
            if self.segments.get(level):
                stages.append(self._segment(level))
        return tuple(stages)

    def _place(self, index: int, call: Call) -> None:
        op = gpu_op(call, self.graph)
        args = self.graph.flatten(call.args)
        outs = (*call.outs, *mutated_values(call, self.graph))
        host_reads = args if op is None else [call.args[p] for p in op.host_read(call)]
        moment = max(
            [
                0,
                *(self.written.get(a, 0) for a in args),
                *(_on_host(self.written.get(a, 0)) for a in host_reads),
                *(max(self.written.get(o, 0), self.read.get(o, 0)) for o in outs),
            ]
        )
        moment = _on_host(moment) if op is None else moment | 1
        (self.phases if op is None else self.segments)[moment // 2].append(index)
        self._read_back(host_reads)
        for arg in args:
            self.read[arg] = max(self.read.get(arg, 0), moment)
        for value_id in outs:
            self.written[value_id] = moment

    def _read_back(self, values: Iterable[int]) -> None:
        """Record that the host reads these values: the segment that wrote them reads them back."""
        for value_id in values:
            moment = self.written.get(value_id, 0)
            if moment % 2 and isinstance(self.graph.values[value_id], TensorSpec):
                self.reads[moment // 2].add(value_id)

    def _segment(self, level: int) -> PlanSegment:
        steps = self.segments[level]
        written: set[int] = set()
        tensors: dict[int, None] = {}
        scalars: dict[int, None] = {}
        host_reads: dict[int, None] = {}
        for index in steps:
            call = self.graph.steps[index]
            assert isinstance(call, Call)
            for arg in self.graph.flatten(call.args):
                value = self.graph.values[arg]
                if arg in written:
                    continue
                if isinstance(value, TensorSpec) and not value.stored:
                    tensors[arg] = None
                elif isinstance(value, LIVE_SCALARS):
                    scalars[arg] = None
            written.update(call.outs)
            if op := gpu_op(call, self.graph):
                written.update(mutated_values(call, self.graph))
                host_reads |= dict.fromkeys(call.args[p] for p in op.host_read(call) if self._stored(call.args[p]))
        reads = tuple(sorted(self.reads[level]))
        updates = tuple(sorted(written & self.state))
        return PlanSegment(tuple(steps), tuple(tensors), tuple(scalars), reads, tuple(host_reads), updates)

    def _stored(self, value_id: int) -> bool:
        value = self.graph.values[value_id]
        return isinstance(value, TensorSpec) and value.stored


def _on_host(moment: int) -> int:
    """Return the first moment at which the host has what was written at a moment."""
    return moment + moment % 2


INSTALL_TORCH = "Installing torch lets webpte use torch's own kernels for ops outside delegates."
OTHER_RELEASE = (
    "Export the model again with ExecuTorch 1.5, all of whose Vulkan ops run here, or, if a later release wrote the "
    "file, use a later webpte."
)
ON_CPU = 'Or let the CPU run them, slowly: load(path, fallback="cpu").'
NO_KERNEL = (
    "webpte has no kernel for this op, and a file may not call torch's. Remove it from the module, or register an op "
    f"of your own: {DOCUMENTATION}/extending.html. Commands import its module with --import MODULE."
)


def unsupported(graph: Graph, cpu_kernels: Container[str], fallback: bool = False) -> list[Problem]:
    """Return a problem per op without a kernel, and one per call whose dtypes its op does not support."""
    missing: dict[tuple[bool, str], list[str]] = defaultdict(list)  # (outside delegates, name) -> the calls
    dtypes: list[Problem] = []
    for call in graph.calls:
        if gpu_op(call, graph) is not None or ((call.kernel or fallback) and call.name in cpu_kernels):
            continue
        if (op := find(call)) is not None:
            dtypes.append(_wrong_dtypes(op, call, graph))
        else:
            missing[call.kernel, call.name].append(str(call.origin))
    return [_without_kernel(name, outside, calls) for (outside, name), calls in sorted(missing.items())] + dtypes


def _without_kernel(name: str, outside: bool, calls: list[str]) -> Problem:
    count = f"(x{len(calls)})"
    if outside:
        return Problem(
            "kernel",
            name,
            f"{count}, outside delegates, has no CPU kernel",
            tuple(calls),
            by_torch(name),
            "no_cpu_kernel",
        )
    return Problem("op", name, f"{count} has no kernel", tuple(calls), " ".join(_without([name])), "unknown_op")


def _without(names: Sequence[str]) -> list[str]:
    """Return how to export without ops that have no kernel."""
    return [keep_out(names)] + [OTHER_RELEASE] * any(map(fused_by_exporter, names))


def by_torch(name: str) -> str:
    """Return the remedy for an op outside delegates. If torch is installed, it has no usable kernel either."""
    return INSTALL_TORCH if name.startswith("aten::") and find_spec("torch") is None else NO_KERNEL


def _wrong_dtypes(op: Op, call: Call, graph: Graph) -> Problem:
    detail = f"cannot take {', '.join(refused_dtypes(op, call, graph)) or 'these arguments'}"
    remedy = by_torch(call.name)
    if not call.kernel:
        taken = ", ".join(sorted(dtype.short for dtype in op.dtypes if dtype is not DType.WIDE_FLOAT16))
        remedy = f"Let the model give {call.name} one of {taken}. Or: {keep_out([call.name])}"
    return Problem("dtype", call.name, detail, (str(call.origin),), remedy, "dtype")


def advice(problems: Sequence[Problem], cpu_kernels: Container[str], fallback: bool = False) -> list[str]:
    """Return the remedies of all problems, with one block list for all ops.

    The fallback is advised only if it is not in use and has a kernel for each call that it is about.
    """
    ops = sorted({problem.subject for problem in problems if problem.kind == "op"})
    lines = _without(ops) if ops else []
    lines += remedies([problem for problem in problems if problem.kind != "op"])
    inside = [p.subject for p in problems if p.kind in ("op", "dtype") and "::" not in p.subject]
    if inside and not fallback and all(name in cpu_kernels for name in inside):
        lines.append(ON_CPU)
    return lines


def refuse_unsupported(graph: Graph, cpu_kernels: Container[str], fallback: bool) -> None:
    """Raise an UnsupportedError that lists every op without a kernel, if there are any."""
    problems = unsupported(graph, cpu_kernels, fallback)
    if not problems:
        return
    lines = [f"{len(problems)} op{'s' * (len(problems) > 1)} of {graph.name} cannot run:"]
    lines += [f"  {_line(problem)}" for problem in problems]
    lines += advice(problems, cpu_kernels, fallback)
    items = [_line(p) if p.kind == "dtype" else p.subject for p in problems]
    raise UnsupportedError("\n".join(lines), items, code=common_code(problems))


def _line(problem: Problem) -> str:
    if problem.kind == "dtype":  # a single call, identified by its origin
        return f"{problem.subject} ({problem.where[0]}) {problem.detail}"
    return str(problem)

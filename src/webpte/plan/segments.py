"""Which calls run where, and in how many submits.

A straight line of calls is cut only where data must cross to the host: a CPU kernel, a scalar taken from computed data,
a jump. Calls are levelled by what they depend on, so that a CPU kernel splits the work in two, not into as many pieces
as it is called.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass

from ..errors import GraphError
from ..graph import LIVE_SCALARS, Call, Graph, Jump, TensorSpec
from ..ops import gpu_op
from .support import refuse_unsupported


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls that share one submit, by their index among the graph's steps."""

    steps: tuple[int, ...]
    tensors: tuple[int, ...]  # read here, made elsewhere: their live dims select the schedule
    scalars: tuple[int, ...]  # likewise
    reads: tuple[int, ...]  # made here, wanted on the host


@dataclass(frozen=True, slots=True)
class HostCalls:
    """Calls that run on the CPU."""

    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A straight line of work. After it, `jump` goes to block `target` if false, else to the next block."""

    stages: tuple[Segment | HostCalls, ...]
    condition: int | None = None
    target: int | None = None


@dataclass(frozen=True)
class Layout:
    """The whole method, cut."""

    blocks: tuple[Block, ...]
    pinned: frozenset[int]  # written in place, more than once, or across blocks: never aliased
    mutated: frozenset[int]
    shared: frozenset[int]  # used by more than one block: never share a buffer
    hosted: frozenset[int]  # read on the host while the method runs, whether or not they are outputs

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(stage for block in self.blocks for stage in block.stages if isinstance(stage, Segment))


def lay_out(graph: Graph, cpu_kernels: Container[str], fallback: bool = False) -> Layout:
    """Cut the graph. `cpu_kernels` tells what the CPU can run: kernel calls, and with `fallback` calls in delegates."""
    refuse_unsupported(graph, cpu_kernels, fallback)
    spans = _block_spans(graph)
    kept = frozenset(v for v, spec in enumerate(graph.values) if isinstance(spec, TensorSpec) and spec.mutable)
    mutated = kept | frozenset(
        step.args[p] for step in graph.calls if (op := gpu_op(step, graph)) for p in op.mutated(step)
    )
    shared = _shared(graph, spans)
    hosted = _wanted_on_host(graph)
    wanted = hosted | {v for v in graph.outputs if isinstance(graph.values[v], TensorSpec)}
    starts = {start: index for index, (start, _) in enumerate(spans)}
    blocks = []
    for start, stop in spans:
        last = graph.steps[stop - 1] if stop > start else None
        stages = _Stages(graph, wanted).cut(range(start, stop))
        if isinstance(last, Jump):
            target = starts.get(last.target)
            if target is None:
                raise GraphError(f"{last.origin} jumps to step {last.target}, which starts no block")
            blocks.append(Block(stages, last.condition, target))
        else:
            blocks.append(Block(stages))
    return Layout(tuple(blocks), mutated | shared | _rewritten(graph), mutated, shared, hosted)


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
    seen: dict[int, set[int]] = defaultdict(set)
    for index, (start, stop) in enumerate(spans):
        for step in graph.steps[start:stop]:
            for value_id in _touched(graph, step):
                seen[value_id].add(index)
    # Outputs are read after the last block, whichever block wrote them.
    return frozenset(v for v, blocks in seen.items() if len(blocks) > 1) | frozenset(graph.outputs)


def _rewritten(graph: Graph) -> frozenset[int]:
    """Values that are not the same all through a call: written twice, or read before they are written."""
    count: dict[int, int] = defaultdict(int, dict.fromkeys(graph.inputs, 1))
    read: set[int] = set()
    early: set[int] = set()
    for call in graph.calls:
        read.update(graph.flatten(call.args))
        early.update(read.intersection(call.outs))
        for out in call.outs:
            count[out] += 1
    return frozenset(v for v, writers in count.items() if writers > 1) | early


def _wanted_on_host(graph: Graph) -> frozenset[int]:
    wanted: set[int] = set()
    for step in graph.steps:
        if isinstance(step, Jump):
            wanted.add(step.condition)
        elif (op := gpu_op(step, graph)) is None:
            wanted.update(graph.flatten(step.args))
        else:
            wanted.update(step.args[p] for p in op.host_read(step))
    return frozenset(v for v in wanted if isinstance(graph.values[v], TensorSpec))


class _Stages:
    """Levels one block: host phase 0, segment 0, host phase 1, segment 1, ..."""

    def __init__(self, graph: Graph, wanted: frozenset[int]) -> None:
        self.graph = graph
        self.wanted = wanted
        self.device: dict[int, int] = {}  # value -> segment from which the device has it
        self.host: dict[int, int] = {}  # value -> phase from which the host has it
        self.readers: dict[int, int] = {}  # value -> last stage that reads it
        self.segments: dict[int, list[int]] = defaultdict(list)
        self.phases: dict[int, list[int]] = defaultdict(list)

    def cut(self, indices: Iterable[int]) -> tuple[Segment | HostCalls, ...]:
        for index in indices:
            step = self.graph.steps[index]
            if isinstance(step, Call):
                self._place(index, step)
        stages: list[Segment | HostCalls] = []
        for level in range(max([*self.segments, *self.phases], default=-1) + 1):
            if self.phases.get(level):
                stages.append(HostCalls(tuple(self.phases[level])))
            if self.segments.get(level):
                stages.append(self._segment(level))
        return tuple(stages)

    def _place(self, index: int, call: Call) -> None:
        op = gpu_op(call, self.graph)
        args = self.graph.flatten(call.args)
        after_readers = max((self.readers.get(o, 0) for o in call.outs), default=0)
        if op is None:
            level = max([after_readers, *(self.host.get(a, 0) for a in args)])
            self.phases[level].append(index)
            written, device, host = call.outs, level, level
        else:
            mutated = tuple(call.args[p] for p in op.mutated(call))
            level = max(
                [
                    after_readers,
                    *(self.device.get(a, 0) for a in args),
                    *(self.host.get(call.args[p], 0) for p in op.host_read(call)),
                    *(self.readers.get(m, 0) for m in mutated),
                ]
            )
            self.segments[level].append(index)
            written, device, host = (*call.outs, *mutated), level, level + 1
        for arg in args:
            self.readers[arg] = max(self.readers.get(arg, 0), level)
        for value_id in written:
            self.device[value_id], self.host[value_id] = device, host

    def _segment(self, level: int) -> Segment:
        steps = self.segments[level]
        made: set[int] = set()
        tensors: dict[int, None] = {}
        scalars: dict[int, None] = {}
        for index in steps:
            call = self.graph.steps[index]
            assert isinstance(call, Call)
            for arg in self.graph.flatten(call.args):
                value = self.graph.values[arg]
                if arg in made:
                    continue
                if isinstance(value, TensorSpec) and not value.stored:
                    tensors[arg] = None
                elif isinstance(value, LIVE_SCALARS):
                    scalars[arg] = None
            made.update(call.outs)
            if op := gpu_op(call, self.graph):
                made.update(call.args[p] for p in op.mutated(call))
        reads = tuple(v for v in sorted(made & self.wanted) if self.device.get(v) == level)
        return Segment(tuple(steps), tuple(tensors), tuple(scalars), reads)

"""Running lowerings: from live shapes to a Schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import Error, GraphError, ShapeError
from ..graph import Call, Graph, TensorSpec
from ..graph.expressions import EXPRESSIONS, Assumed, Number, Numbers
from ..lowering import Binding, BoundCall, Context, Frame, Guard, Job, gpu_op
from ..wgsl import Caps
from ..wgsl.kernel import SYM_SLOTS
from .schedules import CallValues, Dims, LoweredCall, Schedule, leave
from .segments import Flow, Segment


@dataclass(slots=True)
class Example:
    """A call that does a job, with the live dims and scalars it had, and how many calls do."""

    step: int
    dims: dict[int, Dims]
    scalars: dict[int, tuple[Number, bool]]  # value, and whether it comes from input data
    uses: int = 0


class Lowering:
    """Runs the lowerings of one method, one call at a time: not thread safe."""

    def __init__(self, graph: Graph, flow: Flow, caps: Caps, tuning: Mapping[str, str] | None = None) -> None:
        self.graph = graph
        self.context = Context(caps, tuning)
        self.context.pinned = flow.pinned
        self.frame = Frame(graph, self.context)
        self.runs = 0  # lowerings executed, ever; tests and `bench` read it
        self.touched: set[Binding] = set()  # what some dispatch may bind
        self.examples: dict[Job, Example] = {}  # what could be tuned
        self._bound: dict[int, BoundCall] = {}
        self._left = {segment: _left(graph, flow, segment) for segment in flow.segments}
        for segment in flow.segments:
            for index in segment.steps:
                call = graph.call(index)
                op = gpu_op(call, graph)
                assert op is not None
                self._bound[index] = BoundCall(op, call, self.frame)
        for value_id, value in enumerate(graph.values):
            if isinstance(value, TensorSpec) and value.stored:
                self.frame.tensors[value_id].dims = value.dims

    def build(self, segment: Segment, live: CallValues) -> Schedule:
        """Lower without data, to learn aliases, scratch and kernels. Guards are not checked."""
        numbers = Assumed(live.arrays, live.scalars)
        schedule = self.lower(segment, live, numbers)
        leave(schedule, live, numbers, self.graph)
        return schedule

    def lower(self, segment: Segment, live: CallValues, numbers: Numbers) -> Schedule:
        context, tensors, scalars = self.context, self.frame.tensors, self.frame.scalars
        for value_id in segment.tensors:
            tensors[value_id].dims = live.dims[value_id]
        for value_id in segment.scalars:
            scalars[value_id].set(live.term(value_id, self.graph))
        context.numbers, context.decisions, context.slots = numbers, {}, {}
        guards: dict[tuple[object, ...], Guard] = {}  # what all layers ask for is checked once
        calls = []
        for index in segment.steps:
            calls.append(self._lower(self._bound[index], index))
            for guard in context.guards:
                guards.setdefault((guard.term, guard.low, guard.high), guard)
        if context.sealed and len(context.slots) > SYM_SLOTS:  # the plan counts those asked for at build
            raise ShapeError(f"at these shapes more than {SYM_SLOTS} live integers would be read by kernels")
        made = [out for index in segment.steps for out in self._bound[index].call.outs]
        terms = {out: scalars[out].term for out in made if out in scalars}
        return Schedule(
            segment,
            tuple(calls),
            {v: tensors[v].dims for v in (*segment.tensors, *made) if v in tensors} | self._scratch(segment),
            {v: tensors[v].dims for v in self._left[segment] if v in tensors},
            terms,
            {v: terms[v] for v in self._left[segment] if v in terms},
            tuple(context.decisions.items()),
            tuple((slot, term) for term, slot in context.slots.items()),
            tuple(guards.values()),
        )

    def _scratch(self, segment: Segment) -> dict[int, Dims]:
        mine = set(segment.steps)
        return {t.id: t.dims for (step, _), t in self.context.scratch_tensors.items() if step in mine}

    def _lower(self, bound: BoundCall, index: int) -> LoweredCall:
        context = self.context
        call = bound.call
        inputs = set(call.args)
        for out in call.outs:
            tensor = self.frame.tensors.get(out)
            if tensor is not None and out not in inputs:
                tensor._dims = None
        context.begin(index, bound.op, call)
        self.runs += 1
        try:
            bound.lower(context)
        except Error as error:
            failed = type(error)(f"{call.name} ({call.origin}): {error}", code=error.reason)
            failed.step = index
            raise failed from error
        except Exception as error:
            reason = f"{call.name} ({call.origin}) could not be lowered: {type(error).__name__}: {error}"
            wrong = GraphError(reason)
            wrong.step = index
            raise wrong from error
        for out in call.outs:
            tensor = self.frame.tensors.get(out)
            if tensor is not None and tensor._dims is None:
                raise GraphError(
                    f"{call.name} ({call.origin}) did not set the shape of value {out}", code="missing_shape"
                )
        self.touched.update(context.touched)
        for job in context.jobs:
            self._note_job(job, index, call)
        return LoweredCall(index, tuple(context.dispatches))

    def _note_job(self, job: Job, index: int, call: Call) -> None:
        example = self.examples.get(job)
        if example is None:
            args = self.graph.flatten(call.args)
            dims = {v: self.frame.tensors[v].dims for v in args if v in self.frame.tensors}
            handles = {v: self.frame.scalars[v] for v in args if v in self.frame.scalars}
            terms = {v: handle.term for v, handle in handles.items()}
            scalars = {v: (self.context.numbers(term), isinstance(term, EXPRESSIONS)) for v, term in terms.items()}
            example = self.examples[job] = Example(index, dims, scalars)
        example.uses += 1


def _left(graph: Graph, flow: Flow, segment: Segment) -> tuple[int, ...]:
    """What a segment makes that something outside of it reads."""
    stages = [stage for block in flow.blocks for stage in block.stages if stage is not segment]
    read = {a for stage in stages for i in stage.steps for a in graph.flatten(graph.call(i).args)}
    read.update(graph.outputs, segment.reads, (b.condition for b in flow.blocks if b.condition is not None))
    made = dict.fromkeys(o for i in segment.steps for o in graph.call(i).outs)
    return tuple(value_id for value_id in made if value_id in read)

"""Planning: lowering calls to schedules, checking the limits of the device, and making the Plan of a method."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..budgets import limit, over, spend
from ..errors import DeviceError, Error, GraphError, Problem, ShapeError, remedies
from ..fusion import apply_passes, narrow_scales, widen_halves
from ..graph import LIVE_SCALARS, Call, Graph, TensorSpec
from ..graph.expressions import EXPRESSIONS, AssumedEvaluator, Number, TermEvaluator
from ..graph.names import INDEX_CHECK, OVERFLOW
from ..lowering import Binding, BoundCall, Context, Frame, Guard, LiveNumbers, MethodContext, Op, TuningKey, gpu_op
from ..wgsl import Caps, Kernel
from ..wgsl.kernel import SYM_SLOTS
from .indices import Positions, add_guards, check_message, check_positions, lookups_of
from .integers import exact_integers, overflow_message
from .memory import Buffer, plan_memory
from .plan import Plan, Scratch, shrunk
from .schedules import CallValues, Dims, LoweredCall, Schedule, ScheduleStore, add_results
from .segments import Flow, HostCalls, PlanSegment, cut_graph
from .validate import refuse_wrong
from .work import CallWork

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Example:
    """An example of a tuning job: a call with its live dims and scalars, and the number of calls like it."""

    step: int
    dims: dict[int, Dims]
    scalars: dict[int, tuple[Number, bool]]  # value, and whether it comes from input data
    uses: int = 0


class Lowering:
    """Runs the lowerings of one method, one call at a time: not thread safe."""

    def __init__(
        self,
        graph: Graph,
        flow: Flow,
        caps: Caps,
        tuning: Mapping[str, str] | None,
        positions: Positions,
    ) -> None:
        self.graph = graph
        self._positions = positions
        ops = {index: _op_of(graph, index) for segment in flow.segments for index in segment.steps}
        sequences = any(op.traits.sequences for op in ops.values())
        self.method = MethodContext(caps, len(graph.values), tuning, pinned=flow.pinned, sequences=sequences)
        self.frame = Frame(graph, self.method)
        self.runs = 0  # lowerings executed, ever; tests and `bench` read it
        self.touched: set[Binding] = set()  # what some dispatch may bind
        self.examples: dict[TuningKey, Example] = {}  # what could be tuned
        self._bound = {index: BoundCall(op, graph.call(index), self.frame) for index, op in ops.items()}
        self._lookups = {index: tuple(lookups_of(op, graph.call(index), graph)) for index, op in ops.items()}
        self._left = {segment: _left(graph, flow, segment) for segment in flow.segments}
        for value_id, value in enumerate(graph.values):
            if isinstance(value, TensorSpec) and value.stored:
                self.frame.tensors[value_id].dims = value.dims

    def build(self, segment: PlanSegment, live: CallValues) -> Schedule:
        """Lower without data, to learn aliases, scratch and kernels. Guards are not checked."""
        numbers = AssumedEvaluator(live.arrays, live.scalars)
        schedule = self.lower(segment, live, numbers)
        add_results(schedule, live, numbers, self.graph)
        return schedule

    def lower(self, segment: PlanSegment, live: CallValues, numbers: TermEvaluator) -> Schedule:
        tensors, scalars = self.frame.tensors, self.frame.scalars
        for value_id in segment.tensors:
            tensors[value_id].dims = live.dims[value_id]
        for value_id in segment.scalars:
            scalars[value_id].set(live.term(value_id, self.graph))
        live_numbers = self.method.live = LiveNumbers(numbers)
        guards: dict[tuple[object, ...], Guard] = {}  # equal guards of all layers are checked once
        calls = []
        scratch: dict[int, Dims] = {}
        for index in segment.steps:
            lowered = self._lower(self._bound[index], index)
            calls.append(LoweredCall(index, tuple(lowered.dispatches)))
            scratch |= lowered.scratch_dims
            for guard in lowered.guards:
                guards.setdefault((guard.term, guard.low, guard.high), guard)
        if self.method.sealed and len(live_numbers.slots) > SYM_SLOTS:  # the plan counts the slots at build
            raise ShapeError(f"at these shapes the kernels need more than {SYM_SLOTS} uniform slots")
        results = [out for index in segment.steps for out in self._bound[index].call.outs]
        terms = {out: scalars[out].term for out in results if out in scalars}
        return Schedule(
            segment=segment,
            calls=tuple(calls),
            dims={v: tensors[v].dims for v in (*segment.tensors, *results) if v in tensors} | scratch,
            result_dims={v: tensors[v].dims for v in self._left[segment] if v in tensors},
            scalars=terms,
            result_scalars={v: terms[v] for v in self._left[segment] if v in terms},
            specializations=tuple(live_numbers.specializations.items()),
            slots=tuple((slot, term) for term, slot in live_numbers.slots.items()),
            guards=tuple(guards.values()),
        )

    def _lower(self, bound: BoundCall, index: int) -> Context:
        call = bound.call
        inputs = set(call.args)
        for out in call.outs:
            tensor = self.frame.tensors.get(out)
            if tensor is not None and out not in inputs:
                tensor.forget_dims()
        context = Context(self.method, index, bound.op.home, call)
        self.runs += 1
        try:
            bound.lower(context)
            add_guards(context, self._lookups[index], self._positions, self.frame)
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
            if tensor is not None and not tensor.is_written:
                raise GraphError(
                    f"{call.name} ({call.origin}) did not set the shape of value {out}", code="missing_shape"
                )
        self.touched.update(context.touched)
        for key in context.tuning_keys:
            self._note_tuning_key(key, index, call)
        return context

    def _note_tuning_key(self, key: TuningKey, index: int, call: Call) -> None:
        example = self.examples.get(key)
        if example is None:
            args = self.graph.flatten(call.args)
            dims = {v: self.frame.tensors[v].dims for v in args if v in self.frame.tensors}
            handles = {v: self.frame.scalars[v] for v in args if v in self.frame.scalars}
            terms = {v: handle.term for v, handle in handles.items()}
            scalars = {v: (self.method.live.numbers(term), isinstance(term, EXPRESSIONS)) for v, term in terms.items()}
            example = self.examples[key] = Example(index, dims, scalars)
        example.uses += 1


def _op_of(graph: Graph, index: int) -> Op:
    op = gpu_op(graph.call(index), graph)
    assert op is not None
    return op


def _left(graph: Graph, flow: Flow, segment: PlanSegment) -> tuple[int, ...]:
    """Return the results of a segment that are read outside of it."""
    stages = [stage for block in flow.blocks for stage in block.stages if stage is not segment]
    read = {a for stage in stages for i in stage.steps for a in graph.flatten(graph.call(i).args)}
    read.update(graph.outputs, segment.readbacks, (b.condition for b in flow.blocks if b.condition is not None))
    results = dict.fromkeys(o for i in segment.steps for o in graph.call(i).outs)
    return tuple(value_id for value_id in results if value_id in read)


REMEDIES = {
    "constant": 'Quantize the weight (webpte export --quantize 4w, or lower(..., quantize="4w")), or split its layer.',
    "state": "Load or export the checkpoint with a shorter context (--max-context N).",
    "activation": 'Export with a smaller upper bound: torch.export.Dim("name", max=N).',
}
MAX_LISTED_VALUES = 3


def over_limits(plan: Plan, caps: Caps, schedules: Sequence[Schedule], touched: Iterable[Binding]) -> list[Problem]:
    """Return problems for buffers and bindings that are too large, and for too many bindings or live integers."""
    problems = []
    bound: dict[int, int] = {}  # buffer -> the most of it that some dispatch binds at once
    for binding in touched:
        number = plan.buffer_of[binding.tensor]
        bound[number] = max(bound.get(number, 0), plan.bound_bytes(binding))
    max_buffer, limit = caps.limit("max-buffer-size"), caps.limit("max-storage-buffer-binding-size")
    for number, buffer in enumerate(plan.buffers):
        if buffer.nbytes > max_buffer:
            problems.append(_too_large(plan, buffer, f"{buffer.nbytes} bytes, the device allocates {max_buffer}"))
        elif bound.get(number, 0) > limit:
            problems.append(_too_large(plan, buffer, f"{bound[number]} bytes at once, the device binds {limit}"))
    count = caps.limit("max-storage-buffers-per-shader-stage")
    crowded = [k for k in plan.kernels if k.reads + k.writes > count]
    if problems:  # the parts of a buffer that is too large are reported already
        crowded = [k for k in crowded if not k.parts]
    problems += [_too_many_bound(plan, k, count, schedules) for k in crowded]
    return problems + _too_many_integers(schedules)


def _too_many_bound(plan: Plan, kernel: Kernel, count: int, schedules: Sequence[Schedule]) -> Problem:
    lowered = [(c.step, d) for s in schedules for c in s.calls for d in c.dispatches if d.kernel == kernel]
    detail = f"binds {kernel.reads + kernel.writes} buffers, the device allows {count}"
    remedy = ""
    if kernel.parts:
        tensors = Counter(binding.tensor for _, d in lowered[:1] for binding in d.bindings)
        largest, parts = tensors.most_common(1)[0]
        buffer = plan.buffers[plan.buffer_of[largest]]
        detail += f"; {buffer_name(plan, buffer)} of {buffer.nbytes} bytes are {parts} of them"
        remedy = REMEDIES[buffer.kind]
    return Problem("limit", kernel.label, detail, _named(plan.graph.call(step) for step, _ in lowered), remedy)


def _too_many_integers(schedules: Sequence[Schedule]) -> list[Problem]:
    count = max((len(schedule.slots) for schedule in schedules), default=0)
    if count <= SYM_SLOTS:
        return []
    detail = f"{count} are read by kernels, whose block of them holds {SYM_SLOTS} on every device"
    remedy = "Split the method, or keep numbers taken from data in tensors: index_select instead of item()."
    return [Problem("limit", "live integers:", detail, (), remedy)]


def refuse_over_limits(name: str, caps: Caps, problems: Sequence[Problem]) -> None:
    """Raise a DeviceError that lists every exceeded limit, if there are any."""
    if problems:
        listed = "\n  ".join([*map(str, problems), *remedies(problems)])
        raise DeviceError(f"{name} exceeds the limits of {caps.adapter}:\n  {listed}", code="over_limits")


def _blamed(plan: Plan, buffer: Buffer) -> list[int]:
    """Return the largest values of a buffer, which determine its size."""
    values = [t for t in buffer.tensors if t < len(plan.graph.values)]
    largest = max((plan.stored_bytes(t) for t in values), default=0)
    return [t for t in values if plan.stored_bytes(t) == largest][:MAX_LISTED_VALUES]


def buffer_name(plan: Plan, buffer: Buffer) -> str:
    """Return a description of a buffer for messages."""
    if not buffer.tensors:  # of a saved plan
        return f"{buffer.kind} buffer" if buffer.fill is None else f"constant {buffer.fill.constant.name}"
    return ", ".join(f"value {t} {plan.graph.tensor(t)}" for t in _blamed(plan, buffer)) or "scratch of a call"


def _too_large(plan: Plan, buffer: Buffer, detail: str) -> Problem:
    graph, blamed = plan.graph, _blamed(plan, buffer)
    users = [c for c in graph.calls if {*graph.flatten(c.args), *c.outs} & set(blamed)]
    if not blamed:
        owners = [scratch.step for value_id, scratch in plan.scratch.items() if value_id in buffer.tensors]
        users = [step for index in owners if isinstance(step := graph.steps[index], Call)]
    return Problem("limit", f"{buffer_name(plan, buffer)}:", detail, _named(users), REMEDIES[buffer.kind])


def _named(calls: Iterable[Call]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{call.name} ({call.origin})" for call in calls))


TRIAL_SIZES = (1, 2, 4)  # what dims that may vary are tried at,
EXTRA_TRIAL_SIZES = (8,)  # and once more: kernels may differ for one row, a few and many


Widened = Callable[[Collection[int]], "Planner"]


class Planner(ScheduleStore):
    """A method's schedules, lowered on demand.

    `source` is the graph before planning. `widened` plans it again with values that are known to exceed 32 bits.
    """

    def __init__(self, plan: Plan, lowering: Lowering, source: Graph, widened: Widened) -> None:
        super().__init__(plan)
        self._lowering = lowering
        self.source = source
        self.widened = widened

    @property
    def caps(self) -> Caps:
        """Return the capabilities that the plan was made for."""
        return self._lowering.method.caps

    @property
    def examples(self) -> dict[TuningKey, Example]:
        """Return the tuning jobs, each with an example."""
        return self._lowering.examples

    @property
    def runs(self) -> int:
        """Return the number of lowerings that have run."""
        return self._lowering.runs

    def missing(self, segment: PlanSegment, live: CallValues, numbers: TermEvaluator) -> Schedule:
        schedule = self._lowering.lower(segment, live, numbers)
        try:
            work = CallWork(self.plan, [schedule], live).dispatches(schedule)
        except Exception as error:  # a rule of a user's op; the work is an estimate, which no call depends on
            logger.warning("the work of %s is not known: %s: %s", self.plan.graph.name, type(error).__name__, error)
            return schedule
        return replace(schedule, work=work)

    def fits(self, live: CallValues) -> bool:
        """Return whether the method can be lowered at the shapes of a call, as far as they are known before it runs."""
        graph, flow = self.plan.graph, self.plan.flow
        assumed, unknown = _assumed(graph, live), set(_sized_on_host(graph, flow))
        try:
            for segment in flow.segments:
                if unknown.isdisjoint(segment.tensors):
                    self._lowering.build(segment, assumed)
                else:  # its shapes, and those of its results, depend on what the CPU computes
                    unknown.update(out for i in segment.steps for out in graph.call(i).outs)
        except ShapeError:
            return False
        return True

    def lower(self, inputs: Mapping[int, Dims]) -> list[Schedule]:
        """Return the schedules for these input shapes; other inputs are at their bound. For inspection only."""
        return _lower_method(self.plan.graph, self.plan.flow, self._lowering, dict(inputs))


def make_planner(
    graph: Graph,
    caps: Caps,
    cpu_kernels: Container[str],
    fallback: bool = False,
    passes: Sequence[str] = (),
    tuning: Mapping[str, str] | None = None,
    beyond: Collection[int] = (),
) -> Planner:
    """Decide everything about a method. Raise one error that lists all problems of a kind.

    `passes` names the rewrites to apply, of fusion.PASSES; `tuning` the kernels to prefer, see Context.variant;
    `beyond` the values that are known to exceed 32 bits.
    """
    planner, problems = draft(
        graph, caps, cpu_kernels=cpu_kernels, fallback=fallback, passes=passes, tuning=tuning, beyond=beyond
    )
    refuse_over_limits(graph.name, caps, problems)
    return planner


def draft(
    graph: Graph,
    caps: Caps,
    cpu_kernels: Container[str],
    fallback: bool = False,
    passes: Sequence[str] = (),
    tuning: Mapping[str, str] | None = None,
    beyond: Collection[int] = (),
) -> tuple[Planner, list[Problem]]:
    """Return a planner, and the problems of its plan with the limits of the device."""
    refuse_wrong(graph)
    source = graph
    graph = exact_integers(graph, cpu_kernels, beyond)
    positions = Positions(graph)
    if "shader-f16" not in caps.features:
        graph = widen_halves(graph)
    graph, applied = apply_passes(graph, passes)
    if caps.kind == "gpu" and "shader-f16" in caps.features:
        graph = narrow_scales(graph)
    graph = check_positions(graph, positions)
    flow = cut_graph(graph, cpu_kernels, fallback)
    lowering = Lowering(graph, flow, caps, tuning, positions)
    bounds = {i: graph.tensor(i).dims for i in graph.inputs if isinstance(graph.values[i], TensorSpec)}
    schedules = _lower_method(graph, flow, lowering, bounds)
    examples = dict(lowering.examples)
    dynamic, trials = _dynamic_dims(graph, flow, lowering, bounds)
    lowering.examples = examples  # trial shapes are not tuned
    smaller = _lower_smaller(graph, flow, lowering, bounds, dynamic, TRIAL_SIZES)
    smaller += _lower_smaller(graph, flow, lowering, bounds, dynamic, EXTRA_TRIAL_SIZES)
    schedules += smaller
    dynamic |= _dynamic_outputs(graph, flow, [*trials, *smaller])
    lowering.method.sealed = True
    plan = _plan(graph, flow, lowering, schedules, dynamic, applied)

    def widened(beyond: Collection[int]) -> Planner:
        return make_planner(source, caps, cpu_kernels, fallback, passes=passes, tuning=tuning, beyond=beyond)

    return Planner(plan, lowering, source, widened), over_limits(plan, caps, schedules, lowering.touched)


def _plan(
    graph: Graph,
    flow: Flow,
    lowering: Lowering,
    schedules: Sequence[Schedule],
    dynamic: dict[int, tuple[bool, ...]],
    applied: dict[str, int],
) -> Plan:
    method = lowering.method
    memory = plan_memory(graph, flow, lowering.touched, method)
    kernels = tuple(dict.fromkeys(d.kernel for s in schedules for d in s.dispatches))
    spend("kernels", len(kernels), graph.name)
    return Plan(
        graph=graph,
        flow=flow,
        buffers=memory.buffers,
        buffer_of=memory.buffer_of,
        uploads=memory.uploads,
        unmodified_uploads=memory.unmodified_uploads,
        kernels=kernels,
        parameter_blocks=len({d.params for s in schedules for d in s.dispatches}),
        dynamic_dims=dynamic,
        passes=applied,
        aliases=dict(method.aliases),
        materialized=dict(method.materialized),
        scratch={tensor.id: Scratch(step, tensor.spec) for (step, _), tensor in method.scratch_tensors.items()},
        checks=_checks(graph),
        bindings=frozenset(lowering.touched),
        binding_limit=method.caps.limit("max-storage-buffer-binding-size"),
        subgroup=method.caps.subgroup,
    )


def _checks(graph: Graph) -> dict[int, str]:
    messages = {OVERFLOW: overflow_message, INDEX_CHECK: check_message}
    looks = [call for call in graph.calls if call.name in messages]
    return {o: messages[call.name](graph, call) for call in looks for o in call.outs if o not in graph.outputs}


def _lower_method(graph: Graph, flow: Flow, lowering: Lowering, inputs: dict[int, Dims]) -> list[Schedule]:
    """Lower every segment once for these input shapes. Results of the CPU have the size of their bound."""
    live = _assumed(graph, CallValues(dict(inputs), {}, {}))
    return [lowering.build(segment, live) for segment in flow.segments]


def _assumed(graph: Graph, live: CallValues) -> CallValues:
    """Return the values of a call, with the bound for dims that are not known, and 0 for scalars."""
    assumed = CallValues(dict(live.dims), dict(live.scalars), dict(live.arrays))
    for value_id, value in enumerate(graph.values):
        if isinstance(value, TensorSpec):
            assumed.dims.setdefault(value_id, value.dims)
        elif isinstance(value, LIVE_SCALARS):
            assumed.scalars.setdefault(value_id, 0)
    return assumed


def _lower_smaller(
    graph: Graph,
    flow: Flow,
    lowering: Lowering,
    bounds: dict[int, Dims],
    dynamic: dict[int, tuple[bool, ...]],
    sizes: Sequence[int],
) -> list[Schedule]:
    """Lower at the first of the sizes that works: small shapes may select other kernels. Files have no minimum."""
    for size in sizes:
        smallest = shrunk(bounds, dynamic, size)
        if smallest == bounds:
            break
        try:
            return _lower_method(graph, flow, lowering, smallest)
        except ShapeError:
            continue
    return []


def _dynamic_dims(
    graph: Graph, flow: Flow, lowering: Lowering, bounds: dict[int, Dims]
) -> tuple[dict[int, tuple[bool, ...]], list[Schedule]]:
    """Return which dims of dynamic inputs can vary, found by trial lowerings, and the schedules of the trials.

    The file contains only that a tensor is dynamic. Dims of equal bound usually share one symbol: they are shrunk
    together first, then each alone. A dim that some op contradicts is static.
    """
    candidates = [(i, d) for i in bounds if graph.tensor(i).dynamic for d, size in enumerate(bounds[i]) if size > 1]

    granted = max(limit("trial lowerings"), 16 * len(graph.steps))
    before = lowering.runs
    trials: list[Schedule] = []

    def fits(group: list[tuple[int, int]]) -> bool:
        if lowering.runs - before > granted:
            raise GraphError(
                f"{graph.name} has {len(candidates)} dims that may vary, more than can be tried: "
                f"{over('trial lowerings', lowering.runs - before)}. Re-export with fewer dynamic dims.",
                code="over_budget",
            )
        trial = {i: list(dims) for i, dims in bounds.items()}
        for i, d in group:
            trial[i][d] -= 1
        try:
            trials.extend(_lower_method(graph, flow, lowering, {i: tuple(dims) for i, dims in trial.items()}))
        except ShapeError:
            return False
        return True

    varying: set[tuple[int, int]] = set()
    for size in sorted({bounds[i][d] for i, d in candidates}):
        group = [(i, d) for i, d in candidates if bounds[i][d] == size]
        if fits(group):
            varying.update(group)
        elif len(group) > 1:
            varying.update(single for single in group if fits([single]))
    return {i: tuple((i, d) in varying for d in range(len(dims))) for i, dims in bounds.items()}, trials


def _dynamic_outputs(graph: Graph, flow: Flow, trials: Sequence[Schedule]) -> dict[int, tuple[bool, ...]]:
    """Return which dims of outputs differ from their bound in some trial.

    If the CPU computes tensors, nothing is known: trials take those at their bound.
    """
    if _sized_on_host(graph, flow):
        return {}
    shapes: dict[int, list[Dims]] = {v: [] for v in graph.outputs if isinstance(graph.values[v], TensorSpec)}
    for schedule in trials:
        for value_id in shapes.keys() & schedule.dims.keys():
            shapes[value_id].append(schedule.dims[value_id])
    bounds = {v: graph.tensor(v).dims for v in shapes if v not in graph.inputs}
    return {
        v: tuple(any(dims[d] != size for dims in shapes[v]) for d, size in enumerate(bound))
        for v, bound in bounds.items()
    }


def _sized_on_host(graph: Graph, flow: Flow) -> frozenset[int]:
    """Return the results of CPU kernels whose dims are known only when the method runs: inputs may be dynamic."""
    inputs = [graph.values[i] for i in graph.inputs]
    if not any(isinstance(spec, TensorSpec) and spec.dynamic for spec in inputs):
        return frozenset()
    steps = (i for block in flow.blocks for stage in block.stages if isinstance(stage, HostCalls) for i in stage.steps)
    return frozenset(v for i in steps for v in graph.call(i).outs if isinstance(graph.values[v], TensorSpec))

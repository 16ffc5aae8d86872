"""Execution of calls, one at a time for a method and all its forks.

Several steps of a method run in one submit if only device memory and live integers pass from one to the next. Else, for
instance if the host reads what is fed back, they run one by one and give the same results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..budgets import spend
from ..device import NO_OBSERVER, Feed, Gpu, Observer, Session, Submission, WeightBuffers, Workspace
from ..errors import DeviceError, Error, GraphError, InputError
from ..graph import Bool, Call, Double, DType, Int, Null, String, SymBool, TensorSpec, numel
from ..lowering import mutated_values, stored_bytes
from ..plan import CallValues, HostCalls, Plan, PlanSegment, Schedule, ScheduleStore, padded
from ..progress import OnProgress, ignore
from ..typing import Array
from .arguments import OutputTarget, check_target_shapes, zeros_like_input
from .converter import ArgumentConverter, BeyondDeviceError, at_position
from .kernels import CpuKernels
from .state import MethodState


class Executor:
    """Runs calls with the state of a method or a fork, which share it.

    Their calls are serialized: the schedules and the workspace serve one at a time.
    """

    def __init__(self, scheduler: ScheduleStore, kernels: CpuKernels, *, lazy: bool = False) -> None:
        """Prepare the plan. With `lazy`, the first call that uses a kernel compiles it."""
        self.scheduler = scheduler
        self.plan = scheduler.plan
        self.converter = ArgumentConverter(scheduler)
        self._graph = self.plan.graph
        self._kernels = kernels
        self._lazy = lazy
        self._workspace: Workspace | None = None
        self.observer: Observer = NO_OBSERVER  # of the current calls

    # -- memory on a device ----------------------------------------------------------------------------------------

    def open(self, gpu: Gpu, weights: WeightBuffers, progress: OnProgress = ignore, *, filled: bool = True) -> Session:
        """Allocate one more state. The first one on a device creates what all others share there."""
        workspace = self._workspace
        if workspace is not None and workspace.gpu is gpu:
            return Session(workspace, filled=filled)
        self.close()
        workspace = self._workspace = Workspace(self.plan, gpu, weights, progress, lazy=self._lazy)
        try:
            return Session(workspace, first=True, filled=filled)
        except BaseException:
            self.close()
            raise

    @property
    def device(self) -> tuple[Gpu, WeightBuffers] | None:
        """Return where the plan runs, and its weights there."""
        return None if self._workspace is None else (self._workspace.gpu, self._workspace.weights)

    def release_lost(self) -> None:
        """Release what was on a lost device."""
        if self._workspace is not None and not self._workspace.gpu.alive():
            self.close()

    def close(self) -> None:
        """Release what is shared. Sessions that use it must be closed, too."""
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            workspace.close()

    def warm_up(self, state: MethodState) -> None:
        """Prepare for the smallest and the largest inputs, so that the first call takes no longer than later ones."""
        stage = self.only_stage()
        if stage is None or state.session is None or self._lazy:
            return
        for bound in self.plan.extents():
            args = [zeros_like_input(self._graph.values[i], bound.get(i)) for i in self._graph.inputs]
            try:
                state.session.warm_up(self.prepare(stage, self.converter.bind_inputs(args), state)[0])
            except DeviceError:
                raise
            except Error:  # zeros need not be a valid input
                continue

    # -- one call --------------------------------------------------------------------------------------------------

    def run(
        self, state: MethodState, args: Sequence[Any], output_ids: Sequence[int], targets: Sequence[OutputTarget] = ()
    ) -> tuple[Any, ...]:
        """Run a call and return the values of `output_ids`, which are also written into `targets`.

        Raise BeyondDeviceError for a value that does not fit the device: WideCalls.run handles it.
        """
        observer = self.observer
        observer.phase("check inputs")
        live = self.converter.bind_inputs(args)
        number = 0
        blocks = self.plan.flow.blocks
        done, written = 0, False
        while number < len(blocks):
            done += 1
            spend("blocks run", done, self._graph.name)  # a file may loop for ever
            block = blocks[number]
            for stage in block.stages:
                if isinstance(stage, HostCalls):
                    self._run_on_host(stage, live, state)
                    continue
                try:
                    self._run_on_device(stage, live, state, output_ids, targets)
                except BeyondDeviceError as beyond:
                    beyond.state_written = written
                    raise
                written = written or bool(stage.updates)
            jumps = block.condition is not None and not self._truth(block.condition, live, state)
            number = block.target if jumps and block.target is not None else number + 1
        results = tuple(self.output(i, live, state) for i in output_ids)
        if targets:
            check_target_shapes(targets, live)
        if live.unsaved:
            sent = state.commit({v: live.arrays[v] for v in sorted(live.unsaved)})
            observer.moved(sent, 0)
        for (_, array, _), result in zip(targets, results, strict=False):
            np.copyto(array, result)
        observer.phase("")
        return results

    def only_stage(self) -> PlanSegment | None:
        """Return the segment that is the whole method, or None if there are several stages."""
        blocks = self.plan.flow.blocks
        stages = blocks[0].stages
        if len(blocks) == 1 and len(stages) == 1 and isinstance(stages[0], PlanSegment) and blocks[0].condition is None:
            return stages[0]
        return None

    def prepare(self, segment: PlanSegment, live: CallValues, state: MethodState) -> tuple[Schedule, dict[int, int]]:
        """Return the schedule of a segment and its live integers. The dims of its results are then in `live`."""
        for value_id in segment.host_reads:
            live.arrays[value_id] = self._host_array(value_id, live, state)
        observer = self.observer
        observer.phase("lower")
        schedule, slots = self.scheduler.prepare(segment, live)
        observer.prepared(schedule, live)
        observer.phase("convert inputs")
        return schedule, slots

    def output(self, value_id: int, live: CallValues, state: MethodState) -> Any:
        if isinstance(self._graph.values[value_id], TensorSpec):
            array = self._host_array(value_id, live, state)
            # A copy if it is the caller's memory, or the state's, also through a view that a kernel returned.
            owned = array.flags.owndata and value_id not in self._graph.inputs and value_id not in self.plan.host_state
            return array if owned else array.copy()
        return self._scalar(value_id, live)

    def _run_on_device(
        self,
        segment: PlanSegment,
        live: CallValues,
        state: MethodState,
        outputs: Container[int],
        targets: Sequence[OutputTarget] = (),
    ) -> None:
        session, converter = state.session, self.converter
        assert session is not None
        schedule, slots = self.prepare(segment, live, state)
        if targets:  # before anything changes
            check_target_shapes(targets, live)
        reads = converter.reads(segment, live, outputs)
        uploads = converter.uploads(segment, live)
        if live.unsaved:  # the submit may read or overwrite it
            uploads += state.for_device({v: live.arrays[v] for v in sorted(live.unsaved)})
        (data,) = session.run(Submission(schedule, [slots], uploads, reads), self.observer)
        self.observer.phase("convert outputs")
        live.unsaved.intersection_update(self.plan.host_state)
        for value_id in segment.updates:  # the host's copies are outdated
            live.arrays.pop(value_id, None)
        converter.collect_outputs(live, reads, data)

    def _run_on_host(self, stage: HostCalls, live: CallValues, state: MethodState) -> None:
        graph = self._graph
        self.observer.phase("CPU kernels")
        for index in stage.steps:
            call = graph.steps[index]
            assert isinstance(call, Call)
            needed = [v for v in graph.flatten(call.args) if isinstance(graph.values[v], TensorSpec)]
            tensors = {v: self._host_array(v, live, state) for v in needed}
            in_place = mutated_values(call, graph)
            tensors.update({v: tensors[v].copy() for v in in_place})  # arrays may belong to the caller or a fork
            results = self._kernels.run(call, graph, tensors, live.scalars)
            for value_id, array in ({v: tensors[v] for v in in_place} | results).items():
                self._store_result(value_id, array, call, live)

    def _store_result(self, value_id: int, array: Array, call: Call, live: CallValues) -> None:
        """Store a value that a CPU kernel has computed or changed."""
        is_state = value_id in self.plan.flow.state
        _check_dims_of_result(array, self._graph.tensor(value_id), call, value_id, is_state)
        live.arrays[value_id], live.dims[value_id] = array, array.shape
        if is_state:
            live.unsaved.add(value_id)

    # -- values on the host ----------------------------------------------------------------------------------------

    def _host_array(self, value_id: int, live: CallValues, state: MethodState) -> Array:
        array = live.arrays.get(value_id)
        if array is not None:
            return array
        if value_id in self.plan.flow.state:
            live.arrays[value_id] = state.array(value_id, self.observer)
            return live.arrays[value_id]
        spec = self._graph.tensor(value_id)
        if spec.constant is None:
            raise GraphError(f"value {value_id} {spec} is read before it is written", code="read_before_write")
        return spec.constant.array(spec.dims)

    def _truth(self, value_id: int, live: CallValues, state: MethodState) -> bool:
        if isinstance(self._graph.values[value_id], TensorSpec):
            return bool(np.all(self._host_array(value_id, live, state)))
        return bool(self._scalar(value_id, live))

    def _scalar(self, value_id: int, live: CallValues) -> Any:
        value = self._graph.values[value_id]
        if isinstance(value, (Int, Double, Bool, String)):
            return value.value
        if isinstance(value, Null):
            return None
        number = live.scalars.get(value_id)
        if number is None:  # the jumps skipped its call
            raise GraphError(f"value {value_id} is read before it is written", code="read_before_write")
        return bool(number) if isinstance(value, SymBool) else number


def _check_dims_of_result(array: Array, spec: TensorSpec, call: Call, value_id: int, is_state: bool) -> None:
    """Check the shape of a result. State has one shape; other values may be smaller than their bound."""
    bound = array.ndim == len(spec.dims) and all(a <= b for a, b in zip(array.shape, spec.dims, strict=True))
    if not bound or (is_state and array.shape != spec.dims):
        raise GraphError(
            f"{call.name} ({call.origin}): value {value_id} has the shape {list(array.shape)}, "
            f"outside its bound {list(spec.dims)}",
            code="exceeds_bound",
        )


MAX_STEP_BYTES = 16 << 20  # of inputs and results that steps may hold at once before they run one by one
MAX_FEEDBACKS = 64  # remembered
_INTEGERS = (DType.INT32, DType.INT64)


class _Link(NamedTuple):
    """An output that becomes an input in the next step, by positions and by value ids."""

    output: int
    input: int
    source: int
    target: int


@dataclass(frozen=True)
class Feedback:
    """The checked feeds and outputs of `run_steps`, cached for equal arguments."""

    feeds: tuple[_Link, ...]
    output_ids: tuple[int, ...]
    stage: PlanSegment | None  # the segment that may run several times in one submit; None: run one by one
    fed: frozenset[int]  # inputs


RunCall = Callable[[MethodState, Sequence[Any], Sequence[int]], tuple[Any, ...]]  # Executor.run, and what wraps it


class StepRunner:
    """Runs several steps of a method. A method and its forks share it. `run_call` runs a step by itself."""

    def __init__(self, executor: Executor, run_call: RunCall) -> None:
        self._executor = executor
        self._run_call = run_call
        self._feedbacks: dict[object, Feedback] = {}

    def run(
        self, state: MethodState, steps: Sequence[Sequence[Any]], feed: Mapping[int, int], outputs: Sequence[int]
    ) -> list[tuple[Any, ...]]:
        """Run the steps of Method.run_steps, which holds the lock."""
        executor, feedback = self._executor, self._feedback(feed, outputs)
        if len(steps) == 1:
            return [self._run_call(state, steps[0], feedback.output_ids)]
        lives = [
            executor.converter.bind_inputs(args) for args in steps
        ]  # all, so that nothing has run when one is refused
        together = None
        if feedback.stage is not None and lives:
            with contextlib.suppress(BeyondDeviceError):  # which is found before anything runs
                together = _run_together(executor, state, feedback, lives)
        if together is None:
            together = _run_separately(executor, self._run_call, state, feedback, steps, lives)
        return together

    def _feedback(self, feed: Mapping[int, int], outputs: Sequence[int]) -> Feedback:
        key: tuple[object, ...] = ()
        try:
            key = (tuple(feed.items()), tuple(outputs))
            feedback = self._feedbacks.get(key)
        except TypeError:  # not iterable or not hashable: _new_feedback raises the typed error
            feedback = None
        if feedback is None:
            if len(self._feedbacks) >= MAX_FEEDBACKS:
                self._feedbacks.clear()
            feedback = self._feedbacks[key] = _new_feedback(self._executor, feed, outputs)
        return feedback


def _new_feedback(executor: Executor, feed: Mapping[int, int], outputs: Sequence[int]) -> Feedback:
    feeds, output_ids = _checked(executor.plan, feed), executor.converter.output_ids(outputs)
    stage = executor.only_stage()
    if stage is not None and not all(_stays_on_device(executor.plan, stage, fed, output_ids) for fed in feeds):
        stage = None
    if stage is not None and executor.plan.flow.state.intersection(stage.host_reads):
        stage = None  # the host reads what the previous step has written
    return Feedback(tuple(feeds), output_ids, stage, frozenset(fed.target for fed in feeds))


def _run_together(
    executor: Executor, state: MethodState, feedback: Feedback, lives: Sequence[CallValues]
) -> list[tuple[Any, ...]] | None:
    """Run all steps in one submit; None if they need several schedules or more than MAX_STEP_BYTES."""
    stage, first, converter = feedback.stage, lives[0], executor.converter
    assert stage is not None and state.session is not None
    prepared = _prepare(executor, state, feedback, lives)
    if prepared is None:
        return None
    schedule, scalars = prepared
    reads = converter.reads(stage, first, feedback.output_ids)
    later = _later_uploads(executor, stage, lives, feedback.fed)
    if _bytes_held(reads, later, len(lives)) > MAX_STEP_BYTES:
        return None
    uploads = converter.uploads(stage, first)
    present = {value_id for value_id, _ in uploads}  # an input that no kernel reads is not uploaded
    feeds = [_device_feed(executor.plan, fed, first) for fed in feedback.feeds if fed.target in present]
    data = state.session.run(Submission(schedule, scalars, uploads, reads, feeds, later), executor.observer)
    results = []
    for live, outputs in zip(lives, data, strict=True):
        converter.collect_outputs(live, reads, outputs)
        results.append(tuple(executor.output(value_id, live, state) for value_id in feedback.output_ids))
    return results


def _checked(plan: Plan, feed: Mapping[int, int]) -> list[_Link]:
    """Return the feeds, after checks that their tensors fit."""
    graph = plan.graph
    feeds: list[_Link] = []
    for output, position in feed.items():
        source = at_position(graph.outputs, output, f"outputs of {graph.name}")
        target = at_position(graph.inputs, position, f"inputs of {graph.name}")
        fed = _Link(output, position, source, target)
        source_spec, target_spec = graph.values[source], graph.values[target]
        if not isinstance(source_spec, TensorSpec) or not isinstance(target_spec, TensorSpec):
            raise InputError(f"{_link_text(plan, fed)}: both must be tensors", code="not_a_tensor")
        if not _castable(source_spec.host_dtype, target_spec.host_dtype):
            raise InputError(
                f"{_link_text(plan, fed)}: {source_spec.host_dtype.short} does not convert to "
                f"{target_spec.host_dtype.short} without loss",
                code="dtype",
            )
        if any(target == other.target for other in feeds):
            raise InputError(f"{_link_text(plan, fed)}: another output feeds it already", code="duplicate_feed")
        feeds.append(fed)
    return feeds


def _castable(source: DType, target: DType) -> bool:
    # The device computes with 32 bits, so its results fit both.
    return (source in _INTEGERS and target in _INTEGERS) or _holds(target, source)


def _holds(wide: DType, narrow: DType) -> bool:
    """Return whether one dtype represents every value of another."""
    return wide is narrow or (wide is not DType.BFLOAT16 and bool(np.can_cast(narrow.held, wide.held, "safe")))


def _link_text(plan: Plan, fed: _Link) -> str:
    return f"output {fed.output} of {plan.graph.name} cannot feed input {fed.input}"


def _prepare(
    executor: Executor, state: MethodState, feedback: Feedback, lives: Sequence[CallValues]
) -> tuple[Schedule, list[dict[int, int]]] | None:
    """Return the schedule of all steps and the live integers of each, by slot. None if they need several schedules."""
    assert feedback.stage is not None
    first: Schedule | None = None
    scalars = []
    for number, live in enumerate(lives):
        schedule, slots = executor.prepare(feedback.stage, live, state)
        first = first or schedule
        if schedule is not first:
            return None
        for fed in feedback.feeds if number else ():
            _check_size(executor.plan, fed, lives[number - 1].dims[fed.source], live.dims[fed.target])
        scalars.append(slots)
    return None if first is None else (first, scalars)


def _stays_on_device(plan: Plan, stage: PlanSegment, fed: _Link, output_ids: Sequence[int]) -> bool:
    """Return whether a copy on the device gives the same result as a copy through the host."""
    source, target = plan.graph.tensor(fed.source), plan.graph.tensor(fed.target)
    # A narrower dtype for callers means rounding when it is read.
    exact = _holds(source.host_dtype, source.dtype) and _holds(target.host_dtype, source.dtype)
    # Only results of the stage last until its end; an input that is also an output is returned by the host.
    kept = fed.source in stage.readbacks and (fed.target in stage.readbacks or fed.target not in output_ids)
    return kept and exact and source.dtype is target.dtype and fed.target not in plan.flow.on_host


def _check_size(plan: Plan, fed: _Link, source: tuple[int, ...], target: tuple[int, ...]) -> None:
    if numel(source) != numel(target):
        raise InputError(
            f"{_link_text(plan, fed)}: expected shape {list(target)} of the next step's input, got {list(source)}",
            code="shape",
        )


def _later_uploads(
    executor: Executor, stage: PlanSegment, lives: Sequence[CallValues], fed: Container[int]
) -> list[list[tuple[int, Array]]]:
    """Return for each step except the first the inputs that are not fed and not in place already."""
    later = []
    before: dict[int, bytes] = {}
    for live in lives:
        uploads = executor.converter.uploads(stage, live, fed)
        data = {
            value_id: array.tobytes() for value_id, array in uploads if value_id in executor.plan.unmodified_uploads
        }
        later.append([(v, array) for v, array in uploads if v not in data or data[v] != before.get(v)])
        before = data
    return later[1:]  # the first step's are uploaded in any case


def _bytes_held(reads: Sequence[tuple[int, int]], later: Sequence[Sequence[tuple[int, Array]]], steps: int) -> int:
    read = sum(padded(nbytes) for _, nbytes in reads)
    return read * steps + sum(padded(array.nbytes) for step in later for _, array in step)


def _device_feed(plan: Plan, fed: _Link, live: CallValues) -> Feed:
    return Feed(fed.source, fed.target, stored_bytes(plan.graph.tensor(fed.target).dtype, live.dims[fed.target]))


def _run_separately(
    executor: Executor,
    run_call: RunCall,
    state: MethodState,
    feedback: Feedback,
    steps: Sequence[Sequence[Any]],
    lives: Sequence[CallValues],
) -> list[tuple[Any, ...]]:
    results: list[tuple[Any, ...]] = []
    feeds, count = feedback.feeds, len(feedback.output_ids)
    output_ids = (*feedback.output_ids, *(fed.source for fed in feeds))
    previous: tuple[Any, ...] = ()  # the outputs of the previous step that are fed back
    for args, live in zip(steps, lives, strict=True):
        inputs = list(args)
        for fed, value in zip(feeds, previous, strict=False):
            _check_size(executor.plan, fed, value.shape, live.dims[fed.target])
            spec = executor.plan.graph.tensor(fed.target)
            inputs[fed.input] = value.astype(spec.host_dtype.held).reshape(live.dims[fed.target])
        outputs = run_call(state, inputs, output_ids)
        results.append(outputs[:count])
        previous = outputs[count:]
    return results


def lower_shapes(executor: Executor, state: MethodState, dims: Sequence[Sequence[int]]) -> None:
    """Lower a call at these shapes without running it, for a plan that is about to be saved."""
    stage, graph = executor.only_stage(), executor.plan.graph
    if stage is None:
        raise InputError(
            f"{graph.name} needs several submits", code="several_submits", hint="Call it at the shapes to save."
        )
    if len(dims) != len(graph.inputs):
        inputs = ", ".join(map(str, executor.converter.inputs))
        raise InputError(
            argument="shapes",
            expected=f"the shapes of {len(graph.inputs)} inputs of {graph.name} ({inputs})",
            got=f"{len(dims)} shapes",
            code="input_count",
        )
    try:
        args = [zeros_like_input(graph.values[i], tuple(sizes)) for i, sizes in zip(graph.inputs, dims, strict=True)]
    except (MemoryError, ValueError) as error:
        raise InputError(f"shapes: {dims!r:.200} cannot be allocated: {error}", code="shape") from error
    executor.prepare(stage, executor.converter.bind_inputs(args), state)

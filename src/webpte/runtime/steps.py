"""Several steps of a method in one submit, and submits that follow each other before the host reads results.

Several steps run in one submit if only device memory and live integers pass from one to the next. Else, for instance if
the host reads what is fed back, they run one by one and give the same results.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..device import Feed, Session, Submission, SubmissionInFlight
from ..errors import InputError
from ..graph import DType, TensorSpec, numel
from ..lowering import stored_bytes
from ..plan import CallValues, Plan, PlanSegment, Schedule, padded
from ..typing import Array
from .converter import BeyondDeviceError, at_position
from .executor import Executor
from .state import MethodState

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


class StepsInFlight:
    """Steps whose results are not read yet."""

    def __init__(
        self, lock: threading.RLock, collect: Callable[[], list[tuple[Any, ...]]], submitted: _Submitted | None
    ):
        """Create it with the function that waits for the results. `submitted` is None if they are there already."""
        self._lock = lock
        self._collect = collect
        self.submitted = submitted

    def results(self) -> list[tuple[Any, ...]]:
        """Wait for the steps and return the results of each. Call it once, in the order in which steps were started."""
        with self._lock:
            return self._collect()

    def discard(self) -> None:
        """Leave the results unread."""
        if self.submitted is not None:
            with self._lock:
                self.submitted.session.discard(self.submitted.work)


class StepRunner:
    """Runs several steps of a method. A method and its forks share it. `run_call` runs a step by itself."""

    def __init__(self, executor: Executor, run_call: RunCall, lock: threading.RLock) -> None:
        self._executor = executor
        self._run_call = run_call
        self._lock = lock
        self._feedbacks: dict[object, Feedback] = {}

    def start(
        self, state: MethodState, steps: Sequence[Sequence[Any]], feed: Mapping[int, int], outputs: Sequence[int]
    ) -> StepsInFlight:
        """Start the steps of Method.start_steps, which holds the lock."""
        executor, feedback = self._executor, self._feedback(feed, outputs)
        lives = [
            executor.converter.bind_inputs(args) for args in steps
        ]  # all, so that nothing has run when one is refused
        submitted = None
        if feedback.stage is not None and lives:
            with contextlib.suppress(BeyondDeviceError):  # which is found before anything runs
                submitted = _start_together(executor, state, feedback, lives)
        if submitted is None:
            results = _run_separately(executor, self._run_call, state, feedback, steps, lives)
            return StepsInFlight(self._lock, lambda: results, None)
        return self._in_flight(submitted)

    def follow(self, state: MethodState, before: StepsInFlight, steps: Sequence[Sequence[Any]]) -> StepsInFlight | None:
        """Start the steps of Method.follow_steps, which holds the lock."""
        last = before.submitted
        if last is None or last.state is not state or not last.session.is_latest(last.work):
            return None
        lives = [self._executor.converter.bind_inputs(args) for args in steps]
        with contextlib.suppress(BeyondDeviceError):
            submitted = _start_together(self._executor, state, last.feedback, lives, last.lives[-1])
            return None if submitted is None else self._in_flight(submitted)
        return None

    def _in_flight(self, submitted: _Submitted) -> StepsInFlight:
        return StepsInFlight(self._lock, lambda: _collect(self._executor, submitted), submitted)

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


class _Submitted(NamedTuple):
    """Steps that share a submit."""

    state: MethodState
    session: Session
    feedback: Feedback
    lives: Sequence[CallValues]
    reads: Sequence[tuple[int, int]]
    work: SubmissionInFlight


def _start_together(
    executor: Executor,
    state: MethodState,
    feedback: Feedback,
    lives: Sequence[CallValues],
    before: CallValues | None = None,
) -> _Submitted | None:
    """Submit all steps; None if they need several schedules or more than MAX_STEP_BYTES.

    The results of the step `before`, which was the latest to be submitted, are fed to the first.
    """
    stage, first, converter = feedback.stage, lives[0], executor.converter
    assert stage is not None and state.session is not None
    prepared = _prepare(executor, state, feedback, lives, before)
    if prepared is None:
        return None
    schedule, scalars = prepared
    reads = converter.reads(stage, first, feedback.output_ids)
    later = _later_uploads(executor, stage, lives if before is None else [before, *lives], feedback.fed)
    if _bytes_held(reads, later, len(lives)) > MAX_STEP_BYTES:
        return None
    uploads = converter.uploads(stage, first)
    present = {value_id for value_id, _ in uploads}  # an input that no kernel reads is not uploaded
    feeds = [_device_feed(executor.plan, fed, first) for fed in feedback.feeds if fed.target in present]
    follows = before is not None
    submission = Submission(schedule, scalars, () if follows else uploads, reads, feeds, later, follows)
    work = state.session.start(submission, executor.observer)
    return _Submitted(state, state.session, feedback, lives, reads, work)


def _collect(executor: Executor, submitted: _Submitted) -> list[tuple[Any, ...]]:
    """Wait for the steps of a submit, and return the results of each."""
    state, _, feedback, lives, reads, work = submitted
    results = []
    for live, outputs in zip(lives, submitted.session.finish(work, executor.observer), strict=True):
        executor.converter.collect_outputs(live, reads, outputs)
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
    executor: Executor,
    state: MethodState,
    feedback: Feedback,
    lives: Sequence[CallValues],
    before: CallValues | None,
) -> tuple[Schedule, list[dict[int, int]]] | None:
    """Return the schedule of all steps and the live integers of each, by slot. None if they need several schedules."""
    assert feedback.stage is not None
    first: Schedule | None = None
    scalars = []
    for live in lives:
        schedule, slots = executor.prepare(feedback.stage, live, state)
        first = first or schedule
        if schedule is not first:
            return None
        if before is not None:
            for fed in feedback.feeds:
                _check_size(executor.plan, fed, before.dims[fed.source], live.dims[fed.target])
        before = live
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
    """Return for each step except the first, whose inputs are uploaded in any case, the inputs that are not fed and not
    in place already."""
    later = []
    before: dict[int, bytes] = {}
    for live in lives:
        uploads = executor.converter.uploads(stage, live, fed)
        data = {
            value_id: array.tobytes() for value_id, array in uploads if value_id in executor.plan.unmodified_uploads
        }
        later.append([(v, array) for v, array in uploads if v not in data or data[v] != before.get(v)])
        before = data
    return later[1:]


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

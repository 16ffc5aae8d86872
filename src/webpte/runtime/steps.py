"""Several executions of a method in one submit, each fed with results of the one before.

Together they run where nothing but device memory and live integers passes from one to the next. Otherwise, for
instance where the host looks at what is fed, they run one by one and give the same results.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..device import Feed
from ..errors import InputError
from ..graph import DType, TensorSpec, numel
from ..lowering import stored_bytes
from ..plan import CallValues, Plan, Schedule, Segment, padded
from .borders import Array, at_position
from .executor import Executor
from .method_state import MethodState

MOST_BYTES = 16 << 20  # of inputs and results that steps may hold at once before they run one by one
MOST_WIRINGS = 64  # remembered
_INTEGERS = (DType.INT32, DType.INT64)


class _Fed(NamedTuple):
    """An output that becomes an input, by positions and by values."""

    output: int
    input: int
    source: int
    target: int


@dataclass(frozen=True)
class Wiring:
    """Feeds and wanted outputs, checked once for all calls that ask for the same."""

    feeds: tuple[_Fed, ...]
    wanted: tuple[int, ...]
    stage: Segment | None  # what may run several times in one submit
    fed: frozenset[int]  # inputs


class StepRunner:
    """Runs several calls of a method. It is shared by a method and its forks."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._wirings: dict[object, Wiring] = {}

    def run(
        self, state: MethodState, steps: Sequence[Sequence[Any]], feed: Mapping[int, int], outputs: Sequence[int]
    ) -> list[tuple[Any, ...]]:
        """See Method.run_steps, which holds the lock."""
        executor, wiring = self._executor, self._wiring(feed, outputs)
        if len(steps) == 1:
            return [executor.run(state, steps[0], wiring.wanted)]
        lives = [executor.borders.enter(args) for args in steps]  # all, so that nothing has run when one is refused
        together = _run_together(executor, state, wiring, lives) if wiring.stage is not None and lives else None
        return _run_one_by_one(executor, state, wiring, steps, lives) if together is None else together

    def _wiring(self, feed: Mapping[int, int], outputs: Sequence[int]) -> Wiring:
        key: tuple[object, ...] = ()
        try:
            key = (tuple(feed.items()), tuple(outputs))
            found = self._wirings.get(key)
        except TypeError:  # what cannot be listed, and positions that cannot even be hashed, are refused below
            found = None
        if found is None:
            if len(self._wirings) >= MOST_WIRINGS:
                self._wirings.clear()
            found = self._wirings[key] = _new_wiring(self._executor, feed, outputs)
        return found


def _new_wiring(executor: Executor, feed: Mapping[int, int], outputs: Sequence[int]) -> Wiring:
    feeds, wanted, stage = _checked(executor.plan, feed), executor.borders.wanted(outputs), executor.only_stage()
    if stage is not None and not all(_stays_on_device(executor.plan, stage, fed, wanted) for fed in feeds):
        stage = None
    if stage is not None and executor.plan.flow.state.intersection(stage.looks):
        stage = None  # the host looks at what the step before has written
    return Wiring(tuple(feeds), wanted, stage, frozenset(fed.target for fed in feeds))


def _run_together(
    executor: Executor, state: MethodState, wiring: Wiring, lives: Sequence[CallValues]
) -> list[tuple[Any, ...]] | None:
    """All steps in one submit; None if they differ in more than live integers and inputs, or hold too much."""
    stage, first, borders = wiring.stage, lives[0], executor.borders
    assert stage is not None and state.session is not None
    prepared = _prepare(executor, state, wiring, lives)
    if prepared is None:
        return None
    schedule, scalars = prepared
    reads = borders.reads(stage, first, wiring.wanted)
    later = _later_uploads(executor, stage, lives, wiring.fed)
    if _bytes_held(reads, later, len(lives)) > MOST_BYTES:
        return None
    uploads = borders.uploads(stage, first)
    present = {value_id for value_id, _ in uploads}  # an input that no kernel reads is not on the device
    feeds = [_on_device(executor.plan, fed, first) for fed in wiring.feeds if fed.target in present]
    data = state.session.run(schedule, scalars, uploads, reads, feeds, later, executor.observer)
    results = []
    for live, found in zip(lives, data, strict=True):
        borders.leave(live, reads, found)
        results.append(tuple(executor.output(value_id, live, state) for value_id in wiring.wanted))
    return results


def _checked(plan: Plan, feed: Mapping[int, int]) -> list[_Fed]:
    """The feeds, if they point at tensors that fit."""
    graph = plan.graph
    feeds: list[_Fed] = []
    for output, position in feed.items():
        source = at_position(graph.outputs, output, f"outputs of {graph.name}")
        target = at_position(graph.inputs, position, f"inputs of {graph.name}")
        fed = _Fed(output, position, source, target)
        made, taken = graph.values[source], graph.values[target]
        if not isinstance(made, TensorSpec) or not isinstance(taken, TensorSpec):
            raise InputError(f"{_words(plan, fed)}: only tensors can be fed", code="not_a_tensor")
        if not _castable(made.host_dtype, taken.host_dtype):
            raise InputError(
                f"{_words(plan, fed)}: {made.host_dtype.short} does not become {taken.host_dtype.short} unharmed",
                code="dtype",
            )
        if any(target == other.target for other in feeds):
            raise InputError(f"{_words(plan, fed)}, which another output feeds too", code="duplicate_feed")
        feeds.append(fed)
    return feeds


def _castable(made: DType, taken: DType) -> bool:
    # The device computes with 32 bits, so what it makes fits both.
    return (made in _INTEGERS and taken in _INTEGERS) or _holds(taken, made)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether one dtype holds every value of another."""
    return wide is narrow or (wide is not DType.BFLOAT16 and bool(np.can_cast(narrow.held, wide.held, "safe")))


def _words(plan: Plan, fed: _Fed) -> str:
    return f"output {fed.output} of {plan.graph.name} cannot feed input {fed.input}"


def _prepare(
    executor: Executor, state: MethodState, wiring: Wiring, lives: Sequence[CallValues]
) -> tuple[Schedule, list[dict[int, int]]] | None:
    """The schedule that serves all steps, and the live integers of each, by slot. None if no one does."""
    assert wiring.stage is not None
    first: Schedule | None = None
    scalars = []
    for number, live in enumerate(lives):
        schedule, slots = executor.prepare(wiring.stage, live, state)
        first = first or schedule
        if schedule is not first:
            return None
        for fed in wiring.feeds if number else ():
            _check_size(executor.plan, fed, lives[number - 1].dims[fed.source], live.dims[fed.target])
        scalars.append(slots)
    return None if first is None else (first, scalars)


def _stays_on_device(plan: Plan, stage: Segment, fed: _Fed, wanted: Sequence[int]) -> bool:
    """Whether a copy on the device does what a way through the host would."""
    made, taken = plan.graph.tensor(fed.source), plan.graph.tensor(fed.target)
    # What callers see in a narrower dtype is rounded when it is read.
    exact = _holds(made.host_dtype, made.dtype) and _holds(taken.host_dtype, made.dtype)
    # What the stage does not make is not kept until its end; an input handed through is answered by the host.
    kept = fed.source in stage.reads and (fed.target in stage.reads or fed.target not in wanted)
    return kept and exact and made.dtype is taken.dtype and fed.target not in plan.flow.hosted


def _check_size(plan: Plan, fed: _Fed, made: tuple[int, ...], taken: tuple[int, ...]) -> None:
    if numel(made) != numel(taken):
        raise InputError(
            f"{_words(plan, fed)}: its shape is {list(made)}, the next step's input has {list(taken)}", code="shape"
        )


def _later_uploads(
    executor: Executor, stage: Segment, lives: Sequence[CallValues], fed: Container[int]
) -> list[list[tuple[int, Array]]]:
    """For each step but the first, the inputs that are not fed and that it would not find in place."""
    later = []
    before: dict[int, bytes] = {}
    for live in lives:
        given = executor.borders.uploads(stage, live, fed)
        data = {value_id: array.tobytes() for value_id, array in given if value_id in executor.plan.kept}
        later.append([(v, array) for v, array in given if v not in data or data[v] != before.get(v)])
        before = data
    return later[1:]  # the first step's are uploaded in any case


def _bytes_held(reads: Sequence[tuple[int, int]], later: Sequence[Sequence[tuple[int, Array]]], steps: int) -> int:
    read = sum(padded(nbytes) for _, nbytes in reads)
    return read * steps + sum(padded(array.nbytes) for step in later for _, array in step)


def _on_device(plan: Plan, fed: _Fed, live: CallValues) -> Feed:
    return Feed(fed.source, fed.target, stored_bytes(plan.graph.tensor(fed.target).dtype, live.dims[fed.target]))


def _run_one_by_one(
    executor: Executor, state: MethodState, wiring: Wiring, steps: Sequence[Sequence[Any]], lives: Sequence[CallValues]
) -> list[tuple[Any, ...]]:
    results: list[tuple[Any, ...]] = []
    feeds, count = wiring.feeds, len(wiring.wanted)
    wanted = (*wiring.wanted, *(fed.source for fed in feeds))
    made: tuple[Any, ...] = ()  # by the step before, for each of the feeds
    for args, live in zip(steps, lives, strict=True):
        given = list(args)
        for fed, value in zip(feeds, made, strict=False):
            _check_size(executor.plan, fed, value.shape, live.dims[fed.target])
            spec = executor.plan.graph.tensor(fed.target)
            given[fed.input] = value.astype(spec.host_dtype.held).reshape(live.dims[fed.target])
        found = executor.run(state, given, wanted)
        results.append(found[:count])
        made = found[count:]
    return results

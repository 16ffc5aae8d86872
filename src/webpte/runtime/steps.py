"""Several executions of a method in one submit, each fed with results of the one before.

Together they run where nothing but device memory and live integers passes from one to the next. Otherwise, for
instance where the host looks at what is fed, they run one by one and give the same results.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..device import Feed
from ..errors import InputError
from ..graph import DType, TensorSpec, numel
from ..ops import stored_bytes
from ..plan import Live, Plan, Schedule, Segment, padded
from .borders import Array, at_position

if TYPE_CHECKING:
    from .method import Method

MOST_BYTES = 16 << 20  # of inputs and results that steps may hold at once before they run one by one
_INTEGERS = (DType.INT32, DType.INT64)


class _Fed(NamedTuple):
    """An output that becomes an input, by positions and by values."""

    output: int
    input: int
    source: int
    target: int


@dataclass(frozen=True)
class _Together:
    """What one submit for all steps needs."""

    segment: Segment
    schedule: Schedule
    scalars: list[dict[int, int]]  # live integers of each step, by slot


def run_steps(
    method: Method, steps: Sequence[Sequence[Any]], feed: Mapping[int, int], outputs: Sequence[int]
) -> list[tuple[Any, ...]]:
    """See Method.run_steps, which holds the lock."""
    feeds = _checked(method, feed)
    wanted = method._wanted(outputs)
    lives = [method._enter(args) for args in steps]  # all of them, so that nothing has run when one is refused
    together = _prepare(method, lives, feeds, wanted)
    if together is None:
        return _run_one_by_one(method, steps, lives, feeds, outputs)
    stage, first = together.segment, lives[0]
    reads = method._reads(stage, first, wanted)
    later = _later_uploads(method, stage, lives, {fed.target for fed in feeds})
    if _bytes_held(reads, later, len(steps)) > MOST_BYTES:
        return _run_one_by_one(method, steps, lives, feeds, outputs)
    assert method._session is not None
    data = method._session.run(
        together.schedule,
        together.scalars,
        method._uploads(stage, first),
        reads,
        [_on_device(method.plan, fed, first) for fed in feeds if fed.target in method.plan.uploads[stage]],
        later,
    )
    results = []
    for live, found in zip(lives, data, strict=True):
        method._leave(live, reads, found)
        results.append(tuple(method._output(value_id, live) for value_id in wanted))
    return results


def _checked(method: Method, feed: Mapping[int, int]) -> list[_Fed]:
    """The feeds, if they point at tensors that fit."""
    graph = method.plan.graph
    feeds: list[_Fed] = []
    for output, position in feed.items():
        source = at_position(graph.outputs, output, f"outputs of {method.name}")
        target = at_position(graph.inputs, position, f"inputs of {method.name}")
        fed = _Fed(output, position, source, target)
        made, taken = graph.values[source], graph.values[target]
        if not isinstance(made, TensorSpec) or not isinstance(taken, TensorSpec):
            raise InputError(f"{_words(method, fed)}: only tensors can be fed")
        if not _castable(made.host_dtype, taken.host_dtype):
            raise InputError(
                f"{_words(method, fed)}: {made.host_dtype.short} does not become {taken.host_dtype.short} unharmed"
            )
        if any(target == other.target for other in feeds):
            raise InputError(f"{_words(method, fed)}, which another output feeds too")
        feeds.append(fed)
    return feeds


def _castable(made: DType, taken: DType) -> bool:
    # The device computes with 32 bits, so what it makes fits both.
    return (made in _INTEGERS and taken in _INTEGERS) or _holds(taken, made)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether one dtype holds every value of another."""
    return wide.numpy is not None and narrow.numpy is not None and np.can_cast(narrow.numpy, wide.numpy, "safe")


def _words(method: Method, fed: _Fed) -> str:
    return f"output {fed.output} of {method.name} cannot feed input {fed.input}"


def _prepare(method: Method, lives: Sequence[Live], feeds: Sequence[_Fed], wanted: Sequence[int]) -> _Together | None:
    """What one submit for all steps needs; None if they differ in more than live integers, or the host looks on."""
    stage = method._only_stage()
    if stage is None or not lives or not all(_stays_on_device(method.plan, stage, fed, wanted) for fed in feeds):
        return None
    first: tuple[Schedule, int] | None = None
    scalars = []
    for number, live in enumerate(lives):
        schedule = method._prepare(stage, live)
        first = first or (schedule, schedule.version)
        if (schedule, schedule.version) != first:
            return None
        for fed in feeds if number else ():
            _check_size(method, fed, lives[number - 1].dims[fed.source], live.dims[fed.target])
        scalars.append(method.plan.lowering.slot_values())
    assert first is not None
    return _Together(stage, first[0], scalars)


def _stays_on_device(plan: Plan, stage: Segment, fed: _Fed, wanted: Sequence[int]) -> bool:
    """Whether a copy on the device does what a way through the host would."""
    made, taken = plan.graph.tensor(fed.source), plan.graph.tensor(fed.target)
    # What callers see in a narrower dtype is rounded when it is read.
    exact = _holds(made.host_dtype, made.dtype) and _holds(taken.host_dtype, made.dtype)
    # What the stage does not make is not kept until its end; an input handed through is answered by the host.
    kept = fed.source in stage.reads and (fed.target in stage.reads or fed.target not in wanted)
    return kept and exact and made.dtype is taken.dtype and fed.target not in plan.layout.hosted


def _check_size(method: Method, fed: _Fed, made: tuple[int, ...], taken: tuple[int, ...]) -> None:
    if numel(made) != numel(taken):
        raise InputError(f"{_words(method, fed)}: its shape is {list(made)}, the next step's input has {list(taken)}")


def _later_uploads(
    method: Method, stage: Segment, lives: Sequence[Live], fed: Container[int]
) -> list[list[tuple[int, Array]]]:
    """For each step but the first, the inputs that are not fed and that it would not find in place."""
    later = []
    before: dict[int, bytes] = {}
    for live in lives:
        given = method._uploads(stage, live, fed)
        data = {value_id: array.tobytes() for value_id, array in given if value_id in method.plan.kept}
        later.append([(v, array) for v, array in given if v not in data or data[v] != before.get(v)])
        before = data
    return later[1:]  # the first step's are uploaded in any case


def _bytes_held(reads: Sequence[tuple[int, int]], later: Sequence[Sequence[tuple[int, Array]]], steps: int) -> int:
    read = sum(padded(nbytes) for _, nbytes in reads)
    return read * steps + sum(padded(array.nbytes) for step in later for _, array in step)


def _on_device(plan: Plan, fed: _Fed, live: Live) -> Feed:
    return Feed(fed.source, fed.target, stored_bytes(plan.graph.tensor(fed.target).dtype, live.dims[fed.target]))


def _run_one_by_one(
    method: Method, steps: Sequence[Sequence[Any]], lives: Sequence[Live], feeds: Sequence[_Fed], outputs: Sequence[int]
) -> list[tuple[Any, ...]]:
    results: list[tuple[Any, ...]] = []
    made: tuple[Any, ...] = ()  # by the step before, for each of the feeds
    for args, live in zip(steps, lives, strict=True):
        given = list(args)
        for fed, value in zip(feeds, made, strict=False):
            _check_size(method, fed, value.shape, live.dims[fed.target])
            spec = method.plan.graph.tensor(fed.target)
            given[fed.input] = value.astype(spec.host_dtype.numpy).reshape(live.dims[fed.target])
        found = method.run(given, outputs=(*outputs, *(fed.output for fed in feeds)))
        results.append(found[: len(outputs)])
        made = found[len(outputs) :]
    return results

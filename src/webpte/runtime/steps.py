"""Several executions of a method in one submit, each fed with results of the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ops import stored_bytes
from ..plan import Live, Schedule, Segment

if TYPE_CHECKING:
    from .method import Method

_Prepared = tuple[Segment, Schedule, list[dict[int, int]], list[Live]]


def run_steps(
    method: Method, steps: Sequence[Sequence[Any]], feed: Mapping[int, int], outputs: Sequence[int]
) -> list[tuple[Any, ...]]:
    """See Method.run_steps, which holds the lock."""
    prepared = _prepare_steps(method, steps, feed)
    if prepared is None:
        return _run_one_by_one(method, steps, feed, outputs)
    segment, schedule, scalars, lives = prepared
    graph, session = method.plan.graph, method._session
    wanted = [graph.outputs[position] for position in outputs]
    reads = method._reads(segment, schedule, lives[0], wanted)
    feeds = []
    for source, target in feed.items():
        value_id = graph.inputs[target]
        nbytes = stored_bytes(graph.tensor(value_id).dtype, lives[0].dims[value_id])
        feeds.append((graph.outputs[source], value_id, nbytes))
    assert session is not None
    data = session.run(schedule, scalars, method._uploads(segment, lives[0]), reads, feeds)
    results = []
    for live, found in zip(lives, data, strict=True):
        method._leave(schedule, live, reads, found)
        results.append(tuple(method._output(value_id, live) for value_id in wanted))
    return results


def _prepare_steps(method: Method, steps: Sequence[Sequence[Any]], feed: Mapping[int, int]) -> _Prepared | None:
    """What one submit for all steps needs; None if they differ in more than live scalars, or the host looks on."""
    plan, stage = method.plan, method._only_stage()
    fed = {plan.graph.inputs[target] for target in feed.values()}
    if stage is None or fed & plan.layout.hosted:
        return None
    first: tuple[Schedule, int] | None = None
    scalars, lives = [], []
    for args in steps:
        live = method._enter(args)
        schedule = plan.lowering.prepare(stage, live)
        first = first or (schedule, schedule.version)
        if (schedule, schedule.version) != first:
            return None
        scalars.append(plan.lowering.slot_values())
        lives.append(live)
    return None if first is None else (stage, first[0], scalars, lives)


def _run_one_by_one(
    method: Method, steps: Sequence[Sequence[Any]], feed: Mapping[int, int], outputs: Sequence[int]
) -> list[tuple[Any, ...]]:
    results: list[tuple[Any, ...]] = []
    fed: dict[int, Any] = {}
    for args in steps:
        given = [fed.get(position, arg) for position, arg in enumerate(args)]
        found = method.run(given, outputs=(*outputs, *feed))
        results.append(found[: len(outputs)])
        for (_, target), value in zip(feed.items(), found[len(outputs) :], strict=True):
            fed[target] = value.reshape(np.shape(args[target])).astype(np.asarray(args[target]).dtype)
    return results

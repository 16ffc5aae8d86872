"""The points of a benchmark: one size or one context each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from ..errors import Error
from ..fusion.llm_rewrites import TOKEN
from ..llm.engine.scheduler import MAX_STEPS_PER_SUBMIT, STREAM_SECONDS
from ..llm.sampling import RowSamplingParams, pack
from ..progress import OnProgress, Progress
from ..runtime import ArgumentInfo, Method
from .inputs import make_inputs
from .timing import spread, timed

FRACTIONS = (8, 4, 2, 1)  # of the bound
SHORTEST = 16  # tokens
PATIENCE = 20  # budgets that one prompt may take; longer ones are left out
MOST_CALLS = 200
Shapes = tuple[tuple[int, ...] | None, ...]
GREEDY = pack([RowSamplingParams()])


def measure(call: Callable[[], Any], budget: float) -> dict[str, Any]:
    """Times of a call for as many seconds as the budget has. The first one prepares for its shape and is told apart."""
    first, _ = timed(call)
    times: list[float] = [first] if first > budget else []
    while not times or (sum(times) < budget and len(times) < MOST_CALLS):
        times.append(timed(call)[0])
    return {**(spread(times) or {}), "first": first}


# -- programs of any kind ----------------------------------------------------------------------------------------------


def size_points(method: Method, budget: float, progress: OnProgress) -> list[dict[str, Any]]:
    """Calls at parts of the bound, in every dim that may vary. Sizes that the program refuses are left out."""
    points = []
    sizes = _sizes(method)
    for number, shapes in enumerate(sizes):
        progress(Progress("measure", number, len(sizes), "points"))
        with suppress(Error):
            took = measure(partial(method.run, _arguments(method, shapes)), budget)
            points.append({"shapes": [shape for shape in shapes if shape is not None], **took})
    progress(Progress("measure", len(sizes), len(sizes), "points"))
    return points


def _sizes(method: Method) -> list[Shapes]:
    """Shapes of all inputs, growing."""
    return list(dict.fromkeys(tuple(_shrunk(info, part) for info in method.inputs) for part in FRACTIONS))


def _shrunk(info: ArgumentInfo, part: int) -> tuple[int, ...] | None:
    if info.bound is None or info.dynamic is None:
        return None
    return tuple(max(1, size // part) if may else size for size, may in zip(info.bound, info.dynamic, strict=True))


def _arguments(method: Method, shapes: Shapes) -> list[Any]:
    """Made up, as `webpte run` does: random, and 0 where a single integer is wanted."""
    given = [item.value for item in make_inputs(method.inputs)]
    return [value if shape is None else np.resize(value, shape) for value, shape in zip(given, shapes, strict=True)]


# -- language models ---------------------------------------------------------------------------------------------------


def prefill_points(
    method: Method, capacity: int, budget: float, progress: OnProgress
) -> tuple[list[dict[str, Any]], list[int]]:
    """Prompts of growing length, in pieces where they exceed the program's bound; and the lengths left out."""
    chunk = (method.inputs[0].bound or (1, 1))[1]
    growing = (*_grown(SHORTEST, chunk, 2), *_grown(chunk, capacity, 2), capacity - 1)
    lengths = sorted({n for n in growing if 0 < n < capacity})
    points: list[dict[str, Any]] = []
    for number, length in enumerate(lengths):
        progress(Progress("prefill", number, len(lengths), "points"))
        if points and points[-1]["median"] * length / points[-1]["tokens"] > PATIENCE * budget:
            break
        took = measure(partial(_prefill, method, length, chunk), budget)
        points.append({"tokens": length, **took, "tokens_per_second": length / took["median"]})
    progress(Progress("prefill", len(lengths), len(lengths), "points"))
    return points, lengths[len(points) :]


def decode_points(method: Method, capacity: int, budget: float, progress: OnProgress) -> list[dict[str, Any]]:
    """One token behind a context of growing length, alone and several to a submit, as `generate` paces itself."""
    contexts = sorted(
        {n for n in (*_grown(SHORTEST, capacity, 4), capacity - MAX_STEPS_PER_SUBMIT) if 0 < n < capacity}
    )
    points: list[dict[str, Any]] = []
    for number, context in enumerate(contexts):
        progress(Progress("decode", number, len(contexts), "points"))
        took = measure(partial(method.run, _step([1], context), outputs=(TOKEN,)), budget)
        count = max(1, min(int(STREAM_SECONDS / took["median"]), MAX_STEPS_PER_SUBMIT, capacity - context))
        paced = took["median"]
        if count > 1:
            steps = [_step([1], context + i) for i in range(count)]
            paced = measure(partial(method.run_steps, steps, {TOKEN: 0}, (TOKEN,)), budget)["median"] / count
        rates = {"tokens_per_second": 1 / took["median"], "paced_tokens_per_second": 1 / paced}
        points.append({"context": context, **took, **rates, "per_submit": count})
    progress(Progress("decode", len(contexts), len(contexts), "points"))
    return points


def _grown(first: int, end: int, factor: int) -> list[int]:
    """first, first * factor, ... below the end."""
    found = []
    while first < end:
        found.append(first)
        first *= factor
    return found


def _prefill(method: Method, length: int, chunk: int) -> None:
    for start in range(0, length, chunk):
        count = min(chunk, length - start)
        wanted = (TOKEN,) if start + count == length else ()
        method.run(_step([1] * count, start), outputs=wanted)


def _step(tokens: Sequence[int], position: int) -> tuple[Any, ...]:
    """The inputs of a model with the sampler behind it. What tokens they are does not matter for the time."""
    return (np.array([tokens], np.int64), np.array([position], np.int64), 0, *GREEDY)


# -- the host ----------------------------------------------------------------------------------------------------------


def host_share(method: Method, budget: float, speaks: bool = False) -> dict[str, Any]:
    """What the host does in one small call while it does not wait, and per dispatch: medians over several calls."""
    call = partial(method.run, _step([1], 0), outputs=(TOKEN,)) if speaks else _smallest_call(method)
    call()
    counters = method.counters
    before = counters.snapshot()
    calls: list[tuple[float, float]] = []  # seconds, of which waiting
    while not calls or (sum(took for took, _ in calls) < budget and len(calls) < MOST_CALLS):
        waited = counters.wait_seconds
        took, _ = timed(call)
        calls.append((took, counters.wait_seconds - waited))
    done = counters.since(before)
    dispatches = done.dispatches // len(calls)
    busy = float(np.median([took - waited for took, waited in calls]))
    return {
        "dispatches": dispatches,
        "submits": done.submits // len(calls),
        "call": float(np.median([took for took, _ in calls])),
        "busy": busy,
        "per_dispatch": busy / dispatches if dispatches else None,
    }


def _smallest_call(method: Method) -> Callable[[], Any]:
    """A call at the smallest of the sizes that the program takes. The bound is one of them."""
    for shapes in _sizes(method):
        call = partial(method.run, _arguments(method, shapes))
        with suppress(Error):
            call()
            return call
    return call

"""Pacing: long work is cut into several submits, so that none holds the GPU for longer than a limit.

A GPU runs one submit at a time. While it does, a display that it drives is not updated, and some drivers end a device
whose submit takes seconds. So work that is predicted to take longer than the limit is cut between two dispatches. The
results do not change: dispatches run in the same order.

The prediction is work over a rate. Work is known from the plan: multiplications and additions, and bytes. The rates
begin with those of a slow device, and completed submits correct them: for the device, and for each dispatch of a
schedule. A few submits are in flight, so that the device does not wait for the host, and Ctrl-C ends a call between two
of them. A dispatch that takes longer than the limit is submitted alone; it cannot be cut.

WEBPTE_MAX_SUBMIT_MS is the limit in milliseconds, 0 for none. The default is 50 on a GPU, and none on a software
device, which drives no display.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..environment import variable
from ..errors import DeviceError
from ..plan import DispatchWork
from .recording import DispatchCommand, Stage

LIMIT_VARIABLE = "WEBPTE_MAX_SUBMIT_MS"
DEFAULT_LIMIT_SECONDS = 0.05
# Rates of a slow device, before anything was measured.
FLOPS_PER_SECOND = 10e9
BYTES_PER_SECOND = 1e9
FIRST_SHARE = 1 / 8  # of the limit: what a submit may take by rates that were not measured yet
MAX_SPEEDUP = 4.0  # by which one submit may lower a prediction: it may have been easier than the next
MAX_IN_FLIGHT = 3  # submits: the device shall not wait for a host that is busy with other work
MIN_SECONDS = 0.002  # a shorter submit is mostly overhead, and does not show that the device is slow


def submit_limit(kind: str) -> float:
    """Return the limit of one submit in seconds, for a device of this kind; infinity for none."""
    text = variable(LIMIT_VARIABLE)
    if not text:
        return math.inf if kind == "cpu" else DEFAULT_LIMIT_SECONDS
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if not milliseconds >= 0:
        raise DeviceError(
            argument=LIMIT_VARIABLE, expected="milliseconds, or 0 for no limit", got=repr(text), code="submit_limit"
        )
    return milliseconds / 1e3 or math.inf


class _Rate:
    """The measured duration of work that one resource bounds, relative to the prediction by the rates above."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.known = False


class Pace:
    """Predicts the duration of dispatches on a device, and learns from submits that are done."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._arithmetic, self._memory = _Rate(), _Rate()

    def _basis(self, work: DispatchWork) -> tuple[_Rate, float]:
        """Return the rate that bounds a dispatch, and the seconds that a slow device takes for it."""
        arithmetic, memory = work.flops / FLOPS_PER_SECOND, work.nbytes / BYTES_PER_SECOND
        return (self._arithmetic, arithmetic) if arithmetic > memory else (self._memory, memory)

    def seconds(self, work: DispatchWork) -> float:
        """Return the predicted duration."""
        rate, seconds = self._basis(work)
        return rate.factor * seconds

    def is_known(self, work: DispatchWork) -> bool:
        return self._basis(work)[0].known

    def learn(self, seconds: Sequence[tuple[DispatchWork, float]]) -> None:
        """Record how long dispatches took. The rate that bounds most of them changes."""
        totals: dict[_Rate, list[float]] = {}  # seconds, and those of a slow device
        for work, taken in seconds:
            rate, slow = self._basis(work)
            total = totals.setdefault(rate, [0.0, 0.0])
            total[0] += taken
            total[1] += slow
        if totals:
            rate = max(totals, key=lambda each: totals[each][0])
            taken, slow = totals[rate]
            rate.factor = max(taken / slow, rate.factor / MAX_SPEEDUP) if slow else rate.factor
            rate.known = True


class Costs:
    """The predicted duration of each dispatch of a schedule, corrected by what was seen of it."""

    def __init__(self, pace: Pace, work: Sequence[DispatchWork]) -> None:
        self.pace = pace
        self._work = work
        self._seen: dict[int, float] = {}

    def __getitem__(self, dispatch: int) -> float:
        seconds = self._seen.get(dispatch)
        return self.pace.seconds(self._work[dispatch]) if seconds is None else seconds

    def is_known(self, dispatch: int) -> bool:
        return dispatch in self._seen or self.pace.is_known(self._work[dispatch])

    def correct_all(self, seconds: float) -> None:
        """Record that all dispatches took this long together."""
        self.correct([(number, self[number]) for number in range(len(self._work))], seconds)

    def correct(self, predicted: Sequence[tuple[int, float]], seconds: float) -> None:
        """Record that dispatches took this long together, whose durations were predicted as these."""
        total = sum(cost for _, cost in predicted)
        if total <= 0 or (seconds < MIN_SECONDS and seconds >= total):
            return
        taken = {number: cost * (seconds / total) for number, cost in predicted}
        self.pace.learn([(self._work[number], cost) for number, cost in taken.items() if number not in self._seen])
        self._seen.update(taken)


class SubmitPart(NamedTuple):
    """The work of one submit."""

    stages: list[Stage]
    costs: list[tuple[int, float]]  # number of each dispatch in the schedule, and its predicted seconds
    known: bool  # whether the prediction is based on measurements


def parts(stages: Sequence[Stage], costs: Costs) -> Iterator[SubmitPart]:
    """Yield the work of each submit in turn. Corrections of `costs` between two parts take effect."""
    now: list[Stage] = []
    predicted: list[tuple[int, float]] = []
    total, known = 0.0, True
    for copies, dispatches in stages:
        first = 0
        for number in range(len(dispatches)):
            cost, measured = costs[number], costs.is_known(number)
            budget = costs.pace.limit * (1.0 if known and measured else FIRST_SHARE)
            if predicted and total + cost > budget:
                if number > first:
                    now.append((copies, _from(dispatches, first, number)))
                    copies, first = (), number
                yield SubmitPart(now, predicted, known)
                now, predicted, total, known = [], [], 0.0, True
                cost, measured = costs[number], costs.is_known(number)
            predicted.append((number, cost))
            total += cost
            known = known and measured
        now.append((copies, _from(dispatches, first, len(dispatches))))
    yield SubmitPart(now, predicted, known)


def _from(dispatches: Sequence[DispatchCommand], first: int, end: int) -> Sequence[DispatchCommand]:
    """Return a range of prepared dispatches. The first of a pass has to name what the one before it had set."""
    if first == 0:
        return dispatches if end == len(dispatches) else dispatches[:end]
    pipeline, uniforms, storage = (
        next(d[field] for d in (dispatches[n] for n in range(first, -1, -1)) if d[field] is not None)
        for field in range(3)
    )
    head = dispatches[first]._replace(pipeline=pipeline, uniforms=uniforms, storage=storage)
    return [head, *dispatches[first + 1 : end]]


class _Flight(NamedTuple):
    """A submit that is not done."""

    part: SubmitPart
    fence: int
    began: float


def submit_parts(
    stages: Sequence[Stage],
    costs: Costs,
    submit: Callable[[Sequence[Stage]], tuple[int, int]],
    wait_for: Callable[[int], None],
) -> tuple[int, bool]:
    """Submit stages in parts. Return the number of the last submit, and whether there were several.

    `submit` returns its number and a fence that `wait_for` takes.
    """
    flight: list[_Flight] = []
    last = 0.0  # when the previous part was done
    number = count = 0

    def land() -> None:
        nonlocal last
        part, fence, began = flight.pop(0)
        wait_for(fence)
        done = time.perf_counter()
        costs.correct(part.costs, done - max(began, last))
        last = done

    for part in parts(stages, costs):
        number, fence = submit(part.stages)
        count += 1
        flight.append(_Flight(part, fence, time.perf_counter()))
        while len(flight) > (MAX_IN_FLIGHT - 1 if part.known else 0):
            land()
    while flight and count > 1:
        land()
    return number, count > 1

"""Long work is cut into submits of a predicted duration, and completed submits correct the prediction."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from tests.support.harness.errors import raises
from webpte.device.pacing import (
    BYTES_PER_SECOND,
    DEFAULT_LIMIT_SECONDS,
    FIRST_SHARE,
    FLOPS_PER_SECOND,
    LIMIT_VARIABLE,
    Costs,
    Pace,
    parts,
    submit_limit,
    submit_parts,
)
from webpte.device.recording import BufferCopy, DispatchCommand, Stage
from webpte.errors import DeviceError
from webpte.plan import DispatchWork

LIMIT = DEFAULT_LIMIT_SECONDS
FEED, READ = BufferCopy("result", 0, "input", 0, 4), BufferCopy("result", 0, "staging", 0, 4)


def commands(count):
    """Prepared dispatches: the first names everything, the others only their storage."""
    return [DispatchCommand("p" if n == 0 else None, "u" if n == 0 else None, f"s{n}", n, 1, 1) for n in range(count)]


def measured(seconds_each, count, limit=LIMIT):
    """Return the costs of dispatches on a device whose rate is known."""
    pace = Pace(limit)
    work = DispatchWork(int(FLOPS_PER_SECOND * seconds_each), 0)
    pace.learn([(work, seconds_each)])
    return Costs(pace, [work] * count)


def numbers_of(result):
    return [number for part in result for number, _ in part.costs]


def predicted(part):
    return sum(cost for _, cost in part.costs)


def test_parts_of_a_prefill_of_two_seconds_are_at_least_forty_submits():
    count = 250
    results = list(parts([((), commands(count)), ([READ], ())], measured(2.0 / count, count)))
    assert len(results) >= 40
    assert all(predicted(part) <= LIMIT for part in results) and sum(map(predicted, results)) == pytest.approx(2.0)
    assert numbers_of(results) == list(range(count))
    assert results[-1].stages[-1] == ([READ], ())
    for part in results:  # each pass sets what the previous one had set
        first = part.stages[0][1][0]
        assert (first.pipeline, first.uniforms) == ("p", "u") and first.storage == f"s{first.x}"


def test_parts_below_the_limit_are_the_same_stages():
    stages: list[Stage] = [((), commands(9)), ([READ], ())]
    (only,) = parts(stages, measured(LIMIT / 10, 9))
    assert only.stages == stages and only.stages[0][1] is stages[0][1]


def test_parts_with_one_dispatch_above_the_limit_has_it_alone():
    costs = measured(LIMIT / 4, 5)
    costs._seen[2] = 3 * LIMIT
    assert [numbers_of([part]) for part in parts([((), commands(5))], costs)] == [[0, 1], [2], [3, 4]]


def test_parts_of_several_executions_keep_the_copies_between_them():
    dispatches = commands(3)
    results = list(parts([((), dispatches), ([FEED], dispatches), ([READ], ())], measured(LIMIT / 2, 3)))
    assert [numbers_of([part]) for part in results] == [[0, 1], [2, 0], [1, 2]]
    assert [copies for part in results for copies, _ in part.stages] == [(), (), [FEED], (), [READ]]
    assert [len(rows) for part in results for _, rows in part.stages] == [2, 1, 1, 2, 0]


class Device:
    """A device with a clock of its own, which takes `seconds` for each dispatch."""

    def __init__(self, monkeypatch, seconds):
        self.now, self._seconds, self._idle_at = 0.0, seconds, 0.0
        self.submits, self._ends = [], []
        monkeypatch.setattr("webpte.device.pacing.time.perf_counter", lambda: self.now)

    def submit(self, stages):
        count = sum(len(dispatches) for _, dispatches in stages)
        self._idle_at = max(self.now, self._idle_at) + count * self._seconds
        self.submits.append(count)
        self._ends.append(self._idle_at)
        return len(self.submits), len(self._ends) - 1

    def wait_for(self, fence):
        self.now = max(self.now, self._ends[fence])

    def run(self, costs, count):
        self.submits.clear()
        submit_parts([((), commands(count))], costs, self.submit, self.wait_for)
        return [submit * self._seconds for submit in self.submits]


@pytest.mark.parametrize("slowdown", [0.001, 0.1, 1.0, 30.0])
def test_first_run_starts_small_and_later_runs_are_within_the_limit(monkeypatch, slowdown):
    """Whatever the rate of the device is, relative to the assumed one."""
    count, pace = 400, Pace(LIMIT)
    work = [DispatchWork(int(FLOPS_PER_SECOND * LIMIT / 40), 0)] * count
    device = Device(monkeypatch, slowdown * LIMIT / 40)
    first = device.run(Costs(pace, work), count)
    assert first[0] <= FIRST_SHARE * LIMIT * slowdown
    costs = Costs(pace, work)
    again = device.run(costs, count)
    assert max(device.run(costs, count)) <= max(LIMIT, device._seconds) * 1.001
    if slowdown < 1:
        assert len(again) <= len(first)
    else:
        assert max(first[1:]) <= max(LIMIT, device._seconds) * 1.001
    assert all(b <= 40 * a for a, b in pairwise(first[:-1]))


def test_work_bound_by_memory_is_learnt_apart_from_arithmetic(monkeypatch):
    pace = Pace(LIMIT)
    moves = DispatchWork(0, int(BYTES_PER_SECOND * LIMIT / 40))
    Device(monkeypatch, 0.1 * LIMIT / 40).run(Costs(pace, [moves] * 100), 100)
    assert pace.is_known(moves) and pace.seconds(moves) < LIMIT / 40
    product = DispatchWork(int(FLOPS_PER_SECOND * LIMIT / 40), 0)
    assert not pace.is_known(product) and pace.seconds(product) == pytest.approx(LIMIT / 40)


def test_short_submit_does_not_teach_its_overhead():
    costs = Costs(Pace(LIMIT), [DispatchWork(100, 100)])
    costs.correct_all(0.001)
    assert not costs.is_known(0) and costs[0] < 1e-6


@pytest.mark.parametrize(
    ("text", "kind", "seconds"),
    [("", "gpu", 0.05), ("", "cpu", math.inf), ("20", "cpu", 0.02), ("0", "gpu", math.inf), ("2.5", "gpu", 0.0025)],
)
def test_submit_limit_comes_from_the_environment(monkeypatch, text, kind, seconds):
    monkeypatch.setenv(LIMIT_VARIABLE, text)
    assert submit_limit(kind) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["fast", "-1", "nan"])
def test_submit_limit_refuses_other_values(monkeypatch, text):
    monkeypatch.setenv(LIMIT_VARIABLE, text)
    with raises(DeviceError, LIMIT_VARIABLE, text, code="submit_limit"):
        submit_limit("gpu")

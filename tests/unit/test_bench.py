"""A point of a benchmark has enough calls that a stalled one is not the median."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from webpte.cli.bench import _times
from webpte.debug import run
from webpte.measure.bench import MIN_CALLS, measure


@pytest.fixture
def calls(monkeypatch):
    """Return a call that takes as long as the next number, on a clock of its own."""
    clock = [0.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def make(seconds):
        times = itertools.chain(seconds, itertools.repeat(seconds[-1]))

        def call():
            clock[0] += next(times)

        return call

    return make


def test_measure_stalled_call_is_not_median(calls):
    point = measure(calls([0.01, 5.0, 0.01]), budget=1.0)
    assert point["calls"] >= MIN_CALLS and point["median"] == pytest.approx(0.01)


def test_measure_slow_first_call_is_excluded(calls):
    """It compiles. A call that takes longer than the budget is still measured warm."""
    point = measure(calls([3.0, 0.5]), budget=1.0)
    assert point["first"] == 3.0 and point["median"] == pytest.approx(0.5)


def test_measure_call_over_budget_runs_once_and_is_marked(calls):
    point = measure(calls([60.0]), budget=1.0)
    assert point["calls"] == 1
    assert _times(point) == ["60 s (1 call)", "", "", "1"]

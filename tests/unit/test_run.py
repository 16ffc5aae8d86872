"""The output of `webpte run` about arrays and times."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.harness.screens import printed
from webpte.cli.run import _reduced_dims
from webpte.debug import run
from webpte.debug.run import Stages, spread, summary
from webpte.errors import ShapeError
from webpte.progress import Progress
from webpte.runtime import ArgumentInfo
from webpte.text import duration, plural


def test_summary_non_finite_values_are_counted_and_excluded():
    report = summary(np.array([[1, np.nan], [np.inf, 3]], np.float32))
    assert (report["nonfinite"], report["min"], report["max"], report["mean"]) == (2, 1, 3, 2)
    assert report["shape"] == [2, 2] and report["dtype"] == "float32"
    assert json.loads(json.dumps(report, allow_nan=False))["head"] == [1, "nan", "inf", 3]


@pytest.mark.parametrize("array", [np.zeros((0, 3), np.float32), np.full(2, np.nan)])
def test_summary_without_finite_values_has_no_range(array):
    report = summary(array)
    assert report["min"] is report["max"] is report["mean"] is None and report["nonfinite"] == array.size


def test_integers_bools_and_numbers():
    assert summary(np.array([1, 2, 6]))["mean"] == 3 and summary(np.array([True, False]))["max"] == 1
    report = summary(7)
    assert (report["kind"], report["value"]) == ("int", 7) and report.keys() == summary(np.zeros(1)).keys()


def test_spread_of_times_has_median_min_and_p90():
    report = spread([4.0, 1.0, 2.0, 3.0, 10.0])
    assert report == {"calls": 5, "median": 3.0, "min": 1.0, "p90": pytest.approx(7.6)}


@pytest.mark.parametrize(
    ("time", "text"),
    [(1234.5, "1234 s"), (12.34, "12.3 s"), (0.9996, "1 s"), (0.0123, "12.3 ms"), (45.6e-6, "45.6 µs"), (0, "0 µs")],
)
def test_durations_have_units(time, text):
    assert duration(time) == text


def test_stages_add_up_to_the_whole(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(run, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    seen: list[Progress] = []
    stages = Stages(seen.append)
    for stage, done in (("read", 0), ("read", 9), ("compile", 0), ("compile", 5), ("compile", 9), ("upload", 9)):
        stages(Progress(stage, done, 9, "bytes"))
    stages.end()
    assert list(stages.seconds) == ["adapter", "read", "plan", "compile", "prepare", "upload"] and len(seen) == 6
    assert stages.total - sum(stages.seconds.values()) == 1  # between its last two looks at the clock


class Picky:
    """A method that accepts from `fewest` elements on."""

    def __init__(self, fewest):
        self.fewest, self.calls = fewest, []

    def run(self, arguments):
        self.calls.append(arguments[0].shape[1])
        if self.calls[-1] < self.fewest:
            raise ShapeError("too small")
        return arguments


@pytest.mark.parametrize(("fewest", "tried"), [(1, [16]), (50, [16, 64]), (500, [16, 64, 256, 512])])
def test_run_first_call_uses_smallest_accepted_shape(fewest, tried):
    method, infos = Picky(fewest), [ArgumentInfo("x", "tensor", "f32", (3, 512), (False, True))]
    values, _, outputs = run._first_call(method, infos, [], 0, run.DIM_SIZES)  # type: ignore[arg-type]
    assert method.calls == tried and outputs[0].shape == (3, tried[-1])
    reduced = run._reduced_dims(values, infos)
    assert reduced == [{"input": 0, "dim": 1, "size": tried[-1], "bound": 512}] * (tried[-1] < 512)


def test_run_explicit_shape_is_not_reduced():
    method, infos = Picky(1), [ArgumentInfo("x", "tensor", "f32", (3, 512), (False, True))]
    values, _, _ = run._first_call(method, infos, ["3x300:zeros"], 0, run.DIM_SIZES)  # type: ignore[arg-type]
    assert method.calls == [300] and run._reduced_dims(values, infos) == []


def test_reduced_shape_is_printed_with_the_option_for_another():
    reduced = [{"input": 0, "dim": 1, "size": 16, "bound": 512}]
    report: Any = {"reduced_dims": reduced, "inputs": [{"bound": [3, 512]}]}
    assert printed([lambda page: _reduced_dims(report, page)], 80)[-2:] == [
        "chosen shapes: input 0 dim 1: 16 of at most 512",
        "another shape: --input 0=3x512:random",
    ]
    assert printed([lambda page: _reduced_dims(report | {"reduced_dims": []}, page)], 80) == []


@pytest.mark.parametrize(("count", "noun", "text"), [
    (1, "layer", "1 layer"), (2, "layer", "2 layers"), (0, "call", "0 calls"), (2, "dispatch", "2 dispatches"),
])  # fmt: skip
def test_counted_nouns(count, noun, text):
    assert plural(count, noun) == text

"""One event for everything that takes long: its total is known from the start, and nothing is done otherwise for it."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

import webpte
from tests.support.harness.children import ROOT
from tests.support.harness.counting import counting_pte
from webpte.debug.run import run_file
from webpte.progress import Progress

X = np.arange(35, dtype=np.float32).reshape(5, 7)
UNITS = {"read": "bytes", "compile": "kernels", "upload": "bytes", "plan": "plans", "tune": "jobs"}


def work(path, folder, **options):
    """Everything that takes long without torch."""
    with webpte.load(path, **options) as program:
        result = program.method("forward", **options)(X)
        program.tune("forward", again=True, **options)
        webpte.bundle(program, folder / "site", **options)
    with webpte.load(folder / "site", **options) as site:
        return result, site.method("forward", **options).plan.kernels


@pytest.fixture
def path(tmp_path, monkeypatch, device):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return counting_pte(tmp_path / "p.pte")


def test_progress_totals_are_constant_and_stages_complete(path, tmp_path):
    events: list[Progress] = []
    work(path, tmp_path, progress=events.append)
    assert {event.stage for event in events} >= {"read", "compile", "upload", "plan"}
    for stage, updates in groupby(events, lambda event: event.stage):
        group = list(updates)
        assert {event.unit for event in group} == {UNITS[stage]}, stage
        assert len({event.total for event in group}) == 1, f"the total of {stage} changed on the way"
        done = [event.done for event in group]
        assert done == sorted(done) and done[-1] == group[-1].total, f"{stage} never arrives: {done}"


def test_progress_watching_changes_no_results(path, tmp_path):
    (tmp_path / "other").mkdir()
    watched, kernels = work(path, tmp_path, progress=lambda event: None)
    alone, others = work(path, tmp_path / "other")
    np.testing.assert_array_equal(watched, alone)
    assert kernels == others


def test_run_reports_every_call_and_computes_at_a_small_shape():
    events: list[Progress] = []
    report = run_file(ROOT / "docs" / "demo" / "model.pte", repeat=2, progress=events.append)
    assert report["inputs"][0]["shape"] == [1, 16]
    assert [(d["input"], d["dim"], d["size"]) for d in report["reduced_dims"]] == [(0, 1, 16)]
    assert [(event.done, event.total) for event in events if event.stage == "run"] == [(n, 3) for n in range(4)]

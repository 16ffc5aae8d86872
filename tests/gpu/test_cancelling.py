"""A cancelled load, call or export stops at its next step, and the object stays usable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import webpte
from tests.gpu.test_loading import live_objects
from tests.support.harness.counting import counting_pte
from tests.support.harness.errors import check, raises
from webpte.progress import CancelToken, Progress

X = np.arange(35, dtype=np.float32).reshape(5, 7)


class Stop:
    """Cancels its token when the event with a given number comes; the one after it must not be reported."""

    def __init__(self, at: int) -> None:
        self.cancel = CancelToken()
        self.events: list[Progress] = []
        self._at = at

    def progress(self, event: Progress) -> None:
        assert not self.cancel.cancelled, f"{event} was told after the work was cancelled"
        self.events.append(event)
        if len(self.events) > self._at:
            self.cancel.cancel()


def stopped_everywhere(work) -> list[Progress]:
    """Call `work(progress, cancel)` until it is done, cancelled one event later each time; the events of the last."""
    at = 0
    while True:
        stop = Stop(at)
        try:
            work(stop.progress, stop.cancel)
        except webpte.CancelledError as error:
            check(error, "CancelToken")
            assert len(stop.events) == at + 1
        else:
            assert at, "nothing that could be stopped"
            return stop.events
        at += 1


@pytest.fixture
def path(tmp_path, device):
    return counting_pte(tmp_path / "p.pte")


def test_load_cancelled(path):
    def work(progress, cancel):
        webpte.load(path, progress=progress, cancel=cancel).close()

    assert [(event.stage, event.done, event.total) for event in stopped_everywhere(work)] == [
        ("read", 0, path.stat().st_size),
        ("read", path.stat().st_size, path.stat().st_size),
    ]


def test_method_cancelled_program_stays_usable(path):
    with webpte.load(path) as program:
        want = program.method()(X)
    before = live_objects()
    with webpte.load(path) as program:

        def work(progress, cancel):
            program.method("forward", progress=progress, cancel=cancel)

        stages = [event.stage for event in stopped_everywhere(work)]
        assert stages.count("compile") >= 2 and "upload" in stages
        np.testing.assert_array_equal(program.method()(X), want)
    assert live_objects() == before


def test_bundle_cancelled_leaves_folder_unchanged(path, tmp_path):
    site = tmp_path / "site"
    with webpte.load(path) as program:
        webpte.bundle(program, site)
        before = contents(site)

        def work(progress, cancel):
            webpte.bundle(program, site, name="another", progress=progress, cancel=cancel)

        stop = Stop(0)
        with raises(webpte.CancelledError, "'plan'"):
            work(stop.progress, stop.cancel)
        assert contents(site) == before
        stopped_everywhere(work)
    assert contents(site) != before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["p.pte", "site"]


def test_method_of_bundle_and_saved_plan_cancelled(path, tmp_path):
    with webpte.load(path) as program:
        want = program.method()(X)
        program.method().save(tmp_path / "plan")
        webpte.bundle(program, tmp_path / "site", shapes={"forward": [[(5, 7)]]})
    for owner in (webpte.load(tmp_path / "site"), webpte.open_plan(tmp_path / "plan")):
        with owner:
            stopped_everywhere(lambda progress, cancel, owner=owner: owner.method(progress=progress, cancel=cancel))
            np.testing.assert_array_equal(owner.method()(X), want)


def test_cancel_wrong_type_is_refused(path):
    with raises(webpte.InputError, "cancel", "webpte.CancelToken", "int"):
        webpte.load(path, cancel=3)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

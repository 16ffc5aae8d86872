"""Calls in several submits give the bits of one, and what fails between two of them leaves the method usable."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.children import run_python
from tests.support.harness.counting import counting_pte
from tests.support.harness.devices import gpu_of, session_of
from tests.support.harness.errors import raises
from tests.support.harness.interruption import Interrupter, bounded, first_moments
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType
from webpte.debug.profile import profile
from webpte.device import gpu as gpu_module
from webpte.device.pacing import MAX_IN_FLIGHT
from webpte.device.recording import NativeRecorder, PortableRecorder

COUNT = 5
X = np.random.default_rng(0).standard_normal((64, 257)).astype(np.float32)


@pytest.fixture
def method(tmp_path):
    """Five softmaxes in a row, which no pass joins."""
    values = [c.VkTensor(DType.FLOAT32, (64, 257)) for _ in range(COUNT + 1)] + [c.VkInt(-1), c.VkBool(False)]
    calls = [("aten._softmax.default", [i, COUNT + 1, COUNT + 2, i + 1]) for i in range(COUNT)]
    simple_pte(tmp_path / "a.pte", values, calls, [0], [COUNT], [])
    with webpte.load(tmp_path / "a.pte") as program:
        yield program.method()


@pytest.fixture
def split(method, monkeypatch):
    """A limit that every dispatch exceeds."""
    monkeypatch.setattr(gpu_of(method).pace, "limit", 1e-9)


def submits(method, *args):
    before = method.counters.snapshot()
    method.run(args)
    done = method.counters.since(before)
    assert (done.passes, done.dispatches) == (done.submits, COUNT)
    return done.submits


@pytest.mark.parametrize("kind", [NativeRecorder, PortableRecorder])
def test_split_call_equals_unsplit_call(method, monkeypatch, kind):
    monkeypatch.setattr(gpu_of(method).pace, "limit", float("inf"))
    whole = method(X)
    assert submits(method, X) == 1
    monkeypatch.setattr(gpu_of(method).pace, "limit", 1e-9)
    monkeypatch.setattr(gpu_of(method), "recorder", kind(gpu_of(method).device))
    session_of(method).workspace._encoded.clear()
    for _ in range(3):
        assert submits(method, X) == COUNT
        np.testing.assert_array_equal(method(X), whole)


def test_short_call_is_one_submit_after_the_first(method, monkeypatch):
    monkeypatch.setattr(gpu_of(method).pace, "limit", 30.0)
    assert [submits(method, X) for _ in range(3)] == [1, 1, 1]


def test_call_that_took_longer_than_predicted_is_split_the_next_time(method, monkeypatch):
    monkeypatch.setattr("webpte.device.pacing.MIN_SECONDS", 0.0)  # below which nothing is learnt
    monkeypatch.setattr(gpu_of(method).pace, "limit", 30.0)
    method(X)
    (encoded,) = session_of(method).workspace.encoded
    encoded.costs._seen.clear()
    monkeypatch.setattr(gpu_of(method).pace, "limit", encoded.seconds / 100)  # the prediction may be below it
    method(X)
    assert submits(method, X) > 1


def test_split_steps_give_the_same_results(method, monkeypatch):
    steps = [[X]] * 3
    monkeypatch.setattr(gpu_of(method).pace, "limit", float("inf"))
    whole = method.run_steps(steps, {0: 0}, [0])
    monkeypatch.setattr(gpu_of(method).pace, "limit", 1e-9)
    before = method.counters.snapshot()
    parts = method.run_steps(steps, {0: 0}, [0])
    assert method.counters.since(before).submits == 3 * COUNT
    np.testing.assert_array_equal(parts, whole)


def test_profile_of_a_split_call_times_every_dispatch(method, split):
    report = profile(method, [X], repeat=3, roofline=False)
    assert len(report.dispatches) == COUNT
    assert all(len(run.intervals) == COUNT and run.submits == COUNT for run in report.timed)
    assert all((run.to_device, run.to_host) == (X.nbytes, X.nbytes) for run in report.plain)


def test_error_between_two_submits_leaves_the_method_usable(method, split, monkeypatch):
    expected = method(X)
    submit, left = gpu_of(method).submit, [2]

    def fail(*args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            raise webpte.DeviceError("no more submits")
        return submit(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(gpu_of(method), "submit", fail)
        with raises(webpte.DeviceError, "no more submits"):
            method(X)
    np.testing.assert_array_equal(method(X), expected)


def test_interrupt_at_every_line_of_a_split_call_leaves_the_method_usable(method, split):
    expected = method(X)
    with bounded():
        for moment in first_moments(lambda: method(X), "device"):
            Interrupter(moment, within="device").run(method, X)
            np.testing.assert_array_equal(method(X), expected)


def test_interrupt_between_two_submits_ends_the_call(method, split, monkeypatch):
    method(X)
    waits = []

    def wait(fence):
        waits.append(fence)
        raise KeyboardInterrupt

    before = method.counters.snapshot()
    with monkeypatch.context() as patch:
        patch.setattr(gpu_of(method).recorder, "wait_for", wait)
        with pytest.raises(KeyboardInterrupt):
            method(X)
    assert len(waits) == 1 and method.counters.since(before).submits == MAX_IN_FLIGHT < COUNT


def test_loss_between_two_submits_raises(tmp_path):
    """In another process: a submit to a lost device would abort it."""
    path = counting_pte(tmp_path / "p.pte")
    code = f"""
import numpy as np, webpte
from tests.support.harness.devices import gpu_of
program = webpte.load({str(path)!r})
method = program.method()
gpu = gpu_of(method)
X = np.arange(35, dtype=np.float32).reshape(5, 7)
want = method(X)
gpu.pace.limit = 1e-9
submit = gpu.submit
def lose(*args, **kwargs):
    number = submit(*args, **kwargs)
    gpu.device.destroy()
    return number
gpu.submit = lose
try:
    method(X)
except webpte.DeviceLost:
    print("lost")
program.recover()
assert np.array_equal(program.method()(X), want)
print("recovered")
"""
    assert run_python(code).split() == ["lost", "recovered"]


def test_limit_is_read_when_a_device_is_opened(device, monkeypatch):
    monkeypatch.setenv("WEBPTE_MAX_SUBMIT_MS", "7")
    opened = gpu_module.Gpu({})
    assert opened.pace.limit == pytest.approx(0.007)
    opened.device.destroy()

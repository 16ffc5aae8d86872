"""Dispatches timed one by one, by the device's stamps and by the host's clock; what a device can do at most."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import webpte
from tests.support.harness.caching import Cache, caching_pte, inputs
from tests.support.harness.devices import gpu_of, session_of
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType
from webpte.debug.profile import profile
from webpte.device import Observer, timing
from webpte.device.recording import NativeRecorder, PortableRecorder
from webpte.wgsl import render

COUNT = 5


@pytest.fixture
def method(tmp_path):
    """Five softmaxes in a row, which no pass joins."""
    values = [c.VkTensor(DType.FLOAT32, (64, 257)) for _ in range(COUNT + 1)] + [c.VkInt(-1), c.VkBool(False)]
    calls = [("aten._softmax.default", [i, COUNT + 1, COUNT + 2, i + 1]) for i in range(COUNT)]
    simple_pte(tmp_path / "a.pte", values, calls, [0], [COUNT], [])
    with webpte.load(tmp_path / "a.pte") as program:
        yield program.method()


@pytest.fixture
def recorders(method, monkeypatch):
    """Runs the method with one of the recorders; the rows it has prepared before are made again."""

    def use(kind):
        monkeypatch.setattr(gpu_of(method), "recorder", kind(gpu_of(method).device))
        session_of(method).workspace._encoded.clear()
        return method

    return use


X = np.random.default_rng(0).standard_normal((64, 257)).astype(np.float32)


class Timed(Observer):
    """Lets every dispatch be timed."""

    def __init__(self, gpu):
        self.clock = timing.DispatchClock(gpu)

    def submit(self, gpu, stages):
        return self.clock.submit(stages, self.phase)


@pytest.mark.parametrize("stamps", [True, False])
@pytest.mark.parametrize("kind", [NativeRecorder, PortableRecorder])
def test_timing_interval_per_dispatch_same_results(method, recorders, monkeypatch, kind, stamps):
    expected = method(X)
    if not stamps:
        monkeypatch.setattr(timing, "TIMESTAMP_FEATURE", "a feature no device has")
    recorders(kind)
    began = time.perf_counter_ns()
    observer = Timed(gpu_of(method))
    with method.observed(observer):
        assert observer.clock.stamps is stamps
        np.testing.assert_array_equal(method(X), expected)
        np.testing.assert_array_equal(method(X), expected)
        intervals = observer.clock.take()
        assert observer.clock.take() == []
    ended = time.perf_counter_ns()
    np.testing.assert_array_equal(method(X), expected)
    assert observer.clock.take() == []
    assert len(intervals) == 2 * COUNT
    assert all(begin < end for begin, end in intervals)
    flat = [moment for interval in intervals for moment in interval]
    assert flat == sorted(flat) and began <= flat[0] and flat[-1] <= ended


def test_timing_more_dispatches_than_query_set(method, monkeypatch):
    monkeypatch.setattr(timing, "MAX_PASSES", 2)
    expected, observer = method(X), Timed(gpu_of(method))
    with method.observed(observer):
        np.testing.assert_array_equal(method(X), expected)
    assert len(observer.clock.take()) == COUNT


def test_timing_device_clock_aligned_to_host(method, monkeypatch):
    resolve = timing.DispatchClock._resolve
    monkeypatch.setattr(timing.DispatchClock, "_resolve", lambda self, stamped: resolve(self, stamped) + 10**15)
    began, observer = time.perf_counter_ns(), Timed(gpu_of(method))
    with method.observed(observer):
        method(X)
    intervals = observer.clock.take()
    assert began <= intervals[0][0] and intervals[-1][1] <= time.perf_counter_ns()


@pytest.mark.parametrize("stamps", [True, False])
def test_profile_excludes_other_programs(method, tmp_path, monkeypatch, stamps):
    """On the same device, in another thread, all the time."""
    if not stamps:
        monkeypatch.setattr(timing, "TIMESTAMP_FEATURE", "a feature no device has")
    expected, stop, calls = method(X), threading.Event(), []
    with webpte.load(caching_pte(tmp_path / "b.pte")) as program:
        other, cache = program.method(), Cache()
        chance = np.random.default_rng(0)
        assert gpu_of(other) is gpu_of(method)

        def work():
            while not stop.is_set():
                operands = inputs(chance)
                calls.append(all(map(np.array_equal, other.run(operands), cache.answers(*operands))))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            during = 0
            while not during:
                before = len(calls)
                report = profile(method, [X], repeat=10, roofline=False)
                during = len(calls) - before
        finally:
            stop.set()
            thread.join(60)
    assert all(calls)
    assert report.stamps is stamps and len(report.dispatches) == COUNT
    assert {d.op for d in report.dispatches} == {"aten._softmax.default"}
    for run in report.plain + report.timed:
        assert (run.submits, run.to_device, run.to_host) == (1, X.nbytes, X.nbytes)
        assert len(run.schedules) == 1
    assert all(len(run.intervals) == COUNT for run in report.timed)
    np.testing.assert_array_equal(method(X), expected)


def test_forks_wait_while_a_method_is_observed(method):
    """They share what an observer is reported of."""
    seen, fork = [], method.fork()

    class Watcher(Observer):
        def phase(self, name):
            seen.append(name)

    with method.observed(Watcher()):
        thread = threading.Thread(target=lambda: fork(X))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive() and seen == []
        method(X)
        phases = list(seen)
    thread.join(60)
    assert not thread.is_alive() and seen == phases
    assert phases == [
        *("check inputs", "lower", "convert inputs", "bind", "write", "record", "submit", "wait", "read"),
        *("convert outputs", ""),
    ]


def test_peak_is_measured(device):
    before = device.counters.snapshot()
    result = timing.measure_peak(device)
    assert 1e7 < result.bytes_per_second < 1e14 and 1e8 < result.flops_per_second < 1e16
    assert device.counters.since(before).dispatches == 2 * timing.PEAK_ROUNDS


@pytest.mark.parametrize("kernel", [timing.PEAK_COPY, timing.PEAK_FMA])
def test_peak_kernels_pass_tint(kernel):
    from pydawn import utils, webgpu

    adapter = utils.request_adapter_sync(power_preference=webgpu.WGPUPowerPreference_HighPerformance)
    utils.create_shader_module(utils.request_device_sync(adapter, []), render(kernel))

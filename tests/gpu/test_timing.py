"""Dispatches timed one by one, by the device's stamps and by the host's clock; what a device can do at most."""

from __future__ import annotations

import time

import numpy as np
import pytest

import webpte
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType
from webpte.device import peak, timing
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
        monkeypatch.setattr(method._gpu, "recorder", kind(method._gpu.device))
        method._session.workspace._realised.clear()
        return method

    return use


X = np.random.default_rng(0).standard_normal((64, 257)).astype(np.float32)


@pytest.mark.parametrize("stamps", [True, False])
@pytest.mark.parametrize("kind", [NativeRecorder, PortableRecorder])
def test_each_dispatch_has_an_interval_and_results_are_the_same(method, recorders, monkeypatch, kind, stamps):
    wanted = method(X)
    if not stamps:
        monkeypatch.setattr(timing, "FEATURE", "a feature no device has")
    fork = recorders(kind)
    gpu = method._gpu
    plain = gpu.recorder
    began = time.perf_counter_ns()
    with timing.timed(gpu) as recorder:
        assert recorder.stamps is stamps
        np.testing.assert_array_equal(fork(X), wanted)
        np.testing.assert_array_equal(fork(X), wanted)
        intervals = recorder.take()
        assert recorder.take() == []
    ended = time.perf_counter_ns()
    assert gpu.recorder is plain
    assert len(intervals) == 2 * COUNT
    assert all(begin < end for begin, end in intervals)
    flat = [moment for interval in intervals for moment in interval]
    assert flat == sorted(flat) and began <= flat[0] and flat[-1] <= ended


def test_more_dispatches_than_a_query_set_holds(method, monkeypatch):
    monkeypatch.setattr(timing, "PASSES", 2)
    wanted = method(X)
    with timing.timed(method._gpu) as recorder:
        np.testing.assert_array_equal(method(X), wanted)
        assert len(recorder.take()) == COUNT


def test_a_device_with_another_clock_is_moved_to_the_hosts(method, monkeypatch):
    resolve = timing.TimedRecorder._resolve
    monkeypatch.setattr(timing.TimedRecorder, "_resolve", lambda self, stamped: resolve(self, stamped) + 10**15)
    began = time.perf_counter_ns()
    with timing.timed(method._gpu) as recorder:
        method(X)
        intervals = recorder.take()
    assert began <= intervals[0][0] and intervals[-1][1] <= time.perf_counter_ns()


def test_peak_is_measured(device):
    before = device.counters.snapshot()
    found = peak.measure_peak(device)
    assert 1e7 < found.bytes_per_second < 1e14 and 1e8 < found.flops_per_second < 1e16
    assert device.counters.since(before).dispatches == 2 * peak.ROUNDS


@pytest.mark.parametrize("kernel", [peak.COPY, peak.FMA])
def test_peak_kernels_pass_tint(kernel):
    from pydawn import utils, webgpu

    adapter = utils.request_adapter_sync(power_preference=webgpu.WGPUPowerPreference_HighPerformance)
    utils.create_shader_module(utils.request_device_sync(adapter, []), render(kernel))

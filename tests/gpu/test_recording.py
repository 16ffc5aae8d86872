"""Recording through the native entry points does what recording through the public API does."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.devices import gpu_of, session_of
from tests.support.harness.errors import raises
from tests.support.harness.work import executed_lines
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkInt, VkTensor
from webpte.device import recording

F32 = DType.FLOAT32
DISPATCH_LINES = 30


@pytest.fixture
def method(tmp_path):
    """forward(x) = four additions, x f32[11, 7] at most."""
    values = [VkTensor(F32, (11, 7)), VkInt(1), *(VkTensor(F32, (11, 7)) for _ in range(4))]
    calls = [("aten.add.Tensor", (source, 0, 1, target)) for source, target in ((0, 2), (2, 3), (3, 4), (4, 5))]
    simple_pte(tmp_path / "p.pte", values, calls, [0], [5], dynamic=True)
    with webpte.load(tmp_path / "p.pte", passes=()) as program:
        yield program.method()


def recorders(method):
    device = gpu_of(method).device
    return [recording.NativeRecorder(device), recording.PortableRecorder(device)]


def test_recorders_native_and_portable_same_result(method, monkeypatch):
    results = []
    for recorder in recorders(method):
        monkeypatch.setattr(gpu_of(method), "recorder", recorder)  # the device may be shared with other tests
        session_of(method).workspace._encoded.clear()  # rows are prepared by a recorder for itself
        results.append([method(np.full((rows, 7), 0.5, np.float32)) for rows in (11, 3, 11)])
    for native, portable in zip(*results, strict=True):
        assert np.array_equal(native, portable)
        assert np.array_equal(native, np.full(native.shape, 2.5, np.float32))


def test_redundant_state_is_not_set_again(method):
    native, _ = recorders(method)
    pipeline, uniforms, storage = (type("Handle", (), {"_internal": name})() for name in "pus")
    rows = native.prepare([recording.DispatchCommand(pipeline, uniforms, storage, 1, 1, 1)] * 3)
    assert [row[:3] for row in rows] == [("p", "u", "s"), (None,) * 3, (None,) * 3]


def test_recorder_failed_encoding_is_not_submitted(method):
    """Submitting it would abort the process."""
    x = np.ones((2, 7), np.float32)
    method(x)
    rows = session_of(method)._dispatches
    encoded = session_of(method).workspace.encoded[-1]
    good = rows[encoded]
    rows[encoded] = [good[0]._replace(x=70_000)]  # more workgroups than a dimension may have
    with raises(webpte.DeviceError, "submit", code="validation"):
        method(x)
    rows[encoded] = good
    assert np.array_equal(method(x), np.full((2, 7), 5, np.float32))


@pytest.mark.parametrize("shape", [(11, 7), (1, 1)])
def test_recorder_first_call_creates_no_objects(method, shape):
    before, lowered = method.counters.snapshot(), method.lowerings
    method(np.ones(shape, np.float32))
    done = method.counters.since(before)
    assert (done.buffers, done.bind_groups, done.pipelines, done.uniform_bytes) == (0, 0, 0, 0)
    assert method.lowerings == lowered


def test_recorder_dispatch_costs_few_host_lines(method):
    """Of Python, which take a few microseconds."""
    method(np.ones((2, 7), np.float32))
    rows = list(session_of(method)._dispatches[session_of(method).workspace.encoded[-1]])
    few, many = (lines_to_record(gpu_of(method), rows * count) for count in (1, 250))
    assert 0 < (many - few) / (249 * len(rows)) <= DISPATCH_LINES


def lines_to_record(gpu, rows):
    commands = []
    lines = executed_lines(lambda: commands.append(gpu.recorder.record([((), rows)])))
    gpu.recorder.enqueue(*commands)
    gpu.recorder.wait()
    return lines

"""A lost device: a typed error instead of an abort, never handed out again, and everything back with `recover`.

Every loss happens in a process of its own: a submit to a lost device aborts it.
"""

from __future__ import annotations

import pytest

from tests.support.harness.children import run_python
from tests.support.harness.counting import counting_pte
from tests.support.harness.gate import slow_but

# What `lose_at(owner, name, number)` does: the device goes when a function is called for that time, before it does
# anything. `number` counts from 0.
COMMON = """
import sys
import numpy as np
import webpte
from tests.support.harness.devices import destroy_device, gpu_of
from webpte.device import gpu, recording, session, weights, workspace

X = np.arange(35, dtype=np.float32).reshape(5, 7)

def lose_at(owner, name, number=0, opened=lambda: gpu._OPEN[-1]):
    original, left = getattr(owner, name), [number]
    def call(*args, **kwargs):
        left[0] -= 1
        if left[0] == -1:
            opened().device.destroy()
        return original(*args, **kwargs)
    kept = vars(owner)[name]
    setattr(owner, name, staticmethod(call) if isinstance(kept, staticmethod) else call)
    return lambda: setattr(owner, name, kept)

def lost(function):
    try:
        function()
    except webpte.DeviceLost as error:
        assert error.code == "device_lost" and "(destroyed)" in str(error) and "program.recover()" in str(error), error
        return True
    return False
"""


@pytest.fixture
def path(tmp_path):
    return counting_pte(tmp_path / "p.pte")


CALLS = {
    "idle": "destroy_device(program.method())",
    "before the uniforms are written": "lose_at(workspace.Workspace, 'encode')",
    "before it is recorded": "lose_at(recording.NativeRecorder, 'record')",
    "in the middle of recording": "lose_at(recording.NativeRecorder, '_record_pass')",
    "recorded, not yet submitted": "lose_at(recording.NativeRecorder, 'enqueue')",
    "submitted, not yet mapped": "lose_at(recording.NativeRecorder, 'map')",
    "while its results are waited for": "lose_at(recording, 'wait_until')",
}
CALLS_IN_THE_GATE = ("idle", "in the middle of recording", "submitted, not yet mapped")


@pytest.mark.parametrize("when", slow_but(CALLS_IN_THE_GATE, CALLS))
def test_device_lost_in_call_raises_and_recovers(path, tmp_path, when):
    code = f"""
program = webpte.load(sys.argv[1])
forward = program.method()
fork = forward.fork()
forward(X), forward(X)
forward.snapshot(sys.argv[2])
{CALLS[when]}
print(lost(lambda: forward(X)), lost(lambda: forward(X)), lost(fork.fork), lost(forward.reset))
print(program.recover(), program.recover(), forward.recoveries, fork.recoveries)
assert program.method() is forward
print(forward(X)[0, 1], fork(X)[0, 1], fork(X)[0, 1])
forward.restore(sys.argv[2])
print(forward(X)[0, 1])
program.close()
print(gpu._OPEN)
"""
    printed = run_python(COMMON + code, path, tmp_path / "state").splitlines()
    assert printed == ["True True True True", "True False 1 1", "2.0 2.0 4.0", "6.0", "[]"]


LOADS = {
    "before the first buffer": "lose_at(gpu.Gpu, 'create_buffer')",
    "while a kernel is compiled": "lose_at(gpu.Gpu, '_compile_kernel', 1)",
    "while a kernel is tried": "lose_at(recording, 'wait_until')",
    "while weights are uploaded": "lose_at(weights.UploadStream, 'write')",
    "while it waits for the upload": "lose_at(gpu.Gpu, 'wait')",
    "when shared memory is taken": "lose_at(workspace.Workspace, '_allocate')",
    "when memory for the state is taken": "lose_at(session.Session, '_allocate')",
    "when bind groups are made": "lose_at(workspace.Workspace, 'encode')",
    "when bind groups of state are made": "lose_at(session.Session, '_bind')",
}
LOADS_IN_THE_GATE = ("while a kernel is compiled", "while weights are uploaded", "when bind groups of state are made")


@pytest.mark.parametrize("when", slow_but(LOADS_IN_THE_GATE, LOADS))
def test_device_lost_in_load_raises_and_recovers(path, when):
    code = f"""
program = webpte.load(sys.argv[1])
again = {LOADS[when]}
print(lost(program.method), lost(program.method))
again()
print(program.recover())
print(program.method()(X)[0, 1])
"""
    assert run_python(COMMON + code, path).splitlines() == ["True True", "True", "2.0"]


def test_device_lost_programs_recover_independently(path, tmp_path):
    counting_pte(tmp_path / "q.pte", 2)
    code = """
first, second = (webpte.load(path) for path in sys.argv[1:])
forward, other = first.method(), second.method()
dead = gpu_of(forward)
assert gpu_of(other) is dead
dead.device.destroy()
with webpte.load(sys.argv[1]) as third:
    print(gpu_of(third.method()) is not dead, third.method()(X)[0, 1])
    print(first.recover(), forward(X)[0, 1], gpu_of(forward) is gpu_of(third.method()))
print(lost(lambda: other(X)), second.recover(), other(X)[0, 1], gpu_of(other) is gpu_of(forward))
first.close(), second.close()
print(dead.users, gpu._OPEN)
"""
    printed = run_python(COMMON + code, path, tmp_path / "q.pte").splitlines()
    assert printed == ["True 2.0", "True 2.0 True", "True True 3.0 True", "0 []"]


@pytest.mark.parametrize("when", ["lose_at(weights.UploadStream, 'write')", "lose_at(session.Session, '_allocate', 1)"])
def test_device_lost_failed_recovery_can_be_repeated(path, when):
    """The second device is lost as well, when only some of the methods are back."""
    code = f"""
program = webpte.load(sys.argv[1])
forward = program.method()
forks = [forward.fork() for _ in range(3)]
destroy_device(forward)
assert lost(lambda: forward(X))
again = {when}
print(lost(program.recover), [lost(lambda: method(X)) for method in (forward, *forks)])
again()
print(program.recover(), [float(method(X)[0, 1]) for method in (forward, *forks)])
"""
    printed = run_python(COMMON + code, path).splitlines()
    assert printed == ["True [True, True, True, True]", "True [2.0, 2.0, 2.0, 2.0]"]


def test_destroyed_by_another_thread(path):
    """At any moment of a loop of calls, twenty times."""
    code = """
import random, threading, time
random.seed(0)
program = webpte.load(sys.argv[1])
forward = program.method()
for number in range(20):
    timer = threading.Timer(random.random() * 0.02, gpu_of(forward).device.destroy)
    timer.start()
    calls = 0
    try:
        while True:
            calls += 1
            assert np.array_equal(forward(X), calls * (X + 1))
    except webpte.DeviceLost:
        assert program.recover()
    timer.join()
print(forward.recoveries, forward(X)[0, 1])
"""
    assert run_python(COMMON + code, path) == "20 2.0\n"

"""Forks of methods are closed with their parent; forked processes own nothing of the parent's GPU."""

from __future__ import annotations

import gc
import os
import sys
import threading

import numpy as np
import pytest

import webpte
from tests.support.harness.children import run_python
from tests.support.harness.counting import X, answer, counting_pte


@pytest.fixture
def path(tmp_path):
    return counting_pte(tmp_path / "p.pte")


@pytest.mark.parametrize("owner", ["program", "method"])
def test_forks_close_with_their_program(path, device, owner):
    """The device stays open: a submit that uses memory which is gone would abort the process."""
    program = webpte.load(path)
    forward = program.method()
    child = forward.fork()
    grandchild = child.fork()
    last = grandchild.fork()
    assert np.array_equal(last(X), answer(1, 1))
    del child, grandchild
    gc.collect()
    if owner == "method":
        forward.close()
        assert np.array_equal(program.method()(X), answer(1, 1)), "a closed method is not loaded again"
    else:
        program.close()
    for use in (lambda: last(X), last.fork, last.reset, lambda: forward(X)):
        with pytest.raises(webpte.ClosedError):
            use()
    program.close()


def test_fork_close_leaves_parent_and_others_open(path):
    with webpte.load(path) as program:
        forward = program.method()
        child = forward.fork()
        grandchild = child.fork()
        child.close()
        with pytest.raises(webpte.ClosedError):
            child(X)
        assert np.array_equal(grandchild(X), answer(1, 1)) and np.array_equal(forward(X), answer(1, 1))


def test_forks_unreferenced_are_released(path):
    with webpte.load(path) as program:
        forward = program.method()
        held = forward
        for _ in range(5):
            held = held.fork()
        gc.collect()
        assert len(forward._forks) == 1
        held.close()


def test_objects_may_be_collected_in_any_order_and_thread(path, device):
    """Programs and methods dropped without a word, in a thread that never used them, while others run."""
    box: list[object] = []
    stop = threading.Event()

    def collect():
        while not stop.is_set():
            box.clear()
            gc.collect()

    thread = threading.Thread(target=collect)
    gc.freeze()  # else every collection walks over all that a whole run of the tests has imported
    thread.start()
    try:
        for _ in range(10):
            program = webpte.load(path)
            forward = program.method()
            fork = forward.fork()
            box.extend([program, forward, [fork, box]])  # part of a cycle
            del program, forward
            assert np.array_equal(fork(X), answer(1, 1))
            box.append(fork)
    finally:
        stop.set()
        thread.join(60)
        gc.unfreeze()


CHILD = """
import gc, os, signal, sys, threading
import numpy as np
import webpte
from tests.support.harness.devices import gpu_of

X = np.arange(35, dtype=np.float32).reshape(5, 7)
program = webpte.load(sys.argv[1])
forward = program.method()
fork = forward.fork()
forward(X)

def refused(use):
    try:
        use()
    except webpte.ForkedError as error:
        assert error.code == "forked" and f"{os.getppid()}" in str(error) and f"{os.getpid()}" in str(error), error
        return True
    return False

def in_a_child(work, status=0):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs is ended by it
        work()
        print("done", flush=True)
        sys.exit(status)
    _, ended = os.waitpid(child, 0)
    print("ended", ended >> 8, "signal", ended & 127, flush=True)
"""

OWN = ["2.0 4.0", "done", "ended 0 signal 0"]
FORKS = {
    "is refused at once": (
        """
def work():
    uses = [lambda: forward(X), forward.fork, forward.reset, lambda: fork.snapshot("never"), program.method,
            program.plan, program.tune, program.recover, forward.exclusive().__enter__,
            lambda: forward.run_steps([(X,)], {}, [0])]
    print([refused(use) for use in uses] == [True] * len(uses))
in_a_child(work)
print(forward(X)[0, 1])
""",
        ["True", "done", "ended 0 signal 0", "4.0"],
    ),
    "is refused though a thread of the parent holds every lock": (
        """
held, leave = threading.Event(), threading.Event()
def hold():
    with program._lock, forward._lock, gpu_of(forward).lock:
        held.set()
        leave.wait(60)
thread = threading.Thread(target=hold)
thread.start()
held.wait(60)
def work():
    print(refused(lambda: forward(X)), refused(program.method))
    program.close()
in_a_child(work)
leave.set()
thread.join()
print(forward(X)[0, 1])
""",
        ["True True", "done", "ended 0 signal 0", "4.0"],
    ),
    "may be dropped and closed, and the child's status stands": (
        """
def work():
    global program, forward, fork
    fork.close()
    del fork, forward
    gc.collect()
    program.close()
    del program
    gc.collect()
in_a_child(work, 7)
print(forward(X)[0, 1], fork(X)[0, 1])
""",
        ["done", "ended 7 signal 0", "4.0 2.0"],
    ),
    "does not keep the child from loading its own": (
        """
def work():
    with webpte.load(sys.argv[1]) as own:
        print(own.method()(X)[0, 1], own.method()(X)[0, 1])
in_a_child(work)
in_a_child(lambda: in_a_child(work))
program.close()
in_a_child(work)
""",
        [*OWN, *OWN, "done", "ended 0 signal 0", *OWN],
    ),
}


@pytest.mark.skipif(
    not hasattr(os, "fork") or sys.platform == "darwin", reason="needs os.fork and a driver that bears it"
)
@pytest.mark.parametrize("what", FORKS)
def test_process_fork_inherited_objects_raise(path, what):
    code, expected = FORKS[what]
    assert run_python(CHILD + code, path).splitlines() == expected

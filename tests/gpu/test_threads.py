"""Threads share devices, programs and methods: every result is exact, and nothing is made twice."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import webpte
from tests.support.harness.children import run_python
from tests.support.harness.counting import X, answer, counting_pte

THREADS = 8


@pytest.fixture
def paths(tmp_path):
    return [counting_pte(tmp_path / f"{weight}.pte", weight) for weight in range(1, 5)]


@pytest.fixture
def program(paths):
    with webpte.load(paths[0]) as program:
        yield program


def in_threads(work, count=THREADS):
    """Call `work(number)` in that many threads at once; the results, or the first error."""
    start = threading.Barrier(count)

    def begin(number):
        start.wait(60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return [future.result(120) for future in [pool.submit(begin, number) for number in range(count)]]


# In a child process: two threads that use one native object at once abort it. Being slow there makes it sure.
SEVERAL_PROGRAMS = """
import sys, threading, time
import numpy as np
import webpte
from tests.support.harness.devices import gpu_of
from webpte.device import recording

class SlowToSubmit:
    def __getattr__(self, name):
        return getattr(native, name)

    def wgpuQueueSubmit(self, *args):
        time.sleep(0.0005)
        native.wgpuQueueSubmit(*args)

native, recording.lib = recording.lib, SlowToSubmit()
paths, calls = sys.argv[2:], int(sys.argv[1])
X = np.arange(35, dtype=np.float32).reshape(5, 7)
methods = [webpte.load(path).method() for path in paths]
assert len({id(gpu_of(method)) for method in methods}) == 1
wrong = []

def work(number):
    weight = number % len(methods) + 1
    method = methods[weight - 1].fork()
    for call in range(1, calls + 1):
        if not np.array_equal(method(X), call * (X + weight)):
            wrong.append((number, call))

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("wrong", wrong)
"""


def test_threads_several_programs_share_device(paths):
    assert run_python(SEVERAL_PROGRAMS, 50, *paths) == "wrong []\n"


def test_threads_own_program_method_or_fork_are_exact():
    """`python -m tests.studies soak.pair` makes 2,000 calls of each, every night."""
    printed = run_python("import sys; from tests.studies.soak.pair import main; sys.exit(main(['--calls', '300']))")
    assert printed.splitlines() == [f"a {what} each: 300 of 300 exact" for what in ("program", "method", "fork")]


def test_threads_method_is_created_once(program, device):
    before = device.counters.snapshot()
    methods = in_threads(lambda _: program.method())
    assert len({id(method) for method in methods}) == 1
    assert device.counters.since(before).constant_bytes == X.nbytes  # the weight, once


def test_forks_are_created_used_and_dropped_in_threads(program):
    forward = program.method()

    def work(number):
        for _ in range(2):
            fork = forward.fork()
            fork.reset()
            grandchild = fork.fork()
            for call in (1, 2, 3):
                assert np.array_equal(fork(X), answer(1, call))
            del fork
            if number % 2:
                gc.collect()
            assert np.array_equal(grandchild(X), answer(1, 1))
        return True

    assert all(in_threads(work))
    assert len(forward._forks) == 0


def test_closing_waits_for_calls_and_refuses_later_ones(paths):
    program = webpte.load(paths[0])
    forward = program.method()
    started = threading.Event()
    outcomes = []

    def work():
        calls = 0
        try:
            while True:
                calls += 1
                assert np.array_equal(forward(X), answer(1, calls))
                started.set()
        except webpte.ClosedError as error:
            outcomes.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(60)
    program.close()
    thread.join(60)
    assert len(outcomes) == 1
    with pytest.raises(webpte.ClosedError):
        program.method()


def test_programs_come_and_go_while_others_run(paths, device):
    """The device they share stays; what each of them made is released."""

    def work(number):
        weight = number % len(paths) + 1
        for _ in range(3):
            with webpte.load(paths[weight - 1]) as program:
                assert np.array_equal(program.method()(X), answer(weight, 1))
        return True

    before = device.users
    assert all(in_threads(work))
    assert device.users == before


def test_threads_snapshot_is_consistent(program, tmp_path):
    forward = program.method()
    other = forward.fork()
    stop = threading.Event()

    def call():
        while not stop.is_set():
            forward(X)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        for number in range(5):
            forward.snapshot(tmp_path / "state")
            other.restore(tmp_path / "state")
            after = other(X) / (X + 1)
            assert (after == after[0, 0]).all(), number
    finally:
        stop.set()
        thread.join(60)


def test_interrupt_reaches_thread_waiting_for_device(program):
    """Ctrl-C while another thread has the device: the call is given up at once, and nothing stays locked."""
    code = """
import os, signal, sys, threading
import numpy as np
import webpte
from tests.support.harness.devices import gpu_of
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with SIGINT ignored
X = np.arange(35, dtype=np.float32).reshape(5, 7)
forward = webpte.load(sys.argv[1]).method()
forward(X)
held, leave = threading.Event(), threading.Event()
def hold():
    with gpu_of(forward).lock:
        held.set()
        leave.wait(600)
thread = threading.Thread(target=hold)
thread.start()
held.wait(60)
timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
try:
    timer.start()
    forward(X)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", thread.is_alive())
leave.set()
thread.join()
print(forward.run((X,))[0][0, 1])
"""
    assert run_python(code, program.path) == "interrupted True\n4.0\n"

"""A language model whose device is lost: it continues with the tokens of an undisturbed run.

Every loss happens in a process of its own: a submit to a lost device aborts it.
"""

from __future__ import annotations

import pytest

from tests.support.harness.children import run_python
from tests.support.harness.gate import slow_but
from tests.support.models.tiny_llm import write_tiny_llm

COMMON = """
import sys
import webpte
from tests.support.harness.devices import destroy_device
from webpte.device import recording
from webpte.llm import LLM

PROMPT = list(range(1, 40))
SETTINGS = {"greedy": {}, "seeded": {"temperature": 1.5, "top_k": 50, "top_p": 0.95, "seed": 3}}[sys.argv[2]]

def load(**options):
    llm = LLM.load(sys.argv[1], **options)
    llm.stop_tokens = frozenset()
    llm.engine.background = False  # so that a device is lost before the step it is lost for
    return llm

def answer(llm, **more):
    return llm.generate(tokens=PROMPT, max_new_tokens=20, **SETTINGS, **more)

def tokens_of(generation):
    generation.result()
    return generation.tokens

def lose(llm):
    destroy_device(llm.engine.runner.method)

def lose_in_submit(llm, number):
    original, left = recording.NativeRecorder.enqueue, [number]
    def call(*arguments):
        left[0] -= 1
        if left[0] == -1:
            lose(llm)
        return original(*arguments)
    recording.NativeRecorder.enqueue = call

with load() as alone:
    WANT = tokens_of(answer(alone))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_llm(tmp_path_factory.mktemp("llm")) / "tiny.pte"


@pytest.mark.parametrize("settings", slow_but(["seeded"], ["greedy", "seeded"]))
def test_generate_device_lost_recover_continues(path, settings):
    """Lost before anything, between tokens, in the middle of a burst, and again."""
    code = """
llm = load(recover=True)
lose(llm)
assert tokens_of(answer(llm)) == WANT
for per_submit in (1, 4):
    llm.reset_prefix_cache()
    generation = answer(llm, tokens_per_submit=per_submit)
    for number in range(20):
        if number in (1, 7, 13):
            lose(llm)
        assert next(generation).token == WANT[number], number
assert llm.engine.runner.method.recoveries == 7, llm.engine.runner.method.recoveries
for number in (0, 1, 2, 5):
    llm.reset_prefix_cache()
    lose_in_submit(llm, number)
    assert tokens_of(answer(llm, tokens_per_submit=3)) == WANT
llm.close()
print("done")
"""
    assert run_python(COMMON + code, path, settings).split() == ["done"]


def test_generate_device_lost_raises_and_recover_restores_cache(path, tmp_path):
    code = """
llm = load()
talk, other = llm.sequence(), llm.sequence()
assert tokens_of(answer(talk)) == WANT
other.logits(PROMPT[:30])
want = talk.fork().logits([7]), other.fork().logits([7])
talk.snapshot(sys.argv[3])
generation, begun = answer(talk), answer(llm)
next(generation), next(begun)
lose(llm)
exhausted = lambda: [next(generation) for _ in range(20)]
for use in (exhausted, lambda: talk.logits([1]), lambda: talk.snapshot(sys.argv[3])):
    try:
        use()
        raise SystemExit("went on without a device")
    except webpte.DeviceLost:
        pass
assert list(generation) == []
position = talk.position
assert llm.recover() and not llm.recover() and talk.position == position
try:
    tokens_of(begun)
    raise SystemExit("went on without its cache")
except webpte.DeviceLost:
    pass
assert tokens_of(answer(talk)) == WANT
assert abs(other.logits([7]) - want[1]).max() < 1e-4  # its tokens are computed when it is used
talk.restore(sys.argv[3])
assert abs(talk.logits([7]) - want[0]).max() < 1e-4
lose(llm)
llm._program.recover()  # by somebody who knows nothing of tokens
assert tokens_of(answer(llm)) == WANT
print("done")
"""
    assert run_python(COMMON + code, path, "greedy", tmp_path / "state").split() == ["done"]


def test_recover_failing_keeps_known_tokens(path):
    code = """
llm = load()
talk = llm.sequence()
tokens_of(answer(talk))
with load() as alone:
    want = alone.sequence().logits([*PROMPT, *WANT])
lose(llm)
assert llm.recover()
real = llm.engine.runner.method.run

def run(*arguments, **options):  # the first piece that is computed again
    llm.engine.runner.method.run = real
    lose(llm)
    return real(*arguments, **options)

llm.engine.runner.method.run = run
try:
    talk.logits(WANT[-1:])
    raise SystemExit("computed on a lost device")
except webpte.DeviceLost:
    pass
assert llm.recover()
assert abs(talk.logits(WANT[-1:]) - want).max() < 1e-4
print("done")
"""
    assert run_python(COMMON + code, path, "greedy").split() == ["done"]


def test_recover_in_other_thread_is_atomic(path):
    """Logits show: the tiny model's tokens hardly depend on what is in its cache."""
    code = """
import threading
import numpy as np
with load() as alone:
    want = alone.sequence().logits([*PROMPT[:30], 7])
llm = load(recover=True)
talk = llm.sequence()
talk.logits(PROMPT[:30])
logits, threads = llm.engine.runner.logits, []

def disturbed(rows, count):  # the engine has seen that nothing was lost, and is about to use what it knows
    if not threads:
        lose(llm)
        threads.append(threading.Thread(target=llm._program.recover))
        threads[0].start()
        threads[0].join(5)
    return logits(rows, count)

llm.engine.runner.logits = disturbed
print(np.abs(talk.logits([7]) - want).max() < 1e-4, llm.engine.runner.method.recoveries)
"""
    assert run_python(COMMON + code, path, "greedy") == "True 1\n"


def test_process_fork_llm_refused_with_held_locks(path):
    code = """
import os, signal, threading
llm = load()
stream = answer(llm)
next(stream)
held, leave = threading.Event(), threading.Event()

def hold():
    with llm.engine.exclusive(), llm.engine.runner.method.exclusive(), stream._lock:
        held.set()
        leave.wait(60)

thread = threading.Thread(target=hold)
thread.start()
held.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(60)
    refused = 0
    talk = llm.sequence()
    for use in (lambda: next(stream), talk.reset, talk.fork, lambda: talk.logits([1]), lambda: next(answer(llm))):
        try:
            use()
        except webpte.ForkedError:
            refused += 1
    llm.close()
    os._exit(refused)
print(os.waitpid(child, 0)[1] >> 8)
leave.set()
thread.join()
print(tokens_of(stream) == WANT)
"""
    assert run_python(COMMON + code, path, "greedy") == "5\nTrue\n"

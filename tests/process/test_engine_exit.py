"""The engine's thread when its process ends, forks, or is interrupted."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.harness.children import ROOT, SRC

COMMON = """
import os, sys, threading, time
import webpte
from tests.support.harness.fake_runner import FakeLLM, FakeRunner, alone

runner = FakeRunner(capacity=100_000)
llm = FakeLLM(runner, background=True)
answer = llm.generate(tokens=[1, 2, 3], max_new_tokens=90_000)
"""


ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (SRC, ROOT)))}


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMON + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)


def test_interpreter_ends_while_an_answer_is_computed():
    """Also where nothing was closed, and the thread is in the middle of a step."""
    child = run("""
reached = threading.Event()
runner.before = lambda: (reached.set(), time.sleep(0.3))
answer.start()
reached.wait()
print("end")
""")
    assert (child.returncode, child.stdout, child.stderr) == (0, "end\n", "")


def test_unread_answer_does_not_keep_the_interpreter():
    child = run("""
next(answer)
keep = [answer, llm.generate(tokens=[4]), llm.sequence()]
print("end")
""")
    assert (child.returncode, child.stdout, child.stderr) == (0, "end\n", "")


def test_fork_engine_thread_running_refused_parent_continues():
    child = run("""
next(answer)
pid = os.fork()
if pid == 0:
    refused = 0
    for use in (lambda: next(answer), lambda: llm.generate(tokens=[1]).result(), lambda: llm.sequence().logits([1])):
        try:
            use()
        except webpte.ForkedError:
            refused += 1
    llm.close()
    del answer
    os._exit(refused)
print(os.waitpid(pid, 0)[1] >> 8)
print([next(answer).token for _ in range(50)] == alone([1, 2, 3], 51, 100_000)[1:])
""")
    assert (child.returncode, child.stdout) == (0, "3\nTrue\n")


def test_signal_interrupts_the_reader_and_the_model_can_be_used_again():
    child = run("""
import signal

def interrupt():  # called by the engine's thread, while the main thread waits for the first piece
    runner.before = lambda: None
    os.kill(os.getpid(), signal.SIGINT)

runner.before = interrupt
try:
    answer.result()
except KeyboardInterrupt:
    other = llm.generate(tokens=[7], max_new_tokens=5)
    other.result()
    print(answer.usage.finish_reason, other.tokens == alone([7], 5, 100_000))
""")
    assert (child.returncode, child.stdout, child.stderr) == (0, "cancelled True\n", "")

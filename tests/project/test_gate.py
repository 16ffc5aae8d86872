"""The parts of the gate: every test is in one, and none can keep the others from being told."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.gate import slow_but

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def parts():
    spec = importlib.util.spec_from_file_location("parts", ROOT / ".ci" / "parts.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["parts"] = module  # where dataclasses looks
    spec.loader.exec_module(module)
    yield module
    del sys.modules["parts"]


def test_every_test_is_in_one_part(parts):
    tests = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py")]
    taken = [test for command in pytest_commands(parts) for test in tests if takes(command, test)]
    assert sorted(taken) == sorted(tests)


def pytest_commands(parts):
    return [words[len(parts.PYTEST) :] for _, words in parts.parts() if words[: len(parts.PYTEST)] == parts.PYTEST]


def takes(command, test):
    """Whether pytest would find it, as it reads its arguments."""
    ignored = [word.removeprefix("--ignore=") for word in command if word.startswith("--ignore=")]
    named = [word for word in command if not word.startswith("--")]
    return any(is_in(test, path) for path in named) and not any(is_in(test, path) for path in ignored)


def is_in(test, path):
    return test == path or test.startswith(f"{path}/")


HANGS = """
import time
try:
    print("begun", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("summed up")
"""
DEAF = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("begun", flush=True)
time.sleep(600)
"""
LEAVES = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
"""


def run(parts, code):
    return parts.run("code", (sys.executable, "-c", code), time.monotonic() + 240)


@pytest.fixture
def hurry(parts, monkeypatch):
    """The time of a part is over as soon as it has printed something."""

    class Child(subprocess.Popen):
        def __init__(self, command, stdout, **more):
            super().__init__(command, stdout=stdout, **more)
            self.printed = lambda: os.fstat(stdout.fileno()).st_size > 0
            self.over = False

        def wait(self, timeout=None):
            if self.over:
                return super().wait(timeout)
            while not self.printed():
                time.sleep(0.01)
            self.over = True
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(parts.subprocess, "Popen", Child)


def test_a_part_that_hangs_is_interrupted_and_tells_what_it_did(parts, hurry):
    ended = run(parts, HANGS)
    assert ended.status != 0 and ended.output == "begun\nsummed up\n"


def test_a_part_that_does_not_even_sum_up_is_ended(parts, hurry, monkeypatch):
    monkeypatch.setattr(parts, "LAST_WORDS", 1)
    ended = run(parts, DEAF)
    assert ended.status != 0 and ended.output == "begun\n"


def test_nobody_waits_for_what_a_part_leaves_behind(parts):
    ended = run(parts, LEAVES)
    os.kill(int(ended.output), signal.SIGKILL)  # it is still there
    assert ended.status == 0


def test_slow_parameters_are_marked_and_unknown_ones_refused():
    slow: Any
    kept, slow = slow_but(["a"], ["a", "b"])
    assert kept == "a" and slow.values == ("b",) and [mark.name for mark in slow.marks] == ["slow"]
    with pytest.raises(ValueError, match="'c'"):
        slow_but(["c"], ["a", "b"])

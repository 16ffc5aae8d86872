"""Ctrl-C and SIGTERM in the middle of a build leave nothing. `python -m tests.studies soak.signals` interrupts all
commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.studies.soak.signals import EXIT_CODES, Command, interrupt, processes_of, running, workplace
from tests.support.harness.terminal import SRC

SLOW = """
import time
from pathlib import Path
from webpte import builder, cli

def build_program(checkpoint, path, **options):
    Path(path).write_text("a part")
    time.sleep(600)

builder.build_program = build_program
cli.entry()
"""


@pytest.mark.parametrize("number", EXIT_CODES)
def test_signal_during_a_build_leaves_nothing(number, monkeypatch):
    with workplace() as place:
        (place.root / "slow.py").write_text(SLOW)
        monkeypatch.setattr("tests.studies.soak.signals.PROGRAM", ("slow.py",))
        with running(Command(("generate", "model", "--prompt", "a")), place) as child:
            deadline = time.monotonic() + 60
            while not list(place.root.rglob("*.part/*.pte")) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert list(place.root.rglob("*.part/*.pte")), "it never began to write"
            outcome = interrupt(child, signal.Signals(number))
        assert outcome is not None and outcome.code == EXIT_CODES[number]
        assert "Traceback" not in outcome.errors
        assert place.leftovers() == [] and processes_of(child.pid) == {}


EVERY_LINE = """
import os, signal, sys
from webpte import cli

cli.main = lambda: 0
number, files = signal.Signals[sys.argv[1]], ("webpte/cli/__init__.py", "webpte/cli/interrupts.py")


def run_until(line):
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if not frame.f_code.co_filename.endswith(files):
            return None
        seen += event == "line"
        if seen == line and event == "line":
            os.kill(os.getpid(), number)
        return trace

    sys.settrace(trace)
    cli.entry()


codes = []
while not codes or codes[-1] != 0:
    if not (child := os.fork()):
        run_until(len(codes) + 2)  # the first is that of `try`
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("number", EXIT_CODES)
def test_signal_at_any_line_of_start_and_end_prints_no_traceback(number, tmp_path):
    (tmp_path / "every_line.py").write_text(EVERY_LINE)
    command = [sys.executable, tmp_path / "every_line.py", number.name]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SRC)})
    *codes, last = json.loads(done.stdout)
    # Until the handler is installed, SIGTERM ends a process as its default does.
    assert done.stderr == "" and last == 0 and set(codes) <= {EXIT_CODES[number], -signal.SIGTERM}
    assert codes.count(EXIT_CODES[number]) > 20 and codes[-1] == EXIT_CODES[number]


LOST = """
import ctypes, os, signal, sys, time, weakref
import cffi
from webpte import cli

class Thing:
    pass

class Closing:
    def __del__(self):
        send()

def send(*arguments):
    os.kill(os.getpid(), signal.Signals[sys.argv[1]])

def command():
    if sys.argv[2] == "weak reference":
        thing = Thing()
        reference = weakref.ref(thing, send)
        del thing
    elif sys.argv[2] == "destructor":
        Closing()
    elif sys.argv[2] == "ctypes":
        ctypes.CFUNCTYPE(None)(send)()
    else:
        cffi.FFI().callback("void()", send)()
    time.sleep(600)

cli.main = command
cli.entry()
"""


@pytest.mark.parametrize("stage", ["weak reference", "destructor", "ctypes", "cffi"])
@pytest.mark.parametrize("number", EXIT_CODES)
def test_signal_in_a_callback_that_cannot_raise_prints_no_traceback(number, stage):
    """Every import has such a callback, of a weak reference to its lock."""
    command = [sys.executable, "-c", LOST, number.name, stage]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SRC)})
    assert (done.returncode, done.stderr) == (EXIT_CODES[number], "")


def test_error_in_a_destructor_without_a_signal_is_printed():
    head = "from webpte import cli\nclass Thing:\n    def __del__(self): 1 / 0\n"
    script = f"{head}cli.main = lambda: Thing() and 0\ncli.entry()"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SRC)})
    assert done.returncode == 0 and "ZeroDivisionError" in done.stderr

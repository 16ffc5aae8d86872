"""Ctrl-C and SIGTERM in the middle of a build leave nothing. `python -m tests.soak.signals` interrupts all commands."""

from __future__ import annotations

import signal
import time

import pytest

from tests.soak.signals import EXIT_CODES, Command, interrupt, processes_of, running, workplace

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
        monkeypatch.setattr("tests.soak.signals.PROGRAM", ("slow.py",))
        with running(Command(("generate", "model", "--prompt", "a")), place) as child:
            deadline = time.monotonic() + 60
            while not list(place.root.rglob("*.part/*.pte")) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert list(place.root.rglob("*.part/*.pte")), "it never began to write"
            outcome = interrupt(child, signal.Signals(number))
        assert outcome is not None and outcome.code == EXIT_CODES[number]
        assert "Traceback" not in outcome.errors
        assert place.leftovers() == [] and processes_of(child.pid) == []

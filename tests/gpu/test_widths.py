"""Every command's tables on a real program, at every width and piped; and a real terminal and a real pipe."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.process.test_command_line import piped
from tests.support.harness.children import ROOT, SRC
from tests.support.harness.gate import slow_but
from tests.support.harness.screens import WIDTHS, check_widths, printed, record
from tests.support.harness.terminal import run_in_terminal

MODEL = ROOT / "docs" / "demo" / "model.pte"
FORWARD = ("--input", "1x5:0..99", "--input", "0")
COMMANDS = {
    "inspect": (MODEL,),
    "check": (MODEL,),
    "run": (MODEL, *FORWARD, "--repeat", 2),
    "bench": (MODEL, "--seconds", 0.001),
    "tune": (MODEL, "--seconds", 0.01, "--force"),
    "compare": (MODEL, *FORWARD, "--calls"),
    "profile": (MODEL, *FORWARD, "--repeat", 1),
    "eval": (MODEL, "--against", MODEL, "--tokens", 20),
    "doctor": (),
}


@pytest.mark.parametrize("command", slow_but(["inspect", "run", "compare", "profile", "doctor"], COMMANDS))
def test_tables_any_width_nothing_cut(command, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # what `tune` finds in no time is not to be kept
    check_widths(record(command, *COMMANDS[command]))


def test_tables_bundle_any_width_nothing_cut(tmp_path):
    check_widths(record("bundle", MODEL, "-o", tmp_path / "site", "--sequences", 1))


def test_terminal_output_fills_width_pipe_prints_all():
    command = [sys.executable, "-m", "webpte", "inspect", str(MODEL)]
    environment = os.environ | {"PYTHONPATH": str(SRC), "COLUMNS": "40"}
    piped = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    recorder = record("inspect", MODEL)
    assert piped.stdout.splitlines() == printed(recorder.parts, None)
    for width in WIDTHS:
        code, screen = run_in_terminal(command, width, environment={"NO_COLOR": "1"})
        assert code == 0 and screen.decode().splitlines() == printed(recorder.parts, width)


GONE = {**COMMANDS, "doctor": ("--no-test",), "generate": (MODEL, "--prompt", "x", "--max-new-tokens", 1)}


@pytest.mark.parametrize(
    "command", slow_but(["run", "generate"], [name for name in GONE if name not in ("inspect", "check")])
)
def test_command_closed_pipe_exits_zero(command, tmp_path):
    done = piped(command, *map(str, GONE[command]), environment={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")

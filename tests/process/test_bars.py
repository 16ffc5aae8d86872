"""Progress in a terminal: every bar ends full, whatever the stage, and nothing of it stays."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.harness.bar_screens import left_on_screen, seen_bars
from tests.support.harness.children import ROOT
from tests.support.harness.terminal import run_in_terminal

SCRIPT = """
import sys, time
from webpte.cli.terminal import bars
from webpte.progress import Progress

with bars(ticking={ticking}) as show:
    for name in ("read", "build"):  # steps that do not tell how far they are
        show(Progress(name, 0, 1, "steps"))
        time.sleep(0.2)
        show(Progress(name, 1, 1, "steps"))
    for done in (0, 300_000, 590_000):
        show(Progress("upload", done, 590_000, "bytes"))
    for method in range(2):  # a stage that comes again
        for done in range(40):
            show(Progress("compile", done, 40, "kernels"))
        show(Progress("compile", 40, 40, "kernels"))
    show(Progress("tune", 0, 0, "jobs"))  # nothing to do
print("done")
"""


@pytest.mark.parametrize("ticking", [True, False])
@pytest.mark.parametrize("columns", [60, 80])
def test_every_bar_ends_full_and_goes(columns, ticking):
    code, output = run_in_terminal([sys.executable, "-c", SCRIPT.format(ticking=ticking)], columns)
    assert code == 0
    found = seen_bars(output, columns)
    assert {stage: bar.amount for stage, bar in found.items()} == {
        "read": "", "build": "", "upload": "590 kB of 590 kB", "compile": "40 of 40 kernels", "tune": "0 of 0 jobs",
    }  # fmt: skip
    assert all(bar.full for bar in found.values()), found
    assert left_on_screen(output, columns) == ["done"]


def test_a_stage_that_does_not_arrive_is_seen():
    """The other way round: the test above can fail."""
    script = SCRIPT.format(ticking=False).replace('show(Progress("compile", 40, 40, "kernels"))', "pass")
    _, output = run_in_terminal([sys.executable, "-c", script], 80)
    assert not seen_bars(output, 80)["compile"].full


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"TERM": "unknown"}])
def test_a_dumb_terminal_gets_none(variables):
    _, output = run_in_terminal([sys.executable, "-c", SCRIPT.format(ticking=True)], 80, environment=variables)
    assert output == b"done\r\n"


def test_without_a_terminal_there_are_none():
    command = [sys.executable, "-c", SCRIPT.format(ticking=True)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT / "src")
    assert (done.stdout, done.stderr) == ("done\n", "")

"""Progress in a terminal: every bar ends full, whatever the stage, and nothing of it stays."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import pytest

from tests.support.harness.bar_screens import left_on_screen, seen_bars
from tests.support.harness.children import ROOT
from tests.support.harness.screen import Screen
from tests.support.harness.terminal import run_in_terminal
from webpte.cli import terminal
from webpte.progress import Progress

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
    show(Progress("tune", 0, 0, "jobs"))  # nothing to do: no bar
print("done")
"""


@pytest.mark.parametrize("ticking", [True, False])
@pytest.mark.parametrize("columns", [60, 80])
def test_progress_bar_finished_is_full_and_cleared(columns, ticking):
    code, output = run_in_terminal([sys.executable, "-c", SCRIPT.format(ticking=ticking)], columns)
    assert code == 0
    result = seen_bars(output, columns)
    assert {stage: bar.amount for stage, bar in result.items()} == {
        "read": "", "build": "", "upload": "590 kB of 590 kB", "compile": "40 of 40 kernels",
    }  # fmt: skip
    assert all(bar.full for bar in result.values()), result
    assert left_on_screen(output, columns) == ["done"]


def test_progress_bar_unfinished_stage_is_detected():
    """The other way round: the test above can fail."""
    script = SCRIPT.format(ticking=False).replace('show(Progress("compile", 40, 40, "kernels"))', "pass")
    _, output = run_in_terminal([sys.executable, "-c", script], 80)
    assert not seen_bars(output, 80)["compile"].full


LINES = ["reading the model", "building the program", "tuning kernels: 0 jobs"]  # not of stages that load a program


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"TERM": "unknown"}])
def test_progress_dumb_terminal_prints_line_per_long_stage(variables):
    code, output = run_in_terminal([sys.executable, "-c", SCRIPT.format(ticking=True)], 80, environment=variables)
    assert (code, output.decode().split("\r\n")) == (0, [*LINES, "done", ""])


def test_progress_without_terminal_prints_line_per_long_stage():
    command = [sys.executable, "-c", SCRIPT.format(ticking=True)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT / "src")
    assert (done.stdout, done.stderr.splitlines()) == ("done\n", LINES)


def test_lines_of_a_stage_come_every_half_minute(capsys):
    now = 0.0
    lines = terminal.StageLines(lambda: now)
    for seconds, done in ((0, 0), (29, 100), (30, 250), (31, 260), (60, 500), (120, 1000)):
        now = float(seconds)
        lines(Progress("calibrate", done, 1000, "tokens"))
    assert capsys.readouterr().err.splitlines() == [
        "calibrating layer by layer: 1,000 tokens",
        "calibrating layer by layer: 1,000 tokens, 25% done, about 90 s left",
        "calibrating layer by layer: 1,000 tokens, 50% done, about 60 s left",
    ]


@pytest.mark.parametrize(
    ("passed", "shown"), [(30, "90 s"), (39, "117 s"), (40, "2 min"), (2399, "120 min"), (2400, "2 h"), (58113, "48 h")]
)
def test_time_left_is_in_the_largest_unit_of_which_there_are_two(passed, shown, capsys):
    times = iter((0.0, float(passed)))
    lines = terminal.StageLines(lambda: next(times))
    for done in (0, 250):
        lines(Progress("calibrate", done, 1000, "tokens"))
    assert capsys.readouterr().err.splitlines()[1].endswith(f"about {shown} left")


def test_time_left_is_estimated_after_one_percent(capsys):
    times = iter((0.0, 100.0, 200.0))
    lines = terminal.StageLines(lambda: next(times))
    for done in (0, 9, 10):
        lines(Progress("calibrate", done, 1000, "tokens"))
    shown = capsys.readouterr().err.splitlines()
    assert shown[1:] == [
        "calibrating layer by layer: 1,000 tokens, 1% done",
        "calibrating layer by layer: 1,000 tokens, 1% done, about 6 h left",
    ]


def test_lines_name_the_steps_of_a_stage(capsys):
    lines = terminal.StageLines()
    for number, note in enumerate(("op checks", "op checks", "probes")):
        lines(Progress("report", number, 3, "steps", note))
    assert capsys.readouterr().err.splitlines() == ["measuring the device: op checks", "measuring the device: probes"]


def test_lines_say_what_is_done_to_what(capsys):
    lines = terminal.StageLines()
    lines(Progress("hash", 0, 98_400_000, "bytes", subject="smollm2.gguf"))
    lines(Progress("read", 0, 1, "steps", subject="SmolLM2-135M"))
    lines(Progress("fetch weights", 0, 2_000_000, "bytes"))
    lines(Progress("plan", 1, 8, "plans"))
    lines(Progress("own stage", 0, 3, "parts"))  # of a caller: as it is
    assert capsys.readouterr().err.splitlines() == [
        "hashing smollm2.gguf: 98.4 MB",
        "reading SmolLM2-135M",
        "downloading weights: 2 MB",
        "planning kernels: 8 plans",
        "own stage: 3 parts",
    ]


STUCK = """
import hashlib
from webpte.cli import interrupts
from webpte.cli.terminal import bars
from webpte.progress import Progress

print("before", flush=True)
interrupts.start()
try:
    with bars(ticking=False) as show:
        show(Progress("upload", 1, 1, "steps"))
        show(Progress("run", 1, 6, "calls"))
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 1 << 28)  # native code, as a driver's: no Python handler runs
except KeyboardInterrupt:  # the bars are shown a moment before the native code starts
    interrupts.leave()
"""


def test_ctrl_c_during_native_code_erases_the_bars(tmp_path):
    (tmp_path / "stuck.py").write_text(STUCK)
    with Screen(["stuck"], environment={"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"}) as screen:
        screen.wait("1 of 6 calls")
        screen.press("ctrl-c")
        assert screen.ended() == 130
        assert [line for line in screen.lines if line] == ["before"]
        assert screen.pyte.cursor.x == 0


NARROWED = """
import pathlib, time
from webpte.cli.terminal import bars
from webpte.progress import Progress

print("before", flush=True)
with bars(ticking=False) as show:
    show(Progress("upload", 1, 1, "steps"))
    show(Progress("run", 1, 6, "calls"))
    while not pathlib.Path({go!r}).exists():
        time.sleep(0.02)
    show(Progress("run", 6, 6, "calls"))
    time.sleep(60)
"""


def test_progress_bar_narrowed_terminal_shown_once(tmp_path):
    go = tmp_path / "go"
    (tmp_path / "narrowed.py").write_text(NARROWED.format(go=str(go)))
    with Screen(["narrowed"], 80, environment={"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"}) as screen:
        screen.wait("1 of 6 calls")
        screen.resize(40, 24, wrap=True)
        assert len([line for line in screen.lines if line]) == 5  # the bars have two rows each
        go.touch()
        screen.wait(lambda screen: "1 of" not in screen.text and any(line.startswith("run") for line in screen.lines))
        assert [line.split()[0] for line in screen.lines if line] == ["before", "upload", "run"]


def test_progress_time_left_estimated_from_past_steps(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now[0]))
    drawing = mock.MagicMock()
    show = terminal._StageBars(drawing)
    ends = []
    for done in range(4):
        show(Progress("run", done, 3, "calls"))
        ends.append(drawing.update.call_args.kwargs["end"])
        now[0] += 60
    assert ends == [None, 100 + 180, 100 + 180, None]


def test_bar_of_stated_time_left_shows_it_and_no_estimate(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now[0]))
    drawing = mock.MagicMock()
    show = terminal._StageBars(drawing)
    show(Progress("rows", 80, 100, "rows"))
    now[0] += 20
    show(Progress("rows", 90, 100, "rows", "0.5 rows/s", seconds_left=4000.0))
    fields = drawing.update.call_args.kwargs
    assert fields["end"] == 120 + 4000
    task = mock.MagicMock(finished=False, finished_time=None, elapsed=20, fields=fields)
    assert terminal._TimeColumn().render(task).plain == "0:00:20, 1:06:40 left"

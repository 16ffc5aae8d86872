"""The bars of real commands end full."""

from __future__ import annotations

import sys

import pytest

from tests.gpu.test_widths import COMMANDS, MODEL
from tests.support.harness.bar_screens import seen_bars
from tests.support.harness.gate import slow_but
from tests.support.harness.terminal import run_in_terminal

STAGES = {
    "run": {"read", "upload", "compile"},
    "bench": {"read", "upload", "compile", "prefill", "decode"},
    "tune": {"read", "tune"},
    "compare": {"compile", "upload", "compare"},
    "profile": {"read", "upload", "compile", "profile"},
    "bundle": {"plan"},
    "generate": {"read", "upload"},  # kernels are compiled when they are first needed
    "eval": {"read", "upload", "evaluate"},
}
MORE = {"bundle": (MODEL, "-o", "site", "--sequences", 1), "generate": (MODEL, "--prompt", "x", "--max-new-tokens", 1)}


@pytest.mark.parametrize("command", slow_but(["run", "generate"], STAGES))
def test_progress_bars_cover_all_stages_of_command(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = map(str, MORE[command] if command in MORE else COMMANDS[command])
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    code, output = run_in_terminal([sys.executable, "-m", "webpte", command, *arguments], 100, environment=environment)
    assert code == 0, output.decode()
    result = seen_bars(output, 100)
    assert set(result) >= STAGES[command], sorted(result)
    assert all(bar.full for bar in result.values()), result

"""How tests are distributed and kept apart: workers, tiers, slow parameters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LONGEST_FIRST, TIERS, scope_of
from tests.support.harness.gate import slow_but

ROOT = Path(__file__).parents[2]


def test_a_worker_gets_a_whole_file_and_op_cases_by_op():
    assert scope_of("tests/unit/test_plan.py::test_a[x]") == "tests/unit/test_plan.py"
    first, second, other = (
        f"tests/gpu/test_cases.py::test_matches_reference[aten.{op}]" for op in ("a(1)", "a(2)", "b(1)")
    )
    assert scope_of(first) == scope_of(second) != scope_of(other)


def test_every_tier_has_a_place_in_the_order():
    assert set(LONGEST_FIRST) == set(TIERS)
    assert all((ROOT / "tests" / tier).is_dir() for tier in TIERS)


@pytest.mark.parametrize(
    ("code", "event"),
    [
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("import os; os.fork()", "os.fork"),
        ("import socket; socket.create_server(('127.0.0.1', 0))", "socket.bind"),
    ],
)
def test_unit_tests_may_not_start_processes_or_open_sockets(code, event, tmp_path):
    """In a copy of the tier with one test that does so."""
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "unit" / "conftest.py", tmp_path / "tests" / "unit")
    (tmp_path / "tests" / "unit" / "test_it.py").write_text(f"def test_it():\n    {code}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 1 and f"{event} is not allowed" in done.stdout, done.stdout


def test_slow_parameters_are_marked_and_unknown_ones_refused():
    slow: Any
    kept, slow = slow_but(["a"], ["a", "b"])
    assert kept == "a" and slow.values == ("b",) and [mark.name for mark in slow.marks] == ["slow"]
    with pytest.raises(ValueError, match="'c'"):
        slow_but(["c"], ["a", "b"])

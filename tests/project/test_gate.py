"""Distribution and isolation of tests: workers, tiers, slow parameters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LONGEST_FIRST, TIERS, TOGETHER, scope_of
from tests.support.harness.gate import slow_but, slow_rows_but

ROOT = Path(__file__).parents[2]


def test_gate_distributes_whole_files_and_op_cases_by_op():
    assert scope_of("tests/unit/test_plan.py::test_a[x]") == "tests/unit/test_plan.py"
    first, second, other = (
        f"tests/gpu/test_cases.py::test_matches_reference[aten.{op}]" for op in ("a(1)", "a(2)", "b(1)")
    )
    assert scope_of(first) == scope_of(second) != scope_of(other)


@pytest.mark.parametrize("shared", TOGETHER)
def test_files_that_share_something_slow_go_to_one_worker(shared):
    assert all((ROOT / name).exists() for name in TOGETHER[shared])
    assert {scope_of(f"{name}::test_it") for name in TOGETHER[shared]} == {shared}


def test_gate_tiers_have_an_order():
    assert set(LONGEST_FIRST) == set(TIERS)
    assert all((ROOT / "tests" / tier).is_dir() for tier in TIERS)


FORBIDDEN = {
    "subprocess.Popen": "import subprocess; subprocess.run(['true'])",
    "os.fork": "import os; os.fork()",
    "socket.bind": "import socket; socket.create_server(('127.0.0.1', 0))",
}


@pytest.mark.slow
def test_unit_tests_may_not_start_processes_or_open_sockets(tmp_path):
    """In a copy of the tier with tests that do so."""
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "unit" / "conftest.py", tmp_path / "tests" / "unit")
    tests = (f"def test_{number}():\n    {code}\n" for number, code in enumerate(FORBIDDEN.values()))
    (tmp_path / "tests" / "unit" / "test_it.py").write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 1 and f"{len(FORBIDDEN)} failed" in done.stdout, done.stdout
    assert all(f"{event} is not allowed" in done.stdout for event in FORBIDDEN), done.stdout


def test_slow_parameters_are_marked_and_unknown_ones_refused():
    slow: Any
    kept, slow = slow_but(["a"], ["a", "b"])
    assert kept == "a" and slow.values == ("b",) and [mark.name for mark in slow.marks] == ["slow"]
    with pytest.raises(ValueError, match="'c'"):
        slow_but(["c"], ["a", "b"])
    first, second = slow_rows_but([(1, "a")], [(1, "a"), (2, "b")])
    slow = second
    assert first == (1, "a") and slow.values == (2, "b") and [mark.name for mark in slow.marks] == ["slow"]

"""Bundles of an untrusted on the adapter, all hashes correct: a typed error or numbers, and the process lives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness.hostile_bundles import CASES

ROOT = Path(__file__).parents[2]
# Kernels that compile: WebGPU defines what they compute. The others are refused.
RETURN = {
    *("out_of_bounds", "negative_index", "private_index", "shared_index", "much_shared_memory", "division_by_zero"),
    *("override_division", "pointers", "calls_that_double", "large_parameters", "most_operators"),
    *("most_unary_operators", "most_parentheses", "most_else_ifs", "most_nested_types"),
}
# Not shared_index: the index is kept within the array, but workgroup memory was not always zero.
INDICES = ("out_of_bounds", "negative_index", "private_index", "pointers")
FROM_OUTSIDE = "root:"  # how /etc/passwd begins


def play(*names: str, timeout: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.harness.hostile_bundles", *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def test_hostile_bundles_are_refused_or_return_numbers():
    """In one process: the cases before it have left the device usable to each."""
    done = play("honest", *CASES, "honest_again", timeout=240)
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert done.returncode == 0, f"exit code {done.returncode} after {done.stdout[-300:]}\n{done.stderr[-2000:]}"
    assert lines.pop("honest") == lines.pop("honest_again") == "returned the sum"
    assert set(lines) == set(CASES)
    assert {name for name, line in lines.items() if line.startswith("returned")} <= RETURN
    assert all(line.startswith("refused ") for name, line in lines.items() if name not in RETURN), lines
    assert {lines[name] for name in INDICES} == {"returned its own numbers"}
    assert FROM_OUTSIDE not in done.stdout + done.stderr


def test_hostile_endless_kernel_blocks_until_killed():
    """There is not a limit on the time of a kernel: a caller sets one, around a process."""
    with pytest.raises(subprocess.TimeoutExpired):
        play("endless_loop", timeout=8)

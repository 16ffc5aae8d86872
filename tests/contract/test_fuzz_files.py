"""Changed files of every kind are read or refused: a small part of `python -m tests.studies fuzz files`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.studies.fuzz.children import CRASH, READ, REFUSED, SLOW, UNTYPED
from tests.studies.fuzz.files import KINDS

ROOT = Path(__file__).parents[2]


def test_mutants_are_read_or_refused():
    """In a process of its own: it forks, and this one may have threads."""
    command = [sys.executable, "-m", "tests.studies.fuzz", "files", "--count", str(100 * len(KINDS)), "--seed", "7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{kind}: 100 mutants" in done.stdout for kind in KINDS)


SCRIPT = """
import os, sys, time
from tests.studies.fuzz.children import run_mutants
from webpte.errors import FormatError
import tests.studies.fuzz.children as children

children.MAX_SECONDS = 0.05

def run(random):
    chance = random.randrange(5)
    if chance == 1:
        raise FormatError("no")
    if chance == 2:
        raise IndexError("no")
    if chance == 3:
        os.abort()
    if chance == 4:
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass

print(sorted(run_mutants(run, 40, 1).counts.items()))
"""


def test_fuzz_runner_counts_outcomes_and_continues_after_abort():
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    counts = dict(ast.literal_eval(done.stdout))
    assert sum(counts.values()) == 40
    assert set(counts) == {READ, REFUSED, UNTYPED, CRASH, SLOW}

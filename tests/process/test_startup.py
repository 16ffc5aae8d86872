"""Starting up: help and `import webpte` wait neither for NumPy nor for the GPU's libraries.

Times are those of the processor, medians over rounds in which everything runs once: what else a machine does may slow
them, but all alike, and waiting for its turn does not count.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

import pytest

from tests.support.harness.children import SRC, run_python

ROUNDS = 9
COMMANDS = {
    "python": ["-c", "pass"],
    "numpy": ["-c", "import numpy"],
    "webpte": ["-c", "import webpte"],
    "help": ["-m", "webpte", "--help"],
}
HEAVY = ("numpy", "wgpu", "rich", "jinja2", "tokenizers", "torch")


def seconds(arguments: list[str]) -> float:
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    started = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - started.ru_utime - started.ru_stime


@pytest.fixture(scope="module")
def rounds() -> list[dict[str, float]]:
    for command in COMMANDS.values():
        seconds(command)  # once for the compiled files and the page cache
    return [{name: seconds(command) for name, command in COMMANDS.items()} for _ in range(ROUNDS)]


def test_import_takes_at_most_twice_the_import_of_numpy(rounds):
    assert statistics.median(r["webpte"] / r["numpy"] for r in rounds) <= 2.0


def test_import_takes_at_most_250_ms(rounds):
    assert statistics.median(r["webpte"] for r in rounds) <= 0.250


def test_help_takes_at_most_150_ms_more_than_an_empty_program(rounds):
    assert statistics.median(r["help"] - r["python"] for r in rounds) <= 0.150


@pytest.mark.parametrize(
    "start",
    [
        "import webpte",
        "import webpte; webpte.Error, webpte.__version__",
        "from webpte.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(start):
    output = run_python(f"{start}\nimport sys\nprint('imported', *sys.modules)")
    imported = {name.partition(".")[0] for name in output.splitlines()[-1].split()}
    assert "webpte" in imported and not imported & set(HEAVY)


def test_what_was_left_out_comes_when_it_is_asked_for():
    run_python("import sys, webpte\nassert callable(webpte.load)\nassert {'numpy', 'wgpu'} <= set(sys.modules)")

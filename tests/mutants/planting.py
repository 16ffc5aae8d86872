"""Plant a mutant in a copy of src and run the test that should kill it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.table import Mutant

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
FAILED = 1  # pytest's status where tests ran and failed; others say that it could not run them


def occurrences(mutant: Mutant) -> int:
    """How often the text that is to be replaced is in its file."""
    return (SOURCE / "webpte" / mutant.file).read_text().count(mutant.old)


def status(mutant: Mutant | None, test: str) -> int:
    """pytest's status for a test with the mutant planted; with nothing planted for None."""
    with tempfile.TemporaryDirectory(prefix="webpte-mutant-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            path = source / "webpte" / mutant.file
            text = path.read_text()
            assert text.count(mutant.old) == 1, (
                f"{mutant.name}: {mutant.file} has the old text {text.count(mutant.old)} times"
            )
            path.write_text(text.replace(mutant.old, mutant.new))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(source), str(ROOT)))}
        options = ["-q", "-x", "-p", "no:cacheprovider", "-o", f"pythonpath={source}"]  # else pytest takes ROOT / "src"
        command = [sys.executable, "-m", "pytest", *options, *test.split()]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=900).returncode

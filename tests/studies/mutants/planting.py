"""Plant a mutant in a copy of src, or of the player in web, and run the test that should kill it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.studies.mutants.table import Mutant

ROOT = Path(__file__).parents[3]
SOURCE, PLAYER = "src", "web"
STALE = -1  # the status of a mutant whose text is not in its file, or not once
FAILED = 1  # the status of pytest where tests ran and failed; others say that it could not run them
SKIPPED = shutil.ignore_patterns("__pycache__", "node_modules")


def status(mutant: Mutant | None, test: str) -> int:
    """The status of a test with the mutant planted; with nothing planted for None.

    A test in web/ is a file for `node --test`; others are arguments of pytest.
    """
    with tempfile.TemporaryDirectory(prefix="webpte-mutant-") as folder:
        in_player = test.startswith(f"{PLAYER}/")
        copy = Path(folder) / (PLAYER if in_player else SOURCE)
        shutil.copytree(ROOT / copy.name, copy, ignore=SKIPPED)
        if mutant is not None and not _plant(mutant, Path(folder) if in_player else copy / "webpte"):
            return STALE
        if in_player:
            assert (ROOT / test).is_file(), f"{test} is not a file"  # node's status would be that of a failed test
            return subprocess.run(["node", "--test", test], cwd=folder, capture_output=True, timeout=900).returncode
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(copy), str(ROOT)))}
        options = ["-q", "-x", "-p", "no:cacheprovider", "-o", f"pythonpath={copy}"]  # else pytest takes ROOT / "src"
        command = [sys.executable, "-m", "pytest", *options, *test.split()]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=900).returncode


def _plant(mutant: Mutant, folder: Path) -> bool:
    """Return whether the text to replace is in its file once."""
    path = folder / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return False
    path.write_text(text.replace(mutant.old, mutant.new))
    return True

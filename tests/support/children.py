"""Running Python in a child process that sees the code beside these tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"


def run_python(code: str, *args: object, timeout: float = 240) -> str:
    """The standard output of a child; its traceback is the failure."""
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", code, *map(str, args)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    assert child.returncode == 0, child.stderr
    return child.stdout

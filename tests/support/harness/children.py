"""Running Python in a child process that sees the code beside these tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
SRC = ROOT / "src"


def run_python(code: str, *args: object, timeout: float = 240) -> str:
    """The standard output of a child; its traceback is the failure."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (SRC, ROOT)))}
    command = [sys.executable, "-c", code, *map(str, args)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    assert child.returncode == 0, child.stderr
    return child.stdout


# No Vulkan driver and no OpenGL either, which wgpu would take without a word: a machine without an adapter.
NO_ADAPTER = {
    "VK_DRIVER_FILES": "/nonexistent",
    "VK_ICD_FILENAMES": "/nonexistent",
    "__EGL_VENDOR_LIBRARY_FILENAMES": "/nonexistent",
}


def run_webpte(
    *arguments: object, environment: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Return the command line in a child, its output piped. Its exit code is the caller's to judge."""
    full = os.environ | {"PYTHONPATH": str(SRC)} | dict(environment or {})
    command = [sys.executable, "-m", "webpte", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=full)

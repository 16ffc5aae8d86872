"""Give freed memory back to the system. glibc otherwise keeps a process as large as it has ever been."""

from __future__ import annotations

import contextlib
import ctypes
import sys

M_ARENA_MAX = -8  # the parameter of mallopt


def use_one_arena() -> None:
    """Let all threads share one heap. Those of a server wait for each other anyway, and each heap has its own gaps."""
    _call_glibc("mallopt", M_ARENA_MAX, 1)


def trim() -> None:
    """Return free pages to the system."""
    _call_glibc("malloc_trim", 0)


def _call_glibc(name: str, *arguments: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # other C libraries lack the function
            getattr(ctypes.CDLL(None), name)(*arguments)

"""Memory that was freed, back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import sys


def give_back() -> None:
    """Where the C library is glibc's, which else keeps a process as large as its largest moment was."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # other C libraries have no such function
            ctypes.CDLL(None).malloc_trim(0)

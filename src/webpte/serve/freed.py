"""Memory that was freed, back to the system; where the C library is glibc's, which else keeps a process as large as its
largest moment was."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import sys

REST = 1.0  # seconds after the last request: one that follows at once would ask for the same memory again
ARENAS = -8  # the parameter of mallopt


def one_heap() -> None:
    """Let all threads share a heap: those of a server wait for each other anyway, and each heap has gaps of its own."""
    _of_glibc("mallopt", ARENAS, 1)


def give_back() -> None:
    _of_glibc("malloc_trim", 0)


def _of_glibc(name: str, *arguments: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # other C libraries have no such function
            getattr(ctypes.CDLL(None), name)(*arguments)


class AtRest:
    """Entered by every request, of one event loop. When none has been under way for a while, memory is given back."""

    def __init__(self) -> None:
        self._under_way = 0
        self._soon: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._under_way += 1
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def __exit__(self, *exc: object) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._soon = asyncio.get_running_loop().call_later(REST, give_back)

"""Give freed memory back to the system. glibc otherwise keeps a process as large as it has ever been."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import sys

IDLE_SECONDS = 1.0  # before a trim: a request that follows at once would allocate the same memory again
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


class IdleTrim:
    """A context that every request of an event loop enters. Memory is trimmed when none has been active for a while."""

    def __init__(self) -> None:
        self._active = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._active += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __exit__(self, *exc: object) -> None:
        self._active -= 1
        if not self._active:
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, trim)

"""What the server's processes need of the system: children, stop signals, and memory that is given back."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..environment import for_server_process

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # of unshare, on Linux
PIPE = asyncio.subprocess.PIPE
M_ARENA_MAX = -8  # the parameter of mallopt
IDLE_SECONDS = 1.0  # before memory is trimmed: a request that follows at once would allocate it again


async def spawn(
    command: Sequence[str], variables: Mapping[str, str] | None = None, **options: Any
) -> asyncio.subprocess.Process:
    """Start a child with pipes as stdin and stdout. `options` are those of `asyncio.create_subprocess_exec`.

    The child ends when its input ends, also if the server is killed. It inherits no secrets; `variables` are added. Do
    not write what clients send into the command: every user of the system can read it.

    The child has its own process group: Ctrl-C in a terminal goes to the group of the server only. In the group of the
    server, a child that is still importing modules would print a KeyboardInterrupt traceback.
    """
    options |= {"process_group": 0, "env": for_server_process(variables or {})}
    if sys.platform == "win32":
        options["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, **options)


def ignore_stop_signals() -> None:
    """Ignore SIGINT and SIGTERM in this process. A service manager may send them to all processes of a service, and
    the server decides when its children end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


# -- limits of helper processes -------------------------------------------------------------------------------------


def end_after(seconds: float) -> None:
    """Let the system end this process, where it can, if its server has died and cannot kill it; 0 for never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def leave_network() -> None:
    """Move this process to a network of its own, where the system allows that: what takes over a decoder reaches no
    host. Call it before a library starts threads."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # other C libraries lack the function
            ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNET)


def mute_libraries() -> None:
    """Discard what libraries in C write to standard error: for a damaged file, a decoder writes lines of several times
    its bytes. Python's own errors are still written."""
    sys.stderr = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def limit_memory(extra_bytes: int) -> None:
    """Let an allocation beyond the limit fail, which ends the process; where the system has such limits."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    except (ImportError, OSError):
        return
    limit = pages * resource.getpagesize() + extra_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


# -- memory: glibc otherwise keeps a process as large as it has ever been ----------------------------------------------


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

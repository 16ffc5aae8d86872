"""Child processes of the server: how they are started, and how they leave signals to the server.

A child ends when its input ends, also if the server is killed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any

PIPE = asyncio.subprocess.PIPE


async def spawn(command: Sequence[str], **options: Any) -> asyncio.subprocess.Process:
    """Start a child with pipes as stdin and stdout. `options` are those of `asyncio.create_subprocess_exec`.

    The child has its own process group: Ctrl-C in a terminal goes to the group of the server only. In the group of the
    server, a child that is still importing modules would print a KeyboardInterrupt traceback.
    """
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, process_group=0, **options)


def ignore_stop_signals() -> None:
    """Ignore SIGINT and SIGTERM in this process. A service manager may send them to all processes of a service, and
    the server decides when its children end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)

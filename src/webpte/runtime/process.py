"""Who made an object: after `os.fork()` there are two processes that hold it, and only one may use it."""

from __future__ import annotations

import os

from ..errors import ForkedError


class Process:
    """The process that loaded something."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._number = os.getpid()

    @property
    def here(self) -> bool:
        return os.getpid() == self._number

    def check(self) -> None:
        """Raise at once in any other process. Comes before any lock, which a thread of the parent may hold for ever."""
        if os.getpid() != self._number:
            raise ForkedError(
                f"{self._what} was loaded by process {self._number} and cannot be used in its fork {os.getpid()}: "
                "GPU objects do not survive os.fork(). Load it in the child, or start workers by spawn, as "
                "multiprocessing.get_context('spawn') does."
            )

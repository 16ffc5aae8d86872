"""Stopping long work from another thread or a signal handler."""

from __future__ import annotations

import threading


class CancelToken:
    """Set once, by anyone; looked at between steps."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

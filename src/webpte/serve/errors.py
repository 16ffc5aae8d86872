"""Failures that only a server has."""

from __future__ import annotations

from typing import Literal

from ..errors import Error

Wait = Literal["queue", "first token", "total"]


class QueueFull(Error):  # noqa: N818 - what it is, not who is to blame
    """So many requests wait that no more are taken. Nothing is wrong with this one: it may come again."""

    code = "request_queue_full"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class WorkerUnavailable(Error):  # noqa: N818
    """There is no worker to do it: it ended again and again, or the server is about to end."""

    code = "worker_unavailable"


class DeadlineExceeded(Error):  # noqa: N818
    """A request has waited as long as it may, and was given up."""

    code = "deadline_exceeded"

    def __init__(self, message: str, wait: Wait = "total") -> None:
        super().__init__(message)
        self.wait: Wait = wait  # for what

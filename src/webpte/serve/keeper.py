"""Keeps a worker process running: another one when it ends or hangs, and none any more when that is of no use."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..errors import Error
from ..llm.errors import error_of
from .errors import WorkerUnavailable
from .frames import framed
from .messages import Failed, FromWorker, Ready, Refused, Served, Start, Tick, ToWorker, Vectors, Work
from .process import Patience, WorkerProcess

MOST_PAUSE = 5.0  # seconds
logger = logging.getLogger("webpte.serve")


@dataclass(frozen=True)
class Keeping:
    """How long a worker may take, and how often it may end."""

    patience: Patience = field(default_factory=Patience)
    most_failures: int = 5  # workers in a row that brought nothing, after which there is no other
    pause: float = 0.1  # seconds after a worker that brought nothing, twice as long after each further one


class Watcher(Protocol):
    """Whoever the work is for."""

    def ready(self, models: Sequence[Served]) -> None:
        """A worker has loaded its models, and has been asked nothing yet."""

    def take(self, message: Tick | Vectors | Failed) -> None: ...

    def gone(self, why: str) -> bool:
        """The worker has ended, with all that it was asked. True if a request was to blame, and is given up."""


def unprepared(start: Start) -> Start:
    """For those who follow the first: somebody waits."""
    return replace(start, options=replace(start.options, prepare=False))


class Keeper:
    """One worker at a time. `worker` is the process, and `ready` whether it may be asked."""

    def __init__(self, command: Sequence[str], start: Start, keeping: Keeping, watcher: Watcher) -> None:
        self._command = command
        self._start = start
        self._keeping = keeping
        self._watcher = watcher
        self._process: WorkerProcess | None = None
        self._refusal: Error | None = None
        self._brought = False  # anything, by the worker that there is
        self._gone_at: float | None = None
        self._past = Work()  # of workers that have ended
        self.ready = False
        self.ever_ready = False
        self.restarts = 0
        self.recovery_seconds = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def work(self) -> Work:
        """Of all workers together; slots are those of now."""
        now, past = self._process.work if self._process is not None else Work(), self._past
        return Work(now.slots, past.passes + now.passes, past.rows + now.rows, past.device_losses + now.device_losses)

    def send(self, message: ToWorker) -> bool:
        """Whether there is a worker that hears it. One that comes is told by its `Watcher` what it has to know."""
        data = framed(message)  # what no frame can carry is refused in either case
        if self._process is None or not self.ready:
            return False
        self._process.write(data)
        return True

    async def run(self) -> Error:
        """Until there is no use in another worker; why. Cancelled, it ends the worker."""
        failures = 0
        while True:
            why = await self._run_one()
            logger.warning("the worker %s", why)
            blamed = self._watcher.gone(why)
            failures = 0 if self._brought or blamed else failures + 1
            if self._refusal is not None and not self.ever_ready:
                return self._refusal  # as of a file that is not there, which another worker would not find either
            if failures >= self._keeping.most_failures:
                return WorkerUnavailable(
                    f"{failures} workers in a row brought nothing. The last one {why}\n"
                    "Try the model with `webpte run`, look for what the driver says, and start the server again.",
                    code="worker_failed",
                )
            await asyncio.sleep(min(self._keeping.pause * 2 ** (failures - 1), MOST_PAUSE) if failures else 0)
            self.restarts += 1

    async def _run_one(self) -> str:
        self._brought, self._refusal = False, None
        try:
            self._process = await WorkerProcess.begin(self._command, self._start)
            return await self._process.run(self._take, self._keeping.patience)
        except OSError as error:
            return f"could not be started: {error}"
        finally:
            self._past = self.work
            self._process, self.ready = None, False
            self._gone_at = time.monotonic()

    def _take(self, message: FromWorker) -> None:
        if isinstance(message, Ready):
            self.ready = self.ever_ready = True
            self._start = unprepared(self._start)
            if self._gone_at is not None:
                self.recovery_seconds = time.monotonic() - self._gone_at
                logger.warning("another worker was ready after %.2f seconds", self.recovery_seconds)
            self._watcher.ready(message.models)
        elif isinstance(message, Refused):
            self._refusal = error_of(message.kind, message.message, message.reason)
        elif isinstance(message, Tick | Vectors | Failed):
            self._brought = True
            self._watcher.take(message)

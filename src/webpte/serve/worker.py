"""The process that owns the device: `python -m webpte.serve.worker`, started by a `Supervisor`.

Frames come on standard input and go to standard output; whatever else writes to that goes to standard error. One thread
takes requests, and computes those of encoders. Each language model has its engine's thread. A third thread reads
frames, so that a ping is answered whatever the others do: the answer says how long ago they made progress. When the
input ends, so does the process: its server is gone.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from ..errors import Error, FormatError, InputError
from ..progress import OnProgress, Progress
from .desks import Desk, Send, failed, open_desk
from .frames import Pipe
from .messages import Cancel, Embed, Generate, Message, ModelFile, Options, Ping, Pong, Ready, Refused, Start, Work

Open = Callable[[ModelFile, Options, int, OnProgress, Send], Desk]
logger = logging.getLogger("webpte.serve.worker")


class Worker:
    """All models of one device, and the requests for them."""

    def __init__(self, pipe: Pipe, opener: Open = open_desk) -> None:
        self._pipe = pipe
        self._open = opener
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.desks: dict[str, Desk] = {}
        self._moved: float | None = None  # when the work last came forward; None if there is none

    def run(self) -> int:
        """Until the input ends, which ends the process; or a model cannot be loaded."""
        start = self._pipe.receive()
        if not isinstance(start, Start):
            raise FormatError(f"the first frame is {type(start).__name__}; a worker begins with Start")
        self._moved = time.monotonic()
        threading.Thread(target=self._listen, daemon=True, name="webpte frames").start()
        try:
            for file in start.models:
                self.desks[file.name] = self._open(
                    file, start.options, start.most_waiting, self._progress, self._pipe.send
                )
        except Error as error:
            self._pipe.send(Refused(type(error).__name__, str(error), error.reason))
            return 1
        self._pipe.send(Ready(tuple(desk.served for desk in self.desks.values())))
        while True:
            self._take_all()
            for desk in self.desks.values():
                if desk.busy:
                    self._moved = time.monotonic()
                    for message in desk.tick():
                        self._pipe.send(message)

    def _progress(self, event: Progress) -> None:
        self._moved = time.monotonic()

    # -- the thread that listens -------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            while (message := self._pipe.receive()) is not None:
                if isinstance(message, Ping):
                    self._pipe.send(Pong(message.number, self._busy_seconds(), self._work()))
                else:
                    self._inbox.put(message)
        except OSError:
            pass  # as at the end
        except BaseException:
            logger.exception("the frames cannot be read")
            os._exit(2)
        os._exit(0)  # the other thread may be in the middle of a pass that nobody wants

    def _busy_seconds(self) -> float:
        """How long ago the thread that has waited longest for progress made some; 0 if there is nothing to do."""
        progressed = [self._moved, *(desk.progressed for desk in list(self.desks.values()))]
        return time.monotonic() - min((moment for moment in progressed if moment is not None), default=time.monotonic())

    def _work(self) -> Work:
        found = [desk.work for desk in list(self.desks.values())]
        return Work(
            sum(work.slots for work in found),
            sum(work.passes for work in found),
            sum(work.rows for work in found),
            sum(work.device_losses for work in found),
        )

    # -- the thread that computes ------------------------------------------------------------------------------------

    def _take_all(self) -> None:
        """All that was asked since the last pass; where there is nothing to do, wait for more."""
        if not any(desk.busy for desk in self.desks.values()):
            self._moved = None
            self._take(self._inbox.get())
            self._moved = time.monotonic()
        while not self._inbox.empty():
            self._take(self._inbox.get())

    def _take(self, message: Message) -> None:
        if isinstance(message, Cancel):
            for desk in self.desks.values():
                desk.cancel(message.number)
        elif isinstance(message, Generate | Embed):
            try:
                self._desk(message.model).take(message)
            except Error as error:
                self._pipe.send(failed(message.number, error))
            except (
                Exception
            ) as error:  # such as a schema too deep for a library: the fault of who asked, and of no other
                logger.exception("a request cannot be taken")
                refused = InputError(f"it cannot be taken: {type(error).__name__}: {error}", code="request_failed")
                self._pipe.send(failed(message.number, refused))
        else:
            raise FormatError(f"a worker that is at work was sent {type(message).__name__}")

    def _desk(self, model: str) -> Desk:
        if model not in self.desks:
            raise InputError(f"there is no model {model!r}; there are {', '.join(self.desks)}")
        return self.desks[model]


def own_pipe() -> Pipe:
    """Standard input and output, kept from everybody else: a library may print."""
    sys.stdout.flush()
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return Pipe(_opened(reading, "rb"), _opened(writing, "wb"))


def _opened(number: int, mode: str) -> BinaryIO:
    return open(number, mode)  # type: ignore[return-value]


def main(opener: Open = open_desk) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal, or systemd, tells all of a group; the server decides
        signal.signal(number, signal.SIG_IGN)
    return Worker(own_pipe(), opener).run()


if __name__ == "__main__":
    sys.exit(main())

"""One worker process, from its start to its end: frames to and from it, its words in the log, pings."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import FormatError
from .frames import framed, receive
from .messages import FromWorker, Ping, Pong, Start, Work

WORKER = (sys.executable, "-m", "webpte.serve.worker")
REMEMBERED = 12  # last lines of what it says
PATIENCE = 2.0  # seconds that it has to end by itself
logger = logging.getLogger("webpte.serve")


@dataclass(frozen=True)
class Patience:
    """How long a worker may take, in seconds."""

    ping: float = 1.0  # between two of them
    start: float = 120.0  # until it answers for the first time
    silence: float = 30.0  # without an answer to a ping, later
    stuck: float = 120.0  # with an answer, while the work does not come forward: a pass, or a part of loading


class WorkerProcess:
    """A child that reads frames and answers them."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self._said: deque[str] = deque(maxlen=REMEMBERED)
        self._unanswered = 0
        self._heard = False
        self._busy_seconds = 0.0
        self.work = Work()

    @classmethod
    async def begin(cls, command: Sequence[str], start: Start) -> WorkerProcess:
        pipe = asyncio.subprocess.PIPE
        process = cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe))
        process.write(framed(start))
        return process

    @property
    def pid(self) -> int:
        return self._child.pid

    def write(self, frame: bytes) -> None:
        """Without waiting. What a process that has ended is sent is lost, and its end is noticed elsewhere."""
        if self._child.stdin is not None and not self._child.stdin.is_closing():
            self._child.stdin.write(frame)

    async def run(self, take: Callable[[FromWorker], None], patience: Patience) -> str:
        """Give `take` each message until the process ends, or has to be ended; why. Cancelled, it ends the process."""
        tasks = [
            asyncio.create_task(self._listen(take)),
            asyncio.create_task(self._ping(patience)),
        ]
        log = asyncio.create_task(self._log())
        why = ""
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            why = done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            await self._end(0.0 if why else PATIENCE)  # one that hears, or has ended, ends by itself
            await asyncio.gather(log, return_exceptions=True)  # it ends with the process: what it said last is known
        if not why:
            code = self._child.returncode or 0
            why = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        said = "\n".join(self._said)
        return f"{why}; it said last:\n{said}" if said else why

    async def _listen(self, take: Callable[[FromWorker], None]) -> str:
        assert self._child.stdout is not None
        try:
            while (message := await receive(self._child.stdout)) is not None:
                if isinstance(message, Pong):
                    self._unanswered, self._heard = 0, True
                    self._busy_seconds = message.busy_seconds
                    self.work = message.work
                elif isinstance(message, FromWorker):
                    take(message)
                else:
                    return f"sent {type(message).__name__}, which is for workers"
        except FormatError as error:
            return f"sent what is no message: {error}"
        return ""

    async def _ping(self, patience: Patience) -> str:
        """Until it is silent, or stuck. Pings are counted: an event loop that was late itself is no sign of silence."""
        number = 0
        while True:
            await asyncio.sleep(patience.ping)
            silence = patience.silence if self._heard else patience.start
            if self._unanswered * patience.ping > silence:
                return f"answered no ping for {silence:g} seconds"
            if self._busy_seconds > patience.stuck:
                return f"did not come forward for {self._busy_seconds:.0f} seconds"
            number += 1
            self._unanswered += 1
            self.write(framed(Ping(number)))

    async def _log(self) -> None:
        assert self._child.stderr is not None
        rest = ""
        while data := await self._child.stderr.read(1 << 16):
            *lines, rest = (rest + data.decode(errors="replace")).split("\n")
            for line in lines:
                self._note(line)
        if rest:
            self._note(rest)

    def _note(self, line: str) -> None:
        self._said.append(line[:400])
        logger.warning("worker %d: %s", self.pid, line[:2000])

    async def _end(self, patience: float) -> None:
        """Close its input, which it ends by, and after so many seconds kill it; at once if nobody waits for it."""
        if self._child.stdin is not None:
            self._child.stdin.close()
        try:
            await asyncio.wait_for(self._child.wait(), patience)
        except TimeoutError:
            self._kill()
            await self._child.wait()
        except asyncio.CancelledError:
            self._kill()
            raise

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()

"""The worker process as the server sees it: start it, exchange messages, watch its heartbeat, replace it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..errors import Error, FormatError, error_of
from .errors import WorkerUnavailable
from .messages import (
    MAX_MESSAGE_BYTES,
    Failed,
    FromWorker,
    LoadFailed,
    ModelInfo,
    Ping,
    Pong,
    Ready,
    Start,
    StepOutput,
    ToWorker,
    Vectors,
    WorkerStats,
    decode_from_worker,
    encode,
)

WORKER_COMMAND = (sys.executable, "-m", "webpte.serve.worker")
MAX_BACKOFF_SECONDS = 5.0
EXIT_SECONDS = 2.0  # for a worker to exit after its input was closed, before it is killed
KEPT_LOG_LINES = 12  # of a worker's stderr, for the error message
logger = logging.getLogger("webpte.serve")


@dataclass(frozen=True)
class RestartPolicy:
    """When a worker counts as hung, and when it is not replaced any more. Times are in seconds."""

    ping_interval: float = 1.0
    start_timeout: float = 120.0  # until the first answer to a ping
    heartbeat_timeout: float = 30.0  # without an answer to a ping, later
    stuck_timeout: float = 120.0  # with answers, while neither a step nor a part of loading completes
    max_failures: int = 5  # workers in a row that produced nothing
    backoff: float = 0.1  # after a worker that produced nothing; doubled for each further one


class WorkerProcess:
    """A child process that reads messages from its stdin and writes messages to its stdout."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self._last_lines: deque[str] = deque(maxlen=KEPT_LOG_LINES)
        self._unanswered_pings = 0
        self._answered = False
        self._busy_seconds = 0.0
        self.stats = WorkerStats()

    @classmethod
    async def spawn(cls, command: Sequence[str], start: Start) -> WorkerProcess:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=MAX_MESSAGE_BYTES
        )
        process = cls(child)
        process.write(encode(start))
        return process

    @property
    def pid(self) -> int:
        return self._child.pid

    def write(self, line: bytes) -> None:
        """Write without waiting. What a process that has exited is sent is lost; `run` notices its exit."""
        if self._child.stdin is not None and not self._child.stdin.is_closing():
            self._child.stdin.write(line)

    async def run(self, on_message: Callable[[FromWorker], None], policy: RestartPolicy) -> str:
        """Pass on each message until the process exits or hangs, and return the reason. Cancellation ends the
        process."""
        tasks = [asyncio.create_task(self._read_messages(on_message)), asyncio.create_task(self._watch(policy))]
        log = asyncio.create_task(self._forward_log())
        reason = ""
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            reason = done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            await self._terminate(0.0 if reason else EXIT_SECONDS)  # without a reason it exits by itself
            await asyncio.gather(log, return_exceptions=True)  # ends with the process, after its last line
        if not reason:
            code = self._child.returncode or 0
            reason = f"exited by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        lines = "\n".join(self._last_lines)
        return f"{reason}; its last output:\n{lines}" if lines else reason

    async def _read_messages(self, on_message: Callable[[FromWorker], None]) -> str:
        assert self._child.stdout is not None
        try:
            while (line := await self._child.stdout.readline()).endswith(b"\n"):  # an incomplete last line is lost
                message = decode_from_worker(line)
                if isinstance(message, Pong):
                    self._unanswered_pings, self._answered = 0, True
                    self._busy_seconds = message.busy_seconds
                    self.stats = message.stats
                else:
                    on_message(message)
        except FormatError as error:
            return f"sent an invalid message: {error}"
        except ValueError:
            return f"sent a line of more than {MAX_MESSAGE_BYTES:,} bytes"
        except ConnectionError:
            pass  # as at the end
        return ""

    async def _watch(self, policy: RestartPolicy) -> str:
        """Return when the worker is silent or stuck. Pings are counted, not timed: the server's own event loop may
        have been late."""
        while True:
            await asyncio.sleep(policy.ping_interval)
            timeout = policy.heartbeat_timeout if self._answered else policy.start_timeout
            if self._unanswered_pings * policy.ping_interval > timeout:
                return f"answered no ping for {timeout:g} seconds"
            if self._busy_seconds > policy.stuck_timeout:
                return f"made no progress for {self._busy_seconds:.0f} seconds"
            self._unanswered_pings += 1
            self.write(encode(Ping()))

    async def _forward_log(self) -> None:
        assert self._child.stderr is not None
        rest = ""
        while data := await self._child.stderr.read(1 << 16):
            *lines, rest = (rest + data.decode(errors="replace")).split("\n")
            for line in lines:
                self._log(line)
        if rest:
            self._log(rest)

    def _log(self, line: str) -> None:
        self._last_lines.append(line[:400])
        logger.warning("worker %d: %s", self.pid, line[:2000])

    async def _terminate(self, timeout: float) -> None:
        """Close the input, on which the worker exits, and kill it after the timeout."""
        if self._child.stdin is not None:
            self._child.stdin.close()
        try:
            await asyncio.wait_for(self._child.wait(), timeout)
        except TimeoutError:
            self._kill()
            await self._child.wait()
        except asyncio.CancelledError:
            self._kill()
            raise

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()


class WorkerListener(Protocol):
    """What `WorkerManager` reports to."""

    def on_ready(self, models: Sequence[ModelInfo]) -> None:
        """Handle a worker that has loaded its models. It has no requests yet."""

    def on_message(self, message: StepOutput | Vectors | Failed) -> None: ...

    def on_exit(self, reason: str) -> bool:
        """Handle the exit of the worker and its requests. Return whether a request caused it and has been failed."""


class WorkerManager:
    """Keeps one worker running. `ready` says whether it accepts requests."""

    def __init__(self, command: Sequence[str], start: Start, policy: RestartPolicy, listener: WorkerListener) -> None:
        self._command = command
        self._start = start
        self._policy = policy
        self._listener = listener
        self._process: WorkerProcess | None = None
        self._load_error: Error | None = None
        self._productive = False  # the current worker has produced something
        self._exited_at: float | None = None
        self._past = WorkerStats()  # of earlier workers
        self.ready = False
        self.ever_ready = False
        self.restarts = 0
        self.recovery_seconds = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def stats(self) -> WorkerStats:
        """Return the counters of all workers together, and the slots of the current one."""
        now, past = self._process.stats if self._process is not None else WorkerStats(), self._past
        return WorkerStats(
            now.slots, past.steps + now.steps, past.tokens + now.tokens, past.device_losses + now.device_losses
        )

    def send(self, message: ToWorker) -> bool:
        """Return whether a worker gets the message. A later worker gets what it needs from the listener."""
        line = encode(message)  # a message that is too large is refused in either case
        if self._process is None or not self.ready:
            return False
        self._process.write(line)
        return True

    async def run(self) -> Error:
        """Run workers until another one would be useless, and return the reason. Cancellation ends the worker."""
        failures = 0
        while True:
            reason = await self._run_one()
            logger.warning("the worker %s", reason)
            blamed = self._listener.on_exit(reason)
            failures = 0 if self._productive or blamed else failures + 1
            if self._load_error is not None and not self.ever_ready:
                return self._load_error  # such as a missing file, which another worker would not find either
            if failures >= self._policy.max_failures:
                return WorkerUnavailable(
                    f"{failures} workers in a row produced nothing. The last one {reason}\n"
                    "Run the model with `webpte run`, check the driver's messages, and restart the server.",
                    code="worker_failed",
                )
            backoff = min(self._policy.backoff * 2 ** (failures - 1), MAX_BACKOFF_SECONDS) if failures else 0
            await asyncio.sleep(backoff)
            self.restarts += 1

    async def _run_one(self) -> str:
        self._productive, self._load_error = False, None
        try:
            self._process = await WorkerProcess.spawn(self._command, self._start)
            return await self._process.run(self._on_message, self._policy)
        except OSError as error:
            return f"could not be started: {error}"
        finally:
            self._past = self.stats
            self._process, self.ready = None, False
            self._exited_at = time.monotonic()

    def _on_message(self, message: FromWorker) -> None:
        if isinstance(message, Ready):
            self.ready = self.ever_ready = True
            # Requests may wait for a replacement, so only the first worker warms up before it accepts any.
            self._start = replace(self._start, options=replace(self._start.options, warmup=False))
            if self._exited_at is not None:
                self.recovery_seconds = time.monotonic() - self._exited_at
                logger.warning("a new worker was ready after %.2f seconds", self.recovery_seconds)
            self._listener.on_ready(message.models)
        elif isinstance(message, LoadFailed):
            self._load_error = error_of(message.error, message.message, message.reason)
        elif isinstance(message, StepOutput | Vectors | Failed):
            self._productive = True
            self._listener.on_message(message)

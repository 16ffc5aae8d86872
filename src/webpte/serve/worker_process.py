"""The worker process as the server sees it: start it, exchange messages, watch its heartbeat, replace it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..errors import DeviceError, Error, FormatError, error_of
from .backend import Restart
from .errors import WorkerUnavailable
from .messages import (
    MAX_MESSAGE_BYTES,
    Computed,
    FromWorker,
    LoadFailed,
    MemoryUsed,
    ModelInfo,
    Ping,
    Pong,
    Ready,
    Start,
    ToWorker,
    WorkerStats,
    decode_from_worker,
    encode,
)
from .processes import PIPE, spawn

WORKER_COMMAND = (sys.executable, "-m", "webpte.serve.worker")
EXIT_SECONDS = 2.0  # for a worker to exit after its input was closed, before it is killed
KEPT_LOG_LINES = 12  # of a worker's stderr, for the error message
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RestartPolicy:
    """When a worker counts as hung, when it is replaced, and when it is not replaced any more. Times are in seconds.

    An outage starts with the exit of a worker. It ends when a later worker produces something or has been ready for
    `stable_seconds`.
    """

    ping_interval: float = 1.0
    start_timeout: float = 120.0  # until the first answer to a ping
    heartbeat_timeout: float = 30.0  # without an answer to a ping, later
    stuck_timeout: float = 120.0  # with answers, while neither a step nor a part of loading completes
    backoff: float = 0.1  # pause after a worker that produced nothing; doubled for each further one
    max_backoff: float = 30.0
    restart_timeout: float = 300.0  # of an outage, after which no more workers are started; 0 for no limit
    stable_seconds: float = 60.0
    max_start_failures: int = 5  # workers that exited before any was ready: the cause is rarely temporary


@dataclass(frozen=True)
class WorkerExit:
    """Why a worker ended. `detail` may contain paths and output of the worker; `reason` contains neither."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return self.reason + self.detail


class Outage:
    """The exits of workers since the last one that worked."""

    def __init__(self, policy: RestartPolicy) -> None:
        self.num_exits = 0
        self.last_exit = WorkerExit("")
        self._policy = policy
        self._failures = 0  # workers in a row that produced nothing and that no request has crashed
        self._started = time.monotonic()
        self._next_start = self._started

    def add(self, exit: WorkerExit, failed: bool) -> None:
        """Count an exit. `failed` says that the worker is to blame, so that the pause before the next one grows."""
        self.num_exits += 1
        self.last_exit = exit
        self._failures = self._failures + 1 if failed else 0
        now, limit = time.monotonic(), self._policy.restart_timeout
        pause = min(self._policy.backoff * 2.0 ** min(self._failures - 1, 64), self._policy.max_backoff)
        if limit:
            pause = min(pause, max(0.0, self._started + limit - now))
        self._next_start = now + (pause if failed else 0.0)

    @property
    def seconds(self) -> float:
        """Return how long the outage has lasted."""
        return time.monotonic() - self._started

    @property
    def pause(self) -> float:
        """Return the seconds until the next worker is started; 0 if it has been started."""
        return max(0.0, self._next_start - time.monotonic())

    def is_final(self, ever_ready: bool) -> bool:
        """Return whether no other worker is started."""
        limit = self._policy.restart_timeout
        return 0 < limit <= self.seconds or (not ever_ready and self._failures >= self._policy.max_start_failures)


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
        child = await spawn(command, stderr=PIPE, limit=MAX_MESSAGE_BYTES)
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

    async def run(self, on_message: Callable[[FromWorker], None], policy: RestartPolicy) -> WorkerExit:
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
        return WorkerExit(reason, f"; its last output:\n{lines}" if lines else "")

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
        rest = b""
        while data := await self._child.stderr.read(1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._log(line)
        if rest:
            self._log(rest)

    def _log(self, data: bytes) -> None:
        line = data.decode(errors="replace").removesuffix("\r")
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

    def on_ready(self, model: ModelInfo) -> None:
        """Handle a worker that has loaded its model. It has no requests yet."""

    def on_message(self, message: Computed) -> None: ...

    def on_memory(self, nbytes: int) -> None:
        """Handle the answer to `limit_memory`."""

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
        self._outage: Outage | None = None
        self._ready_at = self._exited_at = math.inf  # the current worker, the last one
        self._past = WorkerStats()  # of earlier workers
        self.ready = False
        self.ever_ready = False
        self.restarts = 0
        self.recovery_seconds = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def restart(self) -> Restart | None:
        """Return the state of a restart; None while a worker is ready, and while the first one starts."""
        outage = self._outage
        if outage is None or self.ready:
            return None
        # One worker less was started than has exited, or as many if the next one has been started.
        attempts = outage.num_exits - 1 + (self._process is not None)
        return Restart(attempts, outage.pause, outage.last_exit.reason)

    @property
    def stats(self) -> WorkerStats:
        """Return the counters of all workers together, and the slots of the current one."""
        now, past = self._process.stats if self._process is not None else WorkerStats(), self._past
        return WorkerStats(
            now.slots,
            past.steps + now.steps,
            past.tokens + now.tokens,
            past.device_losses + now.device_losses,
            now.memory,
        )

    def set_memory(self, nbytes: int) -> None:
        """Set the limit of device memory of later workers."""
        self._start = replace(self._start, options=replace(self._start.options, memory=nbytes))

    def send(self, message: ToWorker) -> bool:
        """Return whether a worker gets the message. A later worker gets what it needs from the listener."""
        line = encode(message)  # a message that is too large is refused in either case
        if self._process is None or not self.ready:
            return False
        self._process.write(line)
        return True

    async def run(self) -> Error:
        """Run workers until another one would be useless, and return the reason. Cancellation ends the worker."""
        while True:
            exit = await self._run_one()
            logger.warning("the worker %s", exit)
            blamed = self._listener.on_exit(str(exit))
            if self._load_error is not None and not (self.ever_ready and isinstance(self._load_error, DeviceError)):
                return self._load_error  # such as a missing file, which another worker would not find either
            if self._outage is None or time.monotonic() - self._ready_at >= self._policy.stable_seconds:
                self._outage = Outage(self._policy)
            self._outage.add(exit, failed=not self._productive and not blamed)
            if self._outage.is_final(self.ever_ready):
                return WorkerUnavailable(
                    f"{self._outage.num_exits} workers in a row produced nothing within {self._outage.seconds:.1f} "
                    f"seconds. The last one {exit}\n"
                    "Run the model with `webpte run`, check the driver's messages, and restart the server.",
                    code="worker_failed",
                )
            await asyncio.sleep(self._outage.pause)
            self.restarts += 1

    async def _run_one(self) -> WorkerExit:
        self._productive, self._load_error = False, None
        self._ready_at = math.inf
        try:
            self._process = await WorkerProcess.spawn(self._command, self._start)
            exit = await self._process.run(self._on_message, self._policy)
        except OSError as error:
            exit = WorkerExit(f"could not be started: {error.strerror}", f": {error}")
        finally:
            self._past = self.stats
            self._process, self.ready = None, False
            self._exited_at = time.monotonic()
        if self._load_error is not None:
            return WorkerExit(f"could not load its model: {self._load_error.code}", f": {self._load_error}")
        return exit

    def _on_message(self, message: FromWorker) -> None:
        if isinstance(message, Ready):
            self.ready = self.ever_ready = True
            if self._process is not None:
                self._process.stats = WorkerStats(memory=message.memory)  # until the first answer to a ping
            self._ready_at = time.monotonic()
            # Requests may wait for a replacement, so only the first worker warms up before it accepts any.
            self._start = replace(self._start, options=replace(self._start.options, warmup=False))
            if self._exited_at < math.inf:
                self.recovery_seconds = time.monotonic() - self._exited_at
                logger.warning("a new worker was ready after %.2f seconds", self.recovery_seconds)
            self._listener.on_ready(message.model)
        elif isinstance(message, LoadFailed):
            self._load_error = error_of(message.error, message.message, message.reason)
        elif isinstance(message, MemoryUsed):
            self._listener.on_memory(message.nbytes)
        elif isinstance(message, Computed):
            self._productive = True
            self._outage = None
            self._listener.on_message(message)

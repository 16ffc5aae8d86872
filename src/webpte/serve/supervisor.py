"""Requests in flight, and the worker process that computes them.

The supervisor keeps the prompt, the settings and the generated tokens of every request. If the worker exits, the next
one gets all three and continues with the tokens that the first would have generated: see `LLM.resume`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import Error, error_of
from ..llm.settings import SamplingParams
from .accounts import FairQueue
from .backend import OnText, State, Stats, Timeouts, ignore_text
from .errors import DeadlineExceeded, QueueFull, WorkerUnavailable
from .in_flight import InFlight, PendingTranscript, PendingVectors, ResponseStream, Result
from .messages import (
    Cancel,
    Computation,
    Computed,
    Embed,
    Generate,
    LimitMemory,
    ModelFile,
    ModelInfo,
    PromptItem,
    SpeechTask,
    Start,
    StepOutput,
    TokenDelta,
    Transcribe,
    Transcribed,
    TranscribedText,
    Vectors,
    WorkerOptions,
)
from .served_models import KINDS, check_computation
from .worker_process import WORKER_COMMAND, RestartPolicy, WorkerManager

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_RETRY_AFTER_SECONDS = 60.0
DEFAULT_CLIENT_SHARE = 7 / 8  # of the slots, so that one client does not take all
DURATION_SMOOTHING = 0.1  # weight of the last response in the moving average of durations
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Bounds of the queue, of waiting times, and of restarts."""

    max_queue: int = 64  # requests beyond those that are computed
    max_client_slots: int = 0  # requests of one client that are computed at once; 0 for 7 of 8 slots
    timeouts: Timeouts = field(default_factory=Timeouts)
    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    share_prefixes: bool = False  # cached prefixes are those of all clients, not of each
    max_crashes: int = 3  # workers that exited while they had a request, before the request is failed


class Supervisor:
    """The requests for a model and its worker process, which is replaced if it exits."""

    def __init__(
        self,
        file: ModelFile,
        options: WorkerOptions | None = None,
        limits: Limits | None = None,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        self.limits = limits or Limits()
        self._file = file
        load = options or WorkerOptions()
        start = Start(file, load, self.limits.max_queue + load.max_sequences)
        self._manager = WorkerManager(tuple(command), start, self.limits.restarts, self)
        self._running: asyncio.Task[None] | None = None
        self._stopping = False
        self._info: ModelInfo | None = None  # None until it is loaded
        self._ids = itertools.count(1)
        self._secret = secrets.token_bytes(16)
        self._streams: dict[int, ResponseStream] = {}
        self._pending: dict[int, PendingVectors | PendingTranscript] = {}
        self._queue: FairQueue[InFlight] = FairQueue(0, 0)
        self._started = asyncio.Event()  # ready for the first time, or failed
        self._failed = asyncio.Event()
        self._idle = asyncio.Event()
        self._failure: Error | None = None
        self._state: State = "starting"
        self._memory = 0  # bytes on the device, as the worker last reported to `limit_memory`
        self._measuring: asyncio.Future[int] | None = None
        self._mean_seconds = 1.0  # of recent responses
        self._prompt_tokens = self._cached_tokens = self._cache_hits = self._completion_tokens = 0

    # -- for the fleet -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._running = asyncio.create_task(self._run_workers())
        await self._started.wait()
        if self._failure is not None:
            raise self._failure

    async def _run_workers(self) -> None:
        try:
            self._failure = await self._manager.run()
        except Exception as error:  # a bug: fail the requests, so that no client waits forever
            logger.exception("the worker manager failed")
            self._failure = WorkerUnavailable(
                f"the worker manager failed: {error!r}. Restart the server.", code="worker_failed"
            )
        self._state = "failed"
        failure = self._failure
        if not isinstance(failure, WorkerUnavailable):  # its text may name paths, and any client may read it
            failure = WorkerUnavailable(f"{self._file.name} cannot be loaded again: {failure.code}. See the log.")
        self._fail_all(failure)
        self._started.set()
        self._failed.set()

    async def failed(self) -> Error:
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    async def stop(self, grace: float) -> None:
        if self._state not in ("failed", "stopped"):
            self._state = "draining"
        self._update_idle()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace)
        self._state = "stopped"
        for stream in list(self._streams.values()):
            self._detach(stream)
            stream.finish("cancelled")
        self._fail_all(WorkerUnavailable("the server is shutting down", code="stopping"))
        if self._running is not None:
            if not self._stopping:  # a second cancellation would interrupt the end of the worker
                self._stopping = self._running.cancel()
            await asyncio.wait([self._running])

    @property
    def info(self) -> ModelInfo | None:
        """Return the model; None until it is loaded."""
        return self._info

    @property
    def worker_pid(self) -> int | None:
        """Return the process id of the current worker."""
        return self._manager.pid

    def generate(
        self,
        model: str,
        tokens: tuple[PromptItem, ...],
        params: SamplingParams,
        *,
        timeouts: Timeouts | None = None,
        client: str = "",
        version: str | None = None,
    ) -> ResponseStream:
        info = self._loaded(Generate, version)
        request = Generate(next(self._ids), tokens, params, domain=self._domain(client))
        stream = ResponseStream(request, client, info.version, self._detach)
        self._enqueue(stream)
        self._streams[stream.id] = stream
        stream.start_timers(timeouts or self.limits.timeouts)
        self._dispatch()
        return stream

    def _domain(self, client: str) -> str:
        """Return the name of the requests that share prefixes with those of a client. The worker learns no client."""
        if self.limits.share_prefixes or not client:
            return ""
        return hashlib.blake2b(client.encode(), key=self._secret, digest_size=16).hexdigest()

    async def embed(
        self,
        model: str,
        rows: Sequence[Sequence[int]],
        timeout: float | None = None,
        client: str = "",
        version: str | None = None,
    ) -> NDArray[np.float32]:
        info = self._loaded(Embed, version)
        pending = PendingVectors(next(self._ids), rows, info.dimensions, client, info.version)
        return await self._computed(pending, pending.result, timeout)

    async def transcribe(
        self,
        model: str,
        samples: str,
        language: str | None,
        task: SpeechTask,
        timestamps: bool,
        timeout: float | None = None,
        client: str = "",
        on_text: OnText = ignore_text,
        version: str | None = None,
    ) -> Transcribed:
        info = self._loaded(Transcribe, version)
        request = Transcribe(next(self._ids), samples, language, task, timestamps)
        pending = PendingTranscript(request, client, info.version, on_text)
        return await self._computed(pending, pending.result, timeout)

    async def _computed(
        self, pending: PendingVectors | PendingTranscript, result: asyncio.Future[Result], timeout: float | None
    ) -> Result:
        """Send a request to the worker and return its result."""
        self._enqueue(pending)
        self._pending[pending.id] = pending
        seconds = self.limits.timeouts.total if timeout is None else timeout
        try:
            self._dispatch()
            return await asyncio.wait_for(result, seconds)
        except TimeoutError:
            raise DeadlineExceeded(f"the result was not computed within {seconds:g} seconds. Request less.") from None
        finally:
            if not pending.done and not pending.waiting:
                self._manager.send(Cancel(pending.id))
            self._remove(pending)

    async def limit_memory(self, nbytes: int) -> int:
        """Limit the worker to these bytes on the device, or to what it takes now if that is more. Return what it takes.

        If it exits meanwhile, this is what it last took, which its replacement will take again."""
        self._measuring = asyncio.get_running_loop().create_future()
        if self._manager.send(LimitMemory(nbytes)):
            self._memory = await self._measuring
        self._manager.set_memory(max(nbytes, self._memory))
        return self._memory

    def stats(self) -> Stats:
        queued = sum(not stream.admitted for stream in self._streams.values())
        worker = self._manager.stats
        return Stats(
            state=self._state,
            queued=queued,
            busy=len(self._streams) - queued,
            slots=worker.slots,
            embedding=sum(isinstance(each, PendingVectors) for each in self._pending.values()),
            transcribing=sum(isinstance(each, PendingTranscript) for each in self._pending.values()),
            steps=worker.steps,
            tokens=worker.tokens,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            cache_hits=self._cache_hits,
            completion_tokens=self._completion_tokens,
            restarts=self._manager.restarts,
            device_losses=worker.device_losses,
            recovery_seconds=self._manager.recovery_seconds,
            restart=self._manager.restart,
            memory=worker.memory,
        )

    def _loaded(self, computation: type[Computation], version: str | None) -> ModelInfo:
        """Return the model, which must be loaded, of the kind that computes this, and of a version if one is given."""
        if self._state in ("draining", "stopped"):
            raise WorkerUnavailable("the server is shutting down and accepts no more requests", code="stopping")
        if self._failure is not None:
            raise WorkerUnavailable(f"no worker is running: {self._failure}", code="no_worker")
        if self._info is None:
            raise WorkerUnavailable("the model is still loading. Try again later.", code="loading")
        check_computation(self._info, computation)
        if version not in (None, self._info.version):
            raise self._replaced()
        return self._info

    def _replaced(self) -> WorkerUnavailable:
        return WorkerUnavailable(
            f"{self._file.name} was replaced by another model during the request. Send it again.", code="model_replaced"
        )

    # -- WorkerListener ----------------------------------------------------------------------------------------------

    def on_ready(self, model: ModelInfo) -> None:
        """Send the new worker all requests that are not done, in their order of arrival."""
        self._info = model
        replaced = [request for request in self._in_flight if request.version != model.version]
        for request in sorted(replaced, key=lambda each: not each.waiting):  # before one of them gets a free slot
            self._fail(request, self._replaced())
        for request in self._in_flight:
            if not request.waiting and not self._is_quarantined(request):
                request.sent = self._manager.send(request.message())
        self._send_quarantined()
        queue = self._queue
        queue.slots = KINDS[model.kind].max_requests or model.max_batch
        queue.max_per_client = self.limits.max_client_slots or math.ceil(queue.slots * DEFAULT_CLIENT_SHARE)
        self._dispatch()
        if self._state != "draining":
            self._state = "ready"
        self._started.set()

    def on_message(self, message: Computed) -> None:
        if isinstance(message, StepOutput):
            for delta in message.deltas:
                if (stream := self._streams.get(delta.id)) is not None:
                    self._add(stream, delta)
        elif isinstance(message, TranscribedText):
            if isinstance(pending := self._pending.get(message.id), PendingTranscript):
                pending.on_text(message.text)
        elif isinstance(message, Vectors | Transcribed):
            self._complete(message)
        else:
            request = self._streams.get(message.id) or self._pending.get(message.id)
            if request is not None:
                self._fail(request, error_of(message.error, message.message, message.reason))
        self._send_quarantined()

    def _complete(self, message: Vectors | Transcribed) -> None:
        pending = self._pending.get(message.id)
        if isinstance(pending, PendingVectors) and isinstance(message, Vectors):
            pending.add(message)
        elif isinstance(pending, PendingTranscript) and isinstance(message, Transcribed):
            pending.complete(message)
        if pending is not None and pending.done:
            self._remove(pending)

    def on_memory(self, nbytes: int) -> None:
        if self._measuring is not None and not self._measuring.done():
            self._measuring.set_result(nbytes)

    def on_exit(self, reason: str) -> bool:
        self.on_memory(self._memory)
        if self._state == "ready":
            self._state = "restarting"
        blamed = False
        for request in [request for request in self._in_flight if not request.done]:
            request.crash_count += request.sent
            request.sent = False
            if request.crash_count >= self.limits.max_crashes:
                blamed = True
                message = (
                    f"{request.crash_count} workers exited while they computed this request. The last one {reason}"
                )
                self._fail(request, WorkerUnavailable(message, code="request_crashes_workers"))
        return blamed

    def _is_quarantined(self, request: InFlight) -> bool:
        """Return whether one more crash would fail the request. Such requests are sent one at a time, each until it has
        produced something, so that a request that crashes workers fails alone."""
        return request.crash_count >= self.limits.max_crashes - 1 > 0

    def _send_quarantined(self) -> None:
        quarantined = [request for request in self._in_flight if self._is_quarantined(request)]
        if quarantined and not any(request.sent for request in quarantined):
            quarantined[0].sent = self._manager.send(quarantined[0].message())

    # -- requests in flight ------------------------------------------------------------------------------------------

    @property
    def _in_flight(self) -> list[InFlight]:
        return [*self._streams.values(), *self._pending.values()]

    def _enqueue(self, request: InFlight) -> None:
        """Let a request wait for a slot. If the queue is full, the client with the most waiting requests loses its last
        one; raise QueueFull if that would be this request."""
        queue = self._queue
        if len(queue) >= self.limits.max_queue and not queue.has_slot(request.client):
            after = self._mean_seconds * (len(queue) + 1) / queue.slots
            after = min(max(1.0, after), MAX_RETRY_AFTER_SECONDS)
            full = QueueFull(
                f"the queue of {self._file.name} is full: {len(queue)} requests wait and {queue.num_held} are "
                f"computed. Retry in {after:.0f} seconds.",
                after,
            )
            displaced = queue.to_displace(request.client)
            if displaced is None:
                raise full
            self._fail(displaced, full)
        queue.push(request.client, request)

    def _dispatch(self) -> None:
        """Send the worker as many waiting requests as it has slots. The others wait here, where the request of a client
        that comes later can still overtake those of a client that has sent many."""
        if self._state in ("stopped", "failed"):
            return
        while (request := self._queue.pop()) is not None:
            request.waiting = False
            try:
                request.sent = self._manager.send(request.message())
            except Error as error:  # the message is too large
                self._fail(request, error)

    def _add(self, stream: ResponseStream, delta: TokenDelta) -> None:
        if delta.cached_tokens is not None and not stream.admitted:
            self._prompt_tokens += stream.usage.prompt_tokens
            self._cached_tokens += delta.cached_tokens
            self._cache_hits += delta.cached_tokens > 0
        self._completion_tokens += len(delta.pieces)
        stream.add(delta)
        if stream.done:
            self._remove(stream)
            self._mean_seconds += DURATION_SMOOTHING * (time.monotonic() - stream.started - self._mean_seconds)

    def _detach(self, stream: ResponseStream) -> None:
        """End a response here: the worker stops computing it."""
        if not stream.waiting:
            self._manager.send(Cancel(stream.id))
        self._remove(stream)

    def _fail(self, request: InFlight, error: Error) -> None:
        request.fail(error)
        self._remove(request)

    def _fail_all(self, error: Error) -> None:
        for request in self._in_flight:
            self._fail(request, error)

    def _remove(self, request: InFlight) -> None:
        """Forget a request, and give its slot to the next one."""
        requests: dict[int, Any] = self._streams if isinstance(request, ResponseStream) else self._pending
        if requests.pop(request.id, None) is None:
            return
        if request.waiting:
            self._queue.remove(request.client, request)
        else:
            self._queue.release(request.client)
            self._dispatch()
        self._update_idle()

    def _update_idle(self) -> None:
        if not self._streams and not self._pending:
            self._idle.set()
        else:
            self._idle.clear()

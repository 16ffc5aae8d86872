"""Requests in flight, as the supervisor keeps them: what a worker gets, and what it has produced so far."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from ..errors import Error
from ..llm.engine.output import Admitted
from ..typing import Array
from .backend import Event, OnText, RequestUsage, StreamEnd, StreamEndReason, Timeouts
from .errors import DeadlineExceeded, Wait
from .messages import Computation, Embed, Generate, TokenDelta, Transcribe, Transcribed, Vectors, prompt_length

Result = TypeVar("Result")
FINISH_REASONS: dict[str, StreamEndReason] = {"stop": "stop", "length": "length"}  # of the engine; others: cancelled


class ResponseStream:
    """The events of a response that is being generated. It ends even if it is not read."""

    def __init__(self, request: Generate, client: str, version: str, detach: Callable[[ResponseStream], None]) -> None:
        """Store the request, which was tokenized for a version of the model. `detach` is called when the response ends
        here before the worker ends it."""
        self.id, self.client, self.version = request.id, client, version
        self.waiting = True  # in the queue of the server
        self.admitted = False  # by any worker: it has a slot
        self.sent = False  # to the current worker
        self.crash_count = 0  # workers that exited while they had it, since its last token
        self.done = False
        self.started = time.monotonic()
        self._request = request
        self._prompt_tokens = prompt_length(request.tokens)
        self._detach = detach
        self._tokens: list[int] = []
        self._cached_tokens = self._reasoning_tokens = 0
        self._events: asyncio.Queue[Event | Error] = asyncio.Queue()
        self._exhausted = False
        self._timers: dict[Wait, asyncio.TimerHandle] = {}

    # -- for readers -------------------------------------------------------------------------------------------------

    def __aiter__(self) -> ResponseStream:
        return self

    async def __anext__(self) -> Event:
        if self._exhausted:
            raise StopAsyncIteration
        event = await self._events.get()
        self._exhausted = isinstance(event, Error | StreamEnd)
        if isinstance(event, Error):
            raise event
        return event

    async def cancel(self) -> None:
        if not self.done:
            self._detach(self)
            self.finish("cancelled")

    @property
    def usage(self) -> RequestUsage:
        return RequestUsage(self._prompt_tokens, self._cached_tokens, len(self._tokens), self._reasoning_tokens)

    # -- for the supervisor ------------------------------------------------------------------------------------------

    def message(self) -> Generate:
        """Return what a worker needs to start or to continue."""
        return replace(self._request, resumed=tuple(self._tokens))

    def start_timers(self, timeouts: Timeouts) -> None:
        loop = asyncio.get_running_loop()
        waits: tuple[tuple[Wait, float | None], ...] = (
            ("queue", timeouts.queue),
            ("first token", timeouts.first_token),
            ("total", timeouts.total),
        )
        for wait, seconds in waits:
            if seconds is not None:
                self._timers[wait] = loop.call_later(seconds, self._expire, wait, seconds)

    def _expire(self, wait: Wait, seconds: float) -> None:
        self._detach(self)
        if wait == "total" and self._tokens:
            self.finish("deadline")
            return
        missing = {
            "queue": "no slot was free",
            "first token": "no token was generated",
            "total": "no token was generated",
        }
        self.fail(
            DeadlineExceeded(f"{missing[wait]} within {seconds:g} seconds. Try again later, or request less.", wait)
        )

    def _stop_timer(self, wait: Wait) -> None:
        timer = self._timers.pop(wait, None)
        if timer is not None:
            timer.cancel()

    def add(self, delta: TokenDelta) -> None:
        """Add what a step produced."""
        if delta.cached_tokens is not None and not self.admitted:
            self.admitted, self._cached_tokens = True, delta.cached_tokens
            self._stop_timer("queue")
            self._events.put_nowait(Admitted(delta.cached_tokens))
        for piece in delta.pieces:
            self._stop_timer("first token")
            self.crash_count = 0
            self._tokens.append(piece.token)
            if piece.kind == "reasoning":
                self._reasoning_tokens = len(self._tokens)
            self._events.put_nowait(piece)
        if delta.finish_reason is not None:
            self.finish(FINISH_REASONS.get(delta.finish_reason, "cancelled"), delta.stop_string)

    def finish(self, reason: StreamEndReason, stop_string: str | None = None) -> None:
        self._end(StreamEnd(reason, self.usage, stop_string))

    def fail(self, error: Error) -> None:
        self._end(error)

    def _end(self, last: StreamEnd | Error) -> None:
        if not self.done:
            self.done = True
            for wait in list(self._timers):
                self._stop_timer(wait)
            self._events.put_nowait(last)


class PendingResult(Generic[Result]):
    """A request whose result arrives as a whole."""

    def __init__(self, id: int, client: str, version: str) -> None:
        self.id, self.client, self.version = id, client, version
        self.waiting = True  # in the queue of the server
        self.sent = False
        self.done = False
        self.crash_count = 0
        self.result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def message(self) -> Computation:
        raise NotImplementedError

    def complete(self, result: Result) -> None:
        self.done = True
        if not self.result.done():  # cancelled by its reader
            self.result.set_result(result)

    def fail(self, error: Error) -> None:
        self.done = True
        if not self.result.done():
            self.result.set_exception(error)


class PendingVectors(PendingResult[Array]):
    """Rows of tokens whose vectors arrive batch by batch, in any order."""

    def __init__(self, id: int, rows: Sequence[Sequence[int]], dimensions: int, client: str, version: str) -> None:
        import numpy as np

        super().__init__(id, client, version)
        self._rows = tuple(tuple(row) for row in rows)
        self._missing = set(range(len(rows)))
        self._vectors = np.empty((len(rows), dimensions), np.float32)

    def message(self) -> Embed:
        return Embed(self.id, self._rows)

    def add(self, vectors: Vectors) -> None:
        import numpy as np

        self.crash_count = 0
        values = np.frombuffer(base64.b64decode(vectors.data), "<f4")
        self._vectors[list(vectors.rows)] = values.reshape(len(vectors.rows), vectors.dimensions)
        self._missing.difference_update(vectors.rows)
        if not self._missing and not self.done:
            self.complete(self._vectors)


class PendingTranscript(PendingResult[Transcribed]):
    """Samples that are turned into text."""

    def __init__(self, request: Transcribe, client: str, version: str, on_text: OnText) -> None:
        super().__init__(request.id, client, version)
        self._request = request
        self.on_text = on_text

    def message(self) -> Transcribe:
        return self._request


InFlight = ResponseStream | PendingVectors | PendingTranscript

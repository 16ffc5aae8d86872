"""Requests as the server keeps them: all it takes to go on with another worker, and what their readers wait for."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import Error
from .backend import Ask, Begun, Deadlines, Event, Finished, Reason, Usage
from .errors import DeadlineExceeded, Wait
from .messages import Embed, Generate, Given, Piece, Vectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Answer:
    """The stream of one answer. It lives until its last event, whether or not anybody reads."""

    def __init__(self, number: int, ask: Ask, leave: Callable[[Answer], None]) -> None:
        """`leave` is told when it ends here before the worker says so."""
        self.number = number
        self.ask = ask
        self.begun = False  # by any worker: it is out of the queue
        self.sent = False  # to the worker that there is now
        self.strikes = 0  # workers that ended while they had it, since its last token
        self.over = False
        self.started = time.monotonic()
        self._leave = leave
        self._tokens: list[int] = []
        self._cached = 0
        self._events: asyncio.Queue[Event | Error] = asyncio.Queue()
        self._read_all = False
        self._timers: dict[Wait, asyncio.TimerHandle] = {}

    # -- for readers -------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> Event:
        if self._read_all:
            raise StopAsyncIteration
        event = await self._events.get()
        self._read_all = isinstance(event, Error | Finished)
        if isinstance(event, Error):
            raise event
        return event

    async def cancel(self) -> None:
        if not self.over:
            self._leave(self)
            self.finish("cancelled")

    @property
    def usage(self) -> Usage:
        return Usage(len(self.ask.tokens), self._cached, len(self._tokens))

    # -- for the supervisor --------------------------------------------------------------------------------------------

    def message(self) -> Generate:
        """What a worker has to be told, the first one or another."""
        return Generate(self.number, self.ask.model, self.ask.tokens, self.ask.settings, tuple(self._tokens))

    def wait_at_most(self, deadlines: Deadlines) -> None:
        loop = asyncio.get_running_loop()
        waits: tuple[tuple[Wait, float | None], ...] = (
            ("queue", deadlines.queue),
            ("first token", deadlines.first_token),
            ("total", deadlines.total),
        )
        for wait, seconds in waits:
            if seconds is not None:
                self._timers[wait] = loop.call_later(seconds, self._expire, wait, seconds)

    def _expire(self, wait: Wait, seconds: float) -> None:
        self._leave(self)
        if wait == "total" and self._tokens:
            self.finish("deadline")
        else:
            told = {"queue": "no slot was free", "first token": "no token had come", "total": "nothing had come"}[wait]
            self.fail(DeadlineExceeded(f"{told} within {seconds:g} seconds; ask again later, or for less", wait))

    def _reached(self, wait: Wait) -> None:
        timer = self._timers.pop(wait, None)
        if timer is not None:
            timer.cancel()

    def take(self, given: Given) -> None:
        """What a pass has brought."""
        if given.cached is not None and not self.begun:
            self.begun, self._cached = True, given.cached
            self._reached("queue")
            self._events.put_nowait(Begun(len(self.ask.tokens), given.cached))
        for piece in given.pieces:
            self._add(piece)
        if given.reason is not None:
            self.finish("stop" if given.reason == "stop" else "length" if given.reason == "length" else "cancelled")

    def _add(self, piece: Piece) -> None:
        self._reached("first token")
        self.strikes = 0
        self._tokens.append(piece.token)
        self._events.put_nowait(piece)

    def finish(self, reason: Reason) -> None:
        self._end(Finished(reason, self.usage))

    def fail(self, error: Error) -> None:
        self._end(error)

    def _end(self, last: Finished | Error) -> None:
        if not self.over:
            self.over = True
            for wait in list(self._timers):
                self._reached(wait)
            self._events.put_nowait(last)


class Encoding:
    """Rows of tokens whose vectors are made, batch by batch in any order."""

    def __init__(self, number: int, model: str, rows: Sequence[Sequence[int]], dimensions: int) -> None:
        import numpy as np

        self.number = number
        self.model = model
        self.sent = False
        self.over = False
        self.strikes = 0
        self.done: asyncio.Future[NDArray[np.float32]] = asyncio.get_running_loop().create_future()
        self._rows = tuple(tuple(row) for row in rows)
        self._missing = set(range(len(rows)))
        self._vectors = np.empty((len(rows), dimensions), np.float32)

    def message(self) -> Embed:
        return Embed(self.number, self.model, self._rows)

    def take(self, found: Vectors) -> None:
        import numpy as np

        self.strikes = 0
        values = np.frombuffer(base64.b64decode(found.data), "<f4")
        self._vectors[list(found.rows)] = values.reshape(len(found.rows), found.dimensions)
        self._missing.difference_update(found.rows)
        if not self._missing and not self.over:
            self.over = True
            if not self.done.done():  # nobody may wait any more
                self.done.set_result(self._vectors)

    def fail(self, error: Error) -> None:
        self.over = True
        if not self.done.done():
            self.done.set_exception(error)

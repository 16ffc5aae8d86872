"""What a request produces: text with stop strings removed, and the queue that carries it to the reader."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ..tokenizer import TextStream, Tokenizer

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class Piece:
    """The text that one token completed. It is empty while a character or a possible stop string is incomplete."""

    text: str
    token: int
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()  # the most probable tokens, as many as were requested


@dataclass(frozen=True)
class Admitted:
    """The request has a slot; this many tokens of its prompt were in the prefix cache."""

    cached_tokens: int


@dataclass(frozen=True)
class Finished:
    """The last output of a request."""

    reason: FinishReason
    error: BaseException | None = None


Output = Admitted | Piece | Finished


class OutputSink(Protocol):
    """Where the engine puts the outputs of a request: those of one step together."""

    def put(self, outputs: Sequence[Output]) -> None: ...

    def __len__(self) -> int:
        """Return the number of unread outputs."""


class OutputQueue:
    """The outputs of one request, for threads and for tasks of an event loop.

    Several queues may share `changed`, so that a reader can wait for any of them.
    """

    def __init__(self, changed: threading.Condition | None = None) -> None:
        self._changed = changed or threading.Condition()
        self._outputs: deque[Output] = deque()
        self._tasks: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        return len(self._outputs)

    def put(self, outputs: Sequence[Output]) -> None:
        with self._changed:
            self._outputs.extend(outputs)
            tasks, self._tasks = self._tasks, []
            self._changed.notify_all()
        for loop, future in tasks:
            with contextlib.suppress(RuntimeError):  # the loop was closed: its task is gone
                loop.call_soon_threadsafe(_wake, future)

    def take(self) -> Output | None:
        """Return the next output, or None if there is none yet."""
        return self._outputs.popleft() if self._outputs else None

    def peek(self) -> Output | None:
        return self._outputs[0] if self._outputs else None

    async def arrive(self) -> None:
        """Return when there is an output."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._changed:
            if self._outputs:
                return
            self._tasks.append((loop, future))
        await future


def wait_for_any(queues: Sequence[OutputQueue], seconds: float) -> None:
    """Return when one of the queues, which share `changed`, has an output, or after a time."""
    changed = queues[0]._changed
    with changed:
        if not any(queues):
            changed.wait(seconds)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class StopStringBuffer:
    """Holds back text that may be the beginning of a stop string, and everything from a stop string on."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = stop
        self._held = ""
        self.matched = False

    @property
    def held(self) -> str:
        """Return the text that is held back; once a stop string was found, that string and what follows it."""
        return self._held

    def push(self, text: str) -> str:
        """Add text; return what cannot be part of a stop string."""
        self._held += text
        positions = [at for s in self._stop if (at := self._held.find(s)) >= 0]
        if positions:
            self.matched = True
            return self._take(min(positions))
        return self._take(len(self._held) - self._partial())

    def flush(self, text: str) -> str:
        """Add the last text; return all that is held back, up to a stop string."""
        out = self.push(text)
        return out if self.matched else out + self._take(len(self._held))

    def _partial(self) -> int:
        """Return the length of the longest tail that begins a stop string."""
        longest = 0
        for s in self._stop:
            for length in range(min(len(s) - 1, len(self._held)), longest, -1):
                if self._held.endswith(s[:length]):
                    longest = length
                    break
        return longest

    def _take(self, count: int) -> str:
        out, self._held = self._held[:count], self._held[count:]
        return out


class OutputProcessor:
    """Turns the tokens of one request into text, and finds its stop strings."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._stream = TextStream(tokenizer)
        self._buffer = StopStringBuffer(stop)

    @property
    def stopped(self) -> bool:
        """Return whether a stop string was found."""
        return self._buffer.matched

    def push(self, token: int, *, silent: bool = False, last: bool = False) -> str:
        """Return the text that a token completes. A `silent` token, such as end-of-text, has none."""
        text = "" if silent else self._buffer.push(self._stream.push(token))
        if last and not self.stopped:
            text += self._buffer.flush("" if silent else self._stream.flush())
        return text

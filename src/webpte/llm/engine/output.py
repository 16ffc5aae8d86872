"""What a request produces: reasoning, text with stop strings removed, and the queue that carries it to the reader."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ..tokenizer import TextStream, Tokenizer
from .reasoning import PieceKind, ReasoningSplitter, SplitText
from .stop_strings import StopStringBuffer

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class Piece:
    """The text that one token completed. It is empty while a character or a possible stop string is incomplete.

    `kind` is where the token belongs: to the answer, or to the thought before it, with its tags. A "pending" token may
    belong to either: a later piece has its text.
    """

    text: str  # of the answer
    token: int
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()  # the most probable tokens, as many as were requested
    reasoning: str = ""  # text of the thought
    kind: PieceKind = "answer"


@dataclass(frozen=True)
class Admitted:
    """The request has a slot; this many tokens of its prompt were in the prefix cache."""

    cached_tokens: int


@dataclass(frozen=True)
class Prefilled:
    """This many tokens of the prompt are computed or were cached. Only requests that ask for it report it."""

    num_tokens: int


@dataclass(frozen=True)
class Finished:
    """The last output of a request."""

    reason: FinishReason
    error: BaseException | None = None
    stop_string: str | None = None  # that ended the text


Output = Admitted | Prefilled | Piece | Finished


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


class OutputProcessor:
    """Turns the tokens of one request into reasoning and text, and finds the stop strings of the text."""

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str] = (), splitter: ReasoningSplitter | None = None
    ) -> None:
        self.splitter = splitter  # None: all tokens belong to the answer
        self._stream = TextStream(tokenizer)
        self._buffer = StopStringBuffer(stop)

    @property
    def stopped(self) -> bool:
        """Return whether a stop string was found."""
        return self._buffer.matched

    @property
    def stop_string(self) -> str | None:
        """Return the stop string that was found."""
        return self._buffer.match

    def push(self, token: int, *, silent: bool = False) -> SplitText:
        """Return the text that a token completes. A `silent` token, such as end-of-text, has none."""
        splitter = self.splitter
        if splitter is None or silent:
            return SplitText("" if silent else self._buffer.push(self._stream.push(token)))
        text = self._stream.flush() if splitter.is_tag(token) else self._stream.push(token)
        split = splitter.push(token, text)
        return split._replace(text=self._buffer.push(split.text))

    def flush(self, last: SplitText, *, silent: bool) -> SplitText:
        """Return the text of the last token with all that is held back. Of a `silent` one, no bytes are."""
        if self.stopped:
            return last
        rest = SplitText("" if silent else self._stream.flush())
        if self.splitter is not None:
            rest = self.splitter.flush(rest.text)
        return SplitText(last.text + self._buffer.flush(rest.text), last.reasoning + rest.reasoning, last.kind)

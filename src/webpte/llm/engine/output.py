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


class StopStrings:
    """Stop strings, compiled for `StopStringBuffer`. Several buffers may share them.

    This is the automaton of Aho and Corasick. A state is the longest end of the text so far that begins a stop string.
    Compiling takes time in proportion to the length of the strings. A character of the text takes constant time on
    average, however long the strings are and however much text is held back.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self.next_states: list[dict[str, int]] = [{}]  # by state and character, where a stop string continues
        self.depths = [0]  # by state: how many characters of a stop string it stands for
        self.longest = [0]  # by state: the length of the longest stop string that ends here; 0 for none
        for string in strings:
            self._add(string)
        self.fallbacks = [0] * len(self.depths)  # by state: the state of the next shorter end of the text
        self._link()

    def _add(self, string: str) -> None:
        state = 0
        for character in string:
            following = self.next_states[state].get(character)
            if following is None:
                following = self.next_states[state][character] = len(self.depths)
                self.next_states.append({})
                self.depths.append(self.depths[state] + 1)
                self.longest.append(0)
            state = following
        self.longest[state] = len(string)

    def _link(self) -> None:
        """Set the fallback of every state, those of shorter ends first."""
        states = deque(self.next_states[0].values())
        while states:
            state = states.popleft()
            self.longest[state] = self.longest[state] or self.longest[self.fallbacks[state]]
            for character, following in self.next_states[state].items():
                self.fallbacks[following] = self.advance(self.fallbacks[state], character)
                states.append(following)

    def advance(self, state: int, character: str) -> int:
        """Return the state after one more character."""
        while (following := self.next_states[state].get(character)) is None:
            if not state:
                return 0
            state = self.fallbacks[state]
        return following


class StopStringBuffer:
    """Holds back text that may be the beginning of a stop string, and everything from a stop string on."""

    def __init__(self, stop: StopStrings | Sequence[str]) -> None:
        self._strings = stop if isinstance(stop, StopStrings) else StopStrings(stop)
        self._state = 0
        self._pieces: deque[str] = deque()  # the text that is held back, not joined: joining copies it for each token
        self._start = 0  # characters of the first piece that are no longer held back
        self._length = 0
        self.matched = False

    @property
    def held(self) -> str:
        """Return the text that is held back; once a stop string was found, that string and what follows it."""
        return "".join(self._pieces)[self._start :]

    def push(self, text: str) -> str:
        """Add text; return what cannot be part of a stop string."""
        position = self._search(text) if not self.matched else 0
        if text:
            self._pieces.append(text)
            self._length += len(text)
        if position is None:
            return self._take(self._length - self._strings.depths[self._state])
        self.matched = True
        return self._take(position)

    def flush(self, text: str) -> str:
        """Add the last text; return all that is held back, up to a stop string."""
        out = self.push(text)
        if self.matched:
            return out
        self._state = 0
        return out + self._take(self._length)

    def _search(self, text: str) -> int | None:
        """Return where in the held text the first of the stop strings begins that end in `text`, the text after it."""
        strings, state, first = self._strings, self._state, None
        if len(strings.depths) == 1:
            return None
        for end, character in enumerate(text, self._length + 1):
            state = strings.advance(state, character)
            if length := strings.longest[state]:
                first = end - length if first is None else min(first, end - length)
        self._state = state
        return first

    def _take(self, count: int) -> str:
        """Return the first characters that are held back, and drop them."""
        parts: list[str] = []
        self._length -= count
        while count:
            piece = self._pieces[0]
            part = piece[self._start : self._start + count]
            parts.append(part)
            count -= len(part)
            self._start += len(part)
            if self._start == len(piece):
                self._pieces.popleft()
                self._start = 0
        return "".join(parts)


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

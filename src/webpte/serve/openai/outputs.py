"""The events of a stream as what an endpoint tells its client: text, calls of tools, an end."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ...llm.engine.output import StopStringBuffer
from ...llm.tokenizer import TextStream
from ...llm.tools import ToolCall, ToolFormat, parse_tool_calls
from ..backend import Begun, Event, Finished, Stream, Usage
from ..messages import Piece
from ..metrics import Metrics
from ..words import Words

Finish = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class TextDelta:
    """Text, which may be empty, and the token that completed it."""

    text: str
    piece: Piece | None = None


@dataclass(frozen=True)
class ToolCallDelta:
    """A whole call of a tool."""

    number: int
    id: str
    name: str
    arguments: str  # JSON


@dataclass(frozen=True)
class FinishEvent:
    """The last one. `cut` says what has ended it before its time: a deadline, or the end of the server."""

    finish: Finish
    usage: Usage
    cut: str | None = None


Output = TextDelta | ToolCallDelta | FinishEvent


class InstrumentedStream:
    """The deltas of one answer, measured while they are read, and cancelled by `close` if it has not ended.

    With a `format`, calls of tools that are written so are taken out of the text, and `stop` ends the text outside of
    them. Otherwise the worker has looked for stop strings already.
    """

    def __init__(
        self,
        prompt: tuple[int, ...],
        stream: Stream,
        words: Words,
        metrics: Metrics,
        log: dict[str, Any],
        format: ToolFormat | None = None,
        stop: tuple[str, ...] = (),
    ) -> None:
        self.prompt = prompt
        self._stream = stream
        self._events = aiter(stream)
        self._words = words
        self._metrics = metrics
        self._log = log
        self._reader = Reader(words, format, stop) if format is not None else None
        self._began = self._latest = time.perf_counter()
        self._over = False
        self._first: Event | None = None  # which `begun` has read

    async def begun(self) -> None:
        """Wait for a slot. A failure before that is raised, while the request can still be refused by a status."""
        self._first = await self._next()

    async def _next(self) -> Event:
        event = await anext(self._events)
        self._note(event)
        return event

    async def __aiter__(self) -> AsyncIterator[Output]:
        reader = self._reader
        while True:  # until Finished, which ends every stream that does not fail
            event, self._first = self._first or await self._next(), None
            if isinstance(event, Finished):
                for output in reader.rest() if reader is not None else ():
                    yield output
                yield _ended(event, reader)
                return
            if not isinstance(event, Piece):
                continue
            if reader is None:
                yield TextDelta(event.text, None if event.token in self._words.stop_tokens else event)
            elif not reader.stopped:
                for output in reader.push(event):
                    yield output
                if reader.stopped:
                    await self._stream.cancel()

    @property
    def usage(self) -> Usage:
        return self._stream.usage

    def _note(self, event: Event) -> None:
        now = time.perf_counter()
        if isinstance(event, Begun):
            self._metrics.queue.observe(now - self._began)
            self._log.setdefault("queue_ms", round(1000 * (now - self._began), 1))
        elif isinstance(event, Finished):
            self._end(event.reason)
        elif self._latest == self._began:
            self._log.setdefault("first_token_ms", round(1000 * (now - self._began), 1))
            self._metrics.first.observe(now - self._began)
            self._latest = now
        else:
            self._metrics.between.observe(now - self._latest)
            self._latest = now

    def _end(self, reason: str) -> None:
        if self._over:
            return
        self._over = True
        self._metrics.finished.labels(reason).inc()
        self._log.setdefault("finish", []).append(reason)
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
            self._log[name] = self._log.get(name, 0) + getattr(self.usage, name)

    async def close(self) -> None:
        """Cancel the rest. The usage is recorded all the same."""
        if not self._over:
            await self._stream.cancel()
            self._end("cancelled")


def _ended(event: Finished, reader: Reader | None) -> FinishEvent:
    if reader is not None and reader.stopped:
        return FinishEvent("stop", event.usage)
    if event.reason in ("cancelled", "deadline"):
        return FinishEvent("length", event.usage, event.reason)
    if reader is not None and reader.calls and event.reason == "stop":
        return FinishEvent("tool_calls", event.usage)
    return FinishEvent("stop" if event.reason == "stop" else "length", event.usage)


class Reader:
    """Tells text from calls, token by token. A call is given when it is whole; half of one is dropped at the end."""

    def __init__(self, words: Words, format: ToolFormat, stop: tuple[str, ...]) -> None:
        self._words = words
        self._format = format
        self._text = TextStream(words.tokenizer, specials=True)
        self._stop = stop
        self._hold = StopStringBuffer((format.begin, *stop))
        self._inside: str | None = None  # what stands behind `begin` so far
        self._first = True  # nothing but white space was said
        self.calls = 0
        self.stopped = False

    def push(self, piece: Piece) -> Iterator[TextDelta | ToolCallDelta]:
        if piece.token in self._words.stop_tokens:
            return
        given = list(self._read(self._text.push(piece.token)))
        yield TextDelta("".join(output.text for output in given if isinstance(output, TextDelta)), piece)
        yield from (output for output in given if isinstance(output, ToolCallDelta))

    def rest(self) -> Iterator[TextDelta | ToolCallDelta]:
        """All that is left when the answer has ended."""
        if self.stopped:
            return
        yield from self._read(self._text.flush())
        if self._inside is None:
            yield TextDelta(self._hold.flush(""))
        elif not self._format.end:
            yield from self._block(self._inside, whole=False)

    def _read(self, text: str) -> Iterator[TextDelta | ToolCallDelta]:
        format = self._format
        while text:
            if self._inside is None:
                said, text = self._outside(text)
                if said:
                    yield TextDelta(said)
                continue
            self._inside += text
            text = ""
            if format.end and format.end in self._inside:
                inside, _, text = self._inside.partition(format.end)
                self._inside, self._hold = None, StopStringBuffer((format.begin, *self._stop))
                yield from self._block(inside, whole=True)

    def _outside(self, text: str) -> tuple[str, str]:
        """What is said before a call or a stop, and what of the text is behind `begin`."""
        if self._first and self._format.bare and text.lstrip().startswith(("{", "[")):
            self._inside = ""
            return "", text
        self._first = self._first and not text.strip()
        said = self._hold.push(text)
        if not self._hold.found:
            return said, ""
        behind = self._hold.held
        if behind.startswith(self._format.begin):
            self._inside = ""
            return said, behind.removeprefix(self._format.begin)
        self.stopped = True
        return said, ""

    def _block(self, inside: str, whole: bool) -> Iterator[TextDelta | ToolCallDelta]:
        format = self._format
        written = inside if format.bare and not whole and inside.lstrip()[:1] in ("{", "[") else format.begin + inside
        found = parse_tool_calls(written + (format.end if whole else ""), format)
        if not found.calls and whole:
            yield TextDelta(found.text)
        for call in found.calls:
            yield self._called(call)

    def _called(self, call: ToolCall) -> ToolCallDelta:
        number = self.calls
        self.calls += 1
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        return ToolCallDelta(number, f"call_{secrets.token_hex(12)}", call.name, arguments)

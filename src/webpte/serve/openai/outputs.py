"""The events of a stream as what an endpoint tells its client: text, calls of tools, an end."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

from ...llm.holding import Holder
from ...llm.tokenizer import TextStream
from ...llm.tools import ToolCall, ToolFormat, parse_tool_calls
from ..backend import Begun, Finished, Stream, Usage
from ..messages import Piece
from ..words import Words

Finish = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class Said:
    """Text, which may be empty, and the token that completed it."""

    text: str
    piece: Piece | None = None


@dataclass(frozen=True)
class Called:
    """A whole call of a tool."""

    number: int
    id: str
    name: str
    arguments: str  # JSON


@dataclass(frozen=True)
class Ended:
    """The last one. `cut` says what has ended it before its time: a deadline, or the end of the server."""

    finish: Finish
    usage: Usage
    cut: str | None = None


Output = Said | Called | Ended


async def outputs(
    stream: Stream, words: Words, format: ToolFormat | None = None, stop: tuple[str, ...] = ()
) -> AsyncIterator[Output]:
    """What a stream says. With a `format`, calls that are written so are taken out of the text, and `stop` ends the
    text outside of them; else the backend has looked for stops already."""
    reader = Reader(words, format, stop) if format is not None else None
    async for event in stream:
        if isinstance(event, Begun):
            continue
        if isinstance(event, Finished):
            for output in reader.rest() if reader is not None else ():
                yield output
            yield _ended(event, reader)
            return
        if reader is None:
            yield Said(event.text, None if event.token in words.stop_tokens else event)
        elif not reader.stopped:
            for output in reader.push(event):
                yield output
            if reader.stopped:
                await stream.cancel()


def _ended(event: Finished, reader: Reader | None) -> Ended:
    if reader is not None and reader.stopped:
        return Ended("stop", event.usage)
    if event.reason in ("cancelled", "deadline"):
        return Ended("length", event.usage, event.reason)
    if reader is not None and reader.calls and event.reason == "stop":
        return Ended("tool_calls", event.usage)
    return Ended("stop" if event.reason == "stop" else "length", event.usage)


class Reader:
    """Tells text from calls, token by token. A call is given when it is whole; half of one is dropped at the end."""

    def __init__(self, words: Words, format: ToolFormat, stop: tuple[str, ...]) -> None:
        self._words = words
        self._format = format
        self._text = TextStream(words.tokenizer, specials=True)
        self._stop = stop
        self._hold = Holder((format.begin, *stop))
        self._inside: str | None = None  # what stands behind `begin` so far
        self._first = True  # nothing but white space was said
        self.calls = 0
        self.stopped = False

    def push(self, piece: Piece) -> Iterator[Said | Called]:
        if piece.token in self._words.stop_tokens:
            return
        given = list(self._read(self._text.push(piece.token)))
        yield Said("".join(output.text for output in given if isinstance(output, Said)), piece)
        yield from (output for output in given if isinstance(output, Called))

    def rest(self) -> Iterator[Said | Called]:
        """All that is left when the answer has ended."""
        if self.stopped:
            return
        yield from self._read(self._text.flush())
        if self._inside is None:
            yield Said(self._hold.rest(""))
        elif not self._format.end:
            yield from self._block(self._inside, whole=False)

    def _read(self, text: str) -> Iterator[Said | Called]:
        format = self._format
        while text:
            if self._inside is None:
                said, text = self._outside(text)
                if said:
                    yield Said(said)
                continue
            self._inside += text
            text = ""
            if format.end and format.end in self._inside:
                inside, _, text = self._inside.partition(format.end)
                self._inside, self._hold = None, Holder((format.begin, *self._stop))
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

    def _block(self, inside: str, whole: bool) -> Iterator[Said | Called]:
        format = self._format
        written = inside if format.bare and not whole and inside.lstrip()[:1] in ("{", "[") else format.begin + inside
        found = parse_tool_calls(written + (format.end if whole else ""), format)
        if not found.calls and whole:
            yield Said(found.text)
        for call in found.calls:
            yield self._called(call)

    def _called(self, call: ToolCall) -> Called:
        number = self.calls
        self.calls += 1
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        return Called(number, f"call_{secrets.token_hex(12)}", call.name, arguments)

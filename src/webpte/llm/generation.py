"""One answer: a stream of pieces, with usage and timings whatever ends it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .cancel import CancelToken
from .tokenizer import TextStream

if TYPE_CHECKING:
    from .model import LLM, Chosen

LATENCY = 0.05  # seconds between two bursts of text that a reader takes for a stream
MOST_PER_SUBMIT = 8
Finish = Literal["stop", "length", "context", "cancelled"]


@dataclass(frozen=True)
class Settings:
    """How tokens are chosen and when to end."""

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: Sequence[str] = ()
    logprobs: bool = False
    tokens_per_submit: int | None = None  # as many as take no longer than LATENCY, unless given


@dataclass(frozen=True)
class Piece:
    """Text that became ready with a token. Empty while a character or a possible stop string is unfinished."""

    text: str
    token: int
    logprob: float | None = None


@dataclass
class Usage:
    """What a generation cost so far; final once the stream has ended."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, already in the cache
    completion_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    finish_reason: Finish | None = None

    @property
    def prefill_rate(self) -> float:
        computed = self.prompt_tokens - self.reused_tokens
        return computed / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        steps = self.completion_tokens - 1  # the first token comes out of prefill
        return steps / self.decode_seconds if steps > 0 and self.decode_seconds else 0.0


@dataclass
class Generation:
    """Iterate for pieces; `text` and `usage` tell what has come so far."""

    llm: LLM
    prompt: Sequence[int]
    settings: Settings
    cancel: CancelToken
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)

    def __iter__(self) -> Iterator[Piece]:
        stream = TextStream(self.llm.tokenizer)
        hold = _Holder(self.settings.stop)
        try:
            yield from self._pieces(stream, hold)
        except KeyboardInterrupt:
            self.usage.finish_reason = "cancelled"
            raise
        finally:
            if self.usage.finish_reason is None:
                self.usage.finish_reason = "cancelled"  # the reader left

    def _pieces(self, stream: TextStream, hold: _Holder) -> Iterator[Piece]:
        usage, settings = self.usage, self.settings
        usage.prompt_tokens = len(self.prompt)
        started = time.perf_counter()
        usage.reused_tokens, chosen = self.llm.prefill(self.prompt, settings, self.cancel)
        usage.prefill_seconds = time.perf_counter() - started
        yield from self._decode([chosen] if chosen is not None else [], stream, hold)

    def _decode(self, coming: list[Chosen], stream: TextStream, hold: _Holder) -> Iterator[Piece]:
        """Piece after piece, beginning with the tokens that are there already."""
        usage, settings = self.usage, self.settings
        pace = _Pace(settings.tokens_per_submit)
        try:
            while coming:
                token, logprob = coming.pop(0)
                text, ended = self._take(token, stream, hold, len(coming))
                yield Piece(text, token, logprob if settings.logprobs else None)
                if ended is not None:
                    usage.finish_reason = ended
                    return
                if not coming:
                    count = min(pace.count, settings.max_new_tokens - len(self.tokens))
                    started = time.perf_counter()
                    coming = self.llm.decode(token, settings, len(self.tokens), count)
                    pace.note(len(coming), time.perf_counter() - started)
                    usage.decode_seconds += time.perf_counter() - started
            usage.finish_reason = "cancelled"
        finally:
            self.llm.rewind(min(len(coming), self.llm.position))  # tokens computed ahead that nobody will see

    def _take(self, token: int, stream: TextStream, hold: _Holder, ahead: int) -> tuple[str, Finish | None]:
        """Count a token in; the text it completes, and what it ends the answer for."""
        self.usage.completion_tokens += 1
        self.tokens.append(token)
        ended = self._end(token, ahead)
        text = "" if ended == "stop" else hold.push(stream.push(token))
        if hold.found:
            ended = "stop"
        if ended is not None:
            text += "" if hold.found else hold.rest(stream.flush() if ended != "stop" else "")
        self.text += text
        return text, ended

    def _end(self, token: int, ahead: int) -> Finish | None:
        if token in self.llm.stop_tokens:
            return "stop"
        if self.cancel.cancelled:
            return "cancelled"
        if len(self.tokens) >= self.settings.max_new_tokens:
            return "length"
        if self.llm.room + ahead == 0:
            return "context"
        return None


class _Pace:
    """How many tokens to compute per submit: several where a step is short, one where a reader would notice."""

    def __init__(self, fixed: int | None) -> None:
        self._fixed = fixed
        self.count = fixed or 1

    def note(self, tokens: int, seconds: float) -> None:
        """Learn from what the last submit took."""
        if self._fixed is None:
            fitting = int(LATENCY * tokens / seconds) if seconds > 0 else MOST_PER_SUBMIT
            self.count = max(1, min(fitting, 2 * self.count, MOST_PER_SUBMIT))


class _Holder:
    """Keeps back text that may turn out to be the beginning of a stop string."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = [s for s in stop if s]
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        self._held += text
        positions = [at for s in self._stop if (at := self._held.find(s)) >= 0]
        if positions:
            self.found = True
            return self._take(min(positions))
        return self._take(len(self._held) - self._partial())

    def rest(self, text: str) -> str:
        """All that is held, at the end."""
        out = self.push(text)
        return out if self.found else out + self._take(len(self._held))

    def _partial(self) -> int:
        """The length of the longest tail that begins a stop string."""
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

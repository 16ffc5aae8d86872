"""One answer: a stream of pieces, with usage and timings whatever ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .cancel import CancelToken
from .settings import Settings
from .tokenizer import TextStream

if TYPE_CHECKING:
    from .choice import Chosen
    from .model import LLM

LATENCY = 0.05  # seconds between two bursts of text that a reader takes for a stream
MOST_PER_SUBMIT = 8
Finish = Literal["stop", "length", "context", "cancelled"]


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


class Generation:
    """One answer. Iterate for pieces; `text`, `tokens` and `usage` tell what has come so far.

    The work is done while you iterate. Iterating again goes on where it was left; after the end there is nothing more.
    A generation holds the model's cache from its first piece on, until another one or the model's own methods take it:
    when it needs the model next, it raises StaleGenerationError.
    """

    text: str
    tokens: list[int]
    usage: Usage

    def __init__(self, llm: LLM, prompt: Sequence[int], settings: Settings, cancel: CancelToken) -> None:
        self.llm = llm
        self.prompt = prompt
        self.settings = settings
        self.cancel = cancel
        self.text = ""
        self.tokens = []
        self.usage = Usage(prompt_tokens=len(prompt))
        self._holder = object()  # not the generation: the model must not keep alive what its reader has dropped
        self._coming: list[Chosen] = []  # computed, and not yet given out
        self._stream = TextStream(llm.tokenizer)
        self._hold = _Holder(settings.stop)
        self._pace = _Pace(settings.tokens_per_submit)
        self._started = False
        self._turn = threading.Lock()  # a piece goes to one reader

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        self.llm.check_process()
        with self._turn:
            if self.usage.finish_reason is not None:
                raise StopIteration
            try:
                piece = self._next()
            except BaseException:
                self._finish("cancelled")  # what a step has left behind is unknown: no going on
                raise
            if piece is None:
                self._finish("cancelled")
                raise StopIteration
            return piece

    def close(self) -> None:
        """Give up the rest of the answer."""
        with self._turn:
            self._finish("cancelled")

    def _finish(self, reason: Finish) -> None:
        if self.usage.finish_reason is None:
            self.usage.finish_reason = reason
            self._coming.clear()

    def _next(self) -> Piece | None:
        """The next piece; None if it was cancelled before there is one."""
        if not self._coming:
            self._compute()
        if not self._coming:
            return None
        chosen = self._coming.pop(0)
        self.llm.keep_back(self._holder, len(self._coming))
        text, ended = self._take(chosen.token)
        if ended is not None:
            self._finish(ended)
        return Piece(text, chosen.token, chosen.logprob if self.settings.logprobs else None)

    def _compute(self) -> None:
        """Have the model compute the next tokens."""
        usage, settings = self.usage, self.settings
        started = time.perf_counter()
        if not self._started:
            self._started = True
            usage.reused_tokens, chosen = self.llm.prefill(self._holder, self.prompt, settings, self.cancel)
            usage.prefill_seconds = time.perf_counter() - started
            self._coming = [chosen] if chosen is not None else []
            return
        count = min(self._pace.count, settings.max_new_tokens - len(self.tokens))
        self._coming = self.llm.decode(self._holder, self.tokens[-1], settings, len(self.tokens), count)
        seconds = time.perf_counter() - started
        self._pace.note(len(self._coming), seconds)
        usage.decode_seconds += seconds

    def _take(self, token: int) -> tuple[str, Finish | None]:
        """Count a token in; the text it completes, and what it ends the answer for."""
        stream, hold = self._stream, self._hold
        self.usage.completion_tokens += 1
        self.tokens.append(token)
        ended = self._end(token)
        text = "" if ended == "stop" else hold.push(stream.push(token))
        if hold.found:
            ended = "stop"
        if ended is not None:
            text += "" if hold.found else hold.rest(stream.flush() if ended != "stop" else "")
        self.text += text
        return text, ended

    def _end(self, token: int) -> Finish | None:
        if token in self.llm.stop_tokens:
            return "stop"
        if self.cancel.cancelled:
            return "cancelled"
        if len(self.tokens) >= self.settings.max_new_tokens:
            return "length"
        if len(self.prompt) + len(self.tokens) > self.llm.capacity:  # the last token is not in the cache yet
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
        self._stop = stop
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

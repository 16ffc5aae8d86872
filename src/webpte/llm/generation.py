"""One answer: a stream of pieces, with usage and timings whatever ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ClosedError, Error, InputError
from ..progress import CancelToken
from ..text import table
from .choice import Chosen
from .errors import StaleGenerationError
from .holding import Holder
from .job import Finish, Job, Limits
from .settings import Settings
from .shown import answer_line
from .tokenizer import TextStream
from .tools import ToolCall, parse_tool_calls

if TYPE_CHECKING:
    from .sequence import Sequence as Conversation


@dataclass(frozen=True)
class Piece:
    """Text that became ready with a token. Empty while a character or a possible stop string is unfinished."""

    text: str
    token: int
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()  # the likeliest tokens, as many as were asked for


@dataclass(repr=False)
class Usage:
    """What a generation cost so far; final once the stream has ended."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, already in the cache
    completion_tokens: int = 0
    prefill_seconds: float = 0.0  # of the ticks that took part of the prompt, up to the first token
    decode_seconds: float = 0.0  # of those behind it; others may have been computed in the same
    finish_reason: Finish | None = None

    @property
    def prefill_rate(self) -> float:
        computed = self.prompt_tokens - self.reused_tokens
        return computed / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        steps = self.completion_tokens - 1  # the first token comes out of prefill
        return steps / self.decode_seconds if steps > 0 and self.decode_seconds else 0.0

    def __repr__(self) -> str:
        return f"Usage({', '.join(f'{name}={value}' for name, value in self._rows().items())})"

    def _repr_html_(self) -> str:
        return table("Usage", self._rows())

    def _rows(self) -> dict[str, str]:
        return {
            "prompt_tokens": str(self.prompt_tokens),
            "reused_tokens": str(self.reused_tokens),
            "completion_tokens": str(self.completion_tokens),
            "prefill_seconds": f"{self.prefill_seconds:.3f}",
            "decode_seconds": f"{self.decode_seconds:.3f}",
            "prefill_rate": f"{self.prefill_rate:.1f}",
            "decode_rate": f"{self.decode_rate:.1f}",
            "finish_reason": repr(self.finish_reason),
        }


class Generation:
    """One answer, computed once. Iterate for pieces, with `for` or `async for`, or `read()` all of it.

    The work is done while you iterate, or while others do: then a few tokens are computed ahead. Iterating again goes
    on where it was left; after the end there is nothing more. `text`, `tokens` and `usage` tell what has come so far;
    if nobody has begun to iterate, they compute the whole answer first. An answer holds its sequence from its first
    piece on, until another one in the same sequence, or the sequence's own methods, take it: then it raises
    StaleGenerationError.
    """

    error: Error | None
    """What has ended it, where that was an error."""

    def __init__(
        self,
        sequence: Conversation,
        prompt: Sequence[int],
        settings: Settings,
        cancel: CancelToken | None = None,
        given: Sequence[int] = (),
    ) -> None:
        """`given` are tokens that it has begun with elsewhere: they count, and their text is said already."""
        self.llm = sequence.llm
        self.sequence = sequence
        self.prompt = prompt
        self.settings = settings
        self.cancel = cancel or CancelToken()
        self.error = None
        self._tokens = list(given)
        self._usage = Usage(prompt_tokens=len(prompt), completion_tokens=len(given))
        self._begun = False
        self._job: Job | None = None
        self._stream = TextStream(sequence.llm.tokenizer)
        self._hold = Holder(settings.stop)
        self._given_up = False
        self._turn = threading.Lock()  # a piece goes to one reader
        self._seen = 0  # tokens that the sequence knows were read
        self._text = "".join(self._hold.push(self._stream.push(token)) for token in given)
        if self._hold.found:
            raise InputError(
                f"an answer of {len(given)} tokens is to go on; they hold a stop string, which ended it",
                code="already_ended",
            )

    @classmethod
    def refused(cls, sequence: Conversation, error: Error) -> Generation:
        """In the place of an answer to a prompt that was refused."""
        answer = cls(sequence, (), Settings())
        answer.error = error
        answer._begun = True
        answer._usage.finish_reason = "cancelled"
        return answer

    # -- what it says ----------------------------------------------------------------------------------------------

    def read(self) -> str:
        """The whole text, when it is finished."""
        for _ in self:
            pass
        return self._text

    @property
    def text(self) -> str:
        self._finish_unbegun()
        return self._text

    @property
    def tokens(self) -> list[int]:
        self._finish_unbegun()
        return self._tokens

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of tools that it asks for, as the model's `tool_format` writes them."""
        format = self.llm.tool_format
        if format is None:
            return ()
        said = [token for token in self.tokens if token not in self.llm.stop_tokens]
        return parse_tool_calls(self.llm.tokenizer.decode(said, specials=True), format).calls

    @property
    def usage(self) -> Usage:
        self._finish_unbegun()
        return self._usage

    @property
    def over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._usage.finish_reason is not None

    def _finish_unbegun(self) -> None:
        if not self._begun:
            self.read()

    def __repr__(self) -> str:
        return answer_line(self._usage, self._begun, self._text)

    def _repr_html_(self) -> str:
        rows: dict[str, str] = {"state": self._usage.finish_reason or ("being read" if self._begun else "not begun")}
        rows |= {"prompt": f"{len(self.prompt):,} tokens", "answer": f"{len(self._tokens):,} tokens"}
        return table("Generation", rows | {"text": self._text})

    # -- piece by piece --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Piece]:
        self._begun = True
        return self

    def __next__(self) -> Piece:
        self.llm.check_process()
        self._begun = True
        with self._turn:
            if self.over:
                raise StopIteration
            try:
                piece = self._next()
            except BaseException as error:
                self.error = error if isinstance(error, Error) else None
                self._finish("cancelled")
                raise
            if piece is None:
                raise StopIteration
            return piece

    def __aiter__(self) -> AsyncIterator[Piece]:
        self._begun = True
        return self

    async def __anext__(self) -> Piece:
        """In a thread beside the event loop. A task that is cancelled gives the rest of the answer up."""
        self._begun = True
        if self.over:
            raise StopAsyncIteration
        self.start()  # at once: the worker may be busy with the others
        try:
            coming = asyncio.get_running_loop().run_in_executor(self.llm.worker, next, self, None)
        except RuntimeError as error:  # no more work is taken
            raise ClosedError("the language model was closed; load it again") from error
        try:
            piece = await coming
        except asyncio.CancelledError:
            self.give_up()
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    def start(self) -> Job:
        """Get in line for a slot, as the first piece does that is asked for."""
        if self._job is None:
            llm = self.llm
            most = self.settings.max_new_tokens
            limits = Limits(llm.stop_tokens, most, llm.capacity, llm.engine.runner.most_edits)
            steering = llm.steering(self.settings, self.prompt)
            given = tuple(self._tokens)
            job = Job(
                self.sequence, self.prompt, self.settings, limits, cancel=self.cancel, steering=steering, given=given
            )
            job.read_by(self)
            llm.engine.start(job)
            self._job = job
        return self._job

    @property
    def ready(self) -> bool:
        """Whether the next piece, or the end, is there without waiting."""
        if self.over:
            return True
        return self._job is not None and (bool(self._job.coming) or self._job.over)

    def give_up(self) -> None:
        """As `close`, without waiting for a thread that is reading: it ends with the pass that is being computed."""
        self._given_up = True
        if self._job is not None:
            self._job.give_up()

    def close(self) -> None:
        """Give up the rest of the answer."""
        with self._turn:
            self._begun = True
            self._finish("cancelled")

    async def aclose(self) -> None:
        """As `close`, for `contextlib.aclosing`."""
        self.give_up()

    def _finish(self, reason: Finish) -> None:
        if not self.over:
            self._usage.finish_reason = reason
            if self._job is not None:
                self._job.give_up()

    @property
    def _stopped(self) -> bool:
        return self._given_up or self.cancel.cancelled

    def _next(self) -> Piece | None:
        """The next piece; None if it was cancelled before there is one."""
        if self._stopped:
            self._finish("cancelled")
            return None
        job = self.start()
        if not job.coming:
            if not self.sequence.held_by(job):
                raise StaleGenerationError(
                    "something else has used this answer's sequence since its last token: another generation, or "
                    "reset, rewind, logits or restore. Finish one answer before the next, or give each a sequence of "
                    "its own: fork() makes one."
                )
            self.llm.engine.wait([job])
        usage = self._usage
        usage.reused_tokens = job.reused or 0
        usage.prefill_seconds, usage.decode_seconds = job.prefill_seconds, job.decode_seconds
        if job.error is not None and not job.coming:
            raise job.error
        if self._stopped or not job.coming:
            self._finish("cancelled")
            return None
        return self._piece(job, *job.coming.popleft())

    def _piece(self, job: Job, chosen: Chosen, ended: Finish | None) -> Piece:
        """Count a token in, with the text it completes."""
        for token in self._tokens[self._seen :]:
            self.sequence.note_seen(job, token)
        self._seen = len(self._tokens)
        stream, hold = self._stream, self._hold
        self._usage.completion_tokens += 1
        self._tokens.append(chosen.token)
        silent = job.is_end(chosen.token)
        text = "" if silent else hold.push(stream.push(chosen.token))
        if hold.found:
            ended = "stop"
        if ended is not None:
            text += "" if hold.found else hold.rest("" if silent else stream.flush())
            self._finish(ended)
        self._text += text
        wanted = self.settings
        tops = chosen.tops[: wanted.top_logprobs]
        return Piece(text, chosen.token, chosen.logprob if wanted.logprobs else None, tops)

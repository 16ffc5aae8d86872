"""Answers: a handle over the outputs of one request."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ..errors import Error, InputError, StaleGenerationError
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from ..runtime.checks import check_bool, described
from ..text import table
from .engine.core import EngineCore
from .engine.embeddings import Segment
from .engine.output import Admitted, Finished, FinishReason, OutputQueue, OutputSink, Piece, Prefilled
from .engine.request import MAX_UNREAD_OUTPUTS, SamplingRequest, SequenceState
from .prompts import Messages, Tools
from .settings import SamplingParams
from .text_model import TextModel
from .tool_shapes import ToolCall

MAX_REPR_CHARACTERS = 60  # of an answer's text


@dataclass(repr=False)
class Usage:
    """What an answer has cost so far; final once it has ended."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, found in the prefix cache
    completion_tokens: int = 0
    prefill_seconds: float = 0.0  # of the steps up to the first token
    decode_seconds: float = 0.0  # of the steps after it; they may have served other requests, too
    finish_reason: FinishReason | None = None
    reasoning_tokens: int = 0  # of the completion tokens: the thought before the answer, with its tags

    @property
    def prefill_rate(self) -> float:
        computed = self.prompt_tokens - self.reused_tokens
        return computed / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        steps = self.completion_tokens - 1  # the first token comes from prefill
        return steps / self.decode_seconds if steps > 0 and self.decode_seconds else 0.0

    def __repr__(self) -> str:
        return f"Usage({', '.join(f'{name}={value}' for name, value in self._rows().items())})"

    def _repr_html_(self) -> str:
        return table("Usage", self._rows())

    def _rows(self) -> dict[str, str]:
        thought = {"reasoning_tokens": str(self.reasoning_tokens)} if self.reasoning_tokens else {}
        return {
            "prompt_tokens": str(self.prompt_tokens),
            "reused_tokens": str(self.reused_tokens),
            "completion_tokens": str(self.completion_tokens),
            **thought,
            "prefill_seconds": f"{self.prefill_seconds:.3f}",
            "decode_seconds": f"{self.decode_seconds:.3f}",
            "prefill_rate": f"{self.prefill_rate:.1f}",
            "decode_rate": f"{self.decode_rate:.1f}",
            "finish_reason": repr(self.finish_reason),
        }


class Generation:
    """One answer. Iterate over its pieces with `for` or `async for`, or wait for all of it with `result()`.

    The first piece that is asked for submits the request. From then on the engine computes it, whether or not anyone
    reads; if many outputs are unread and no other request waits, it pauses. `text`, `tokens` and `usage` show what was
    read so far and never compute. Iterating again continues where it was left. A dropped handle cancels its request.

    An answer owns its sequence until another answer in the same sequence, or a method of the sequence, takes it. Then
    reading on raises StaleGenerationError.
    """

    error: Error | None
    """The error that ended the answer, if one did."""

    def __init__(
        self,
        engine: EngineCore,
        request: SamplingRequest | None,
        outputs: OutputQueue,
        parse_tool_calls: Callable[[Sequence[int]], tuple[ToolCall, ...]],
        cancel: CancelToken | None = None,
    ) -> None:
        """Create an answer. Without a request, it has ended: see `refused`."""
        self._cancel = cancel or CancelToken()
        self.error = None
        self._engine = engine
        self._request = request
        self._outputs = outputs
        self._parse_tool_calls = parse_tool_calls
        self._progress = ignore
        self._submitted = False
        self._lock = threading.Lock()  # never held while waiting
        self._unseen: int | None = None  # the last token that was read; the sequence gets it with the next one
        self._tokens = list(request.initial_tokens) if request is not None else []
        self._text = request.initial_text if request is not None else ""
        self._reasoning = request.initial_reasoning if request is not None else ""
        self._usage = Usage(
            prompt_tokens=request.num_prompt_tokens if request is not None else 0,
            completion_tokens=len(self._tokens),
            reasoning_tokens=request.initial_reasoning_tokens if request is not None else 0,
        )

    def __del__(self) -> None:
        # Only flags and a queue that is safe here: a finalizer may run anywhere, also in a fork.
        if getattr(self, "_submitted", False) and not self.finished and self._engine.process.is_current:
            self._abort()

    @property
    def prompt(self) -> tuple[int, ...]:
        """Return the tokens of the prompt."""
        request = self._request
        return tuple(request.tokens[: request.num_prompt_tokens]) if request is not None else ()

    # -- what was read -------------------------------------------------------------------------------------------------

    def result(self) -> str:
        """Wait for the end and return the whole text, without the reasoning before it."""
        try:
            for _ in self:
                pass
        except BaseException as error:  # an interrupt may come between two pieces
            self._end("cancelled", error)
            raise
        return self._text

    def __str__(self) -> str:
        """Wait for the end and return the whole text, as `result` does."""
        return self.result()

    @property
    def text(self) -> str:
        """Return the text that was read so far: nothing before the first piece. `result()` waits for all of it."""
        return self._text

    @property
    def reasoning(self) -> str:
        """Return the thought before the answer; empty if the model wrote none."""
        return self._reasoning

    @property
    def tokens(self) -> list[int]:
        return self._tokens

    @property
    def usage(self) -> Usage:
        return self._usage

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Return the tool calls in the answer, parsed by the model's `tool_format` and the schemas of the tools."""
        return self._parse_tool_calls(self._tokens[self._usage.reasoning_tokens :])

    @property
    def finished(self) -> bool:
        """Return whether the answer was read to its end, cancelled, or ended by an error."""
        return self._usage.finish_reason is not None

    @property
    def ready(self) -> bool:
        """Return whether the next piece, or the end, can be read without waiting."""
        with self._lock:
            while isinstance(self._outputs.peek(), Admitted | Prefilled):
                self._outputs.take()
            return self.finished or bool(self._outputs)

    def __repr__(self) -> str:
        usage, text = self._usage, self._text
        if not self._submitted and not self.finished:
            return f"Generation(not started, {usage.prompt_tokens} prompt tokens)"
        shown = text if len(text) <= MAX_REPR_CHARACTERS else text[: MAX_REPR_CHARACTERS - 1] + "…"
        counts = f"{usage.prompt_tokens} prompt tokens, {usage.completion_tokens} generated"
        return f"Generation({self._state}, {counts}, {shown!r})"

    def _repr_html_(self) -> str:
        rows = {"state": self._state, "prompt": f"{self._usage.prompt_tokens:,} tokens"}
        return table("Generation", rows | {"answer": f"{len(self._tokens):,} tokens", "text": self._text})

    @property
    def _state(self) -> str:
        return self._usage.finish_reason or ("in progress" if self._submitted else "not started")

    # -- reading -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Submit the request now, instead of with the first piece."""
        with self._lock:
            if not self._submitted and self._request is not None:
                self._engine.submit(self._request)
                self._submitted = True

    def report_prompt(self, progress: OnProgress) -> None:
        """Report how many tokens of the prompt are computed, in stage "prompt". Call it before reading.

        `progress` is called by the reader of the answer, while it waits for the first piece.
        """
        if self._request is not None:
            self._request.reports_prefill = True
        self._progress = cancellable(progress, None)

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        self._engine.check_process()
        while True:
            try:
                piece = self._next_piece()
                if piece is None and not self.finished:
                    self._engine.wait(self._outputs)
                    continue
            except BaseException as error:
                self._end("cancelled", error)
                raise
            if piece is None:
                raise StopIteration
            return piece

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        """Return the next piece. If the task is cancelled, the request is cancelled."""
        self._engine.check_process()
        while True:
            try:
                piece = self._next_piece()
                if piece is None and not self.finished:
                    if self._engine.background:
                        await self._outputs.arrive()
                    else:
                        self._engine.wait(self._outputs)
                    continue
            except BaseException as error:
                self._end("cancelled", error)
                raise
            if piece is None:
                raise StopAsyncIteration
            return piece

    def close(self) -> None:
        """Cancel the rest of the answer."""
        self._end("cancelled")

    async def aclose(self) -> None:
        """Close the answer, for `contextlib.aclosing`."""
        self.close()

    def _next_piece(self) -> Piece | None:
        """Return a piece that is there; None if there is none yet, or none will come."""
        if not self.finished and self._cancel.cancelled:
            self._end("cancelled")
        if self.finished:
            return None
        self.start()
        self._check_sequence()
        computed: int | None = None
        with self._lock:
            while (output := self._outputs.take()) is not None:
                if len(self._outputs) == MAX_UNREAD_OUTPUTS - 1:
                    self._engine.wake()  # the engine may have paused the request
                if isinstance(output, Piece):
                    self._append(output)
                    return output
                if isinstance(output, Finished):
                    self._finish(output)
                    return None
                if isinstance(output, Prefilled):
                    computed = output.num_tokens
        if computed is not None:  # outside of the lock: the callback may look at the answer
            self._progress(Progress("prompt", computed, self._usage.prompt_tokens, "tokens"))
        return None

    def _append(self, piece: Piece) -> None:
        request = self._request
        assert request is not None
        if self._unseen is not None:
            request.sequence.note_read(request, self._unseen)
        self._unseen = piece.token
        self._tokens.append(piece.token)
        self._text += piece.text
        self._reasoning += piece.reasoning
        usage = self._usage
        usage.completion_tokens += 1
        if piece.kind == "reasoning":
            usage.reasoning_tokens = usage.completion_tokens
        usage.reused_tokens = request.num_cached_tokens or 0
        usage.prefill_seconds, usage.decode_seconds = request.prefill_seconds, request.decode_seconds
        end = self._outputs.peek()
        if isinstance(end, Finished) and end.reason != "cancelled":
            usage.finish_reason = end.reason  # with the last piece, and not with the next call

    def _finish(self, output: Finished) -> None:
        if output.error is not None:
            raise output.error
        if output.reason == "cancelled":
            self._check_sequence()
        self._usage.finish_reason = output.reason

    def _check_sequence(self) -> None:
        request = self._request
        if request is not None and not self.finished and not request.sequence.is_owned_by(request):
            raise StaleGenerationError(
                "another generation, or reset, rewind, logits or restore, has used the sequence of this answer. "
                "Finish one answer before the next, or give each its own sequence with fork()."
            )

    def _end(self, reason: FinishReason, error: BaseException | None = None) -> None:
        if not self.finished:
            self._usage.finish_reason = reason
            self.error = error if isinstance(error, Error) else None
            self._abort()

    def _abort(self) -> None:
        if self._request is not None:
            self._engine.abort(self._request)


class GenerativeModel(Protocol):
    """What answers need of a language model."""

    engine: EngineCore
    text_model: TextModel

    def request(
        self,
        tokens: Sequence[Segment],
        params: SamplingParams,
        generated: Sequence[int] = (),
        *,
        state: SequenceState | None = None,
        cancel: CancelToken | None = None,
        sink: OutputSink | None = None,
    ) -> SamplingRequest: ...


def create_generation(
    model: GenerativeModel,
    settings: Mapping[str, Any],
    *,
    prompt: str | Messages | None = None,
    text: str | None = None,
    tokens: Sequence[Segment] | None = None,
    tools: Tools | None = None,
    parse_special: bool = False,
    generated: Sequence[int] = (),
    cancel: CancelToken | None = None,
    state: SequenceState | None = None,
    changed: threading.Condition | None = None,
) -> Generation:
    """Check all arguments, which are those of `LLM.generate`, `complete` and `resume`, and return an answer.

    `state` is that of the sequence to continue. `changed` is notified of new outputs; several answers may share it.
    """
    text_model = model.text_model
    params = text_model.sampling_params(settings)
    check_cancel(cancel)
    check_bool(parse_special, "parse_special")
    if sum(each is not None for each in (prompt, text, tokens)) > 1:
        raise InputError(
            argument="prompt, text, tokens", expected="one of them", got="several", code="conflicting_options"
        )
    if tools is not None and (prompt is None or (isinstance(prompt, str) and text_model.template is None)):
        raise InputError(argument="tools", expected="a prompt that the chat template renders", got="another prompt")
    if tokens is None:
        tokens = text_model.tokenize(prompt, text, tools, params, parse_special=parse_special)
    if text is None:
        params = text_model.with_thought(params, tokens)
    cancel = cancel or CancelToken()
    outputs = OutputQueue(changed)
    request = model.request(tokens, params, generated, state=state, cancel=cancel, sink=outputs)
    return Generation(model.engine, request, outputs, partial(text_model.tool_calls, tools), cancel)


def refused_generation(engine: EngineCore, error: Error) -> Generation:
    """Return an answer that an error ended before it began."""
    answer = Generation(engine, None, OutputQueue(), lambda tokens: ())
    answer.error = error
    answer._usage.finish_reason = "cancelled"
    return answer


def wait_for_output(answers: Iterable[Generation]) -> None:
    """Wait a moment for an output of any of several answers of one model, which were created with one `changed`."""
    waiting = list(answers)
    if not any(answer.ready for answer in waiting):
        waiting[0]._engine.wait(*(answer._outputs for answer in waiting))


def check_cancel(cancel: object) -> None:
    """Check that a value is a `CancelToken`, or None."""
    if cancel is not None and not isinstance(cancel, CancelToken):
        raise InputError(argument="cancel", expected="a webpte.CancelToken or None", got=described(cancel))

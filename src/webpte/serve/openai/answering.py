"""From a request that was understood to its answer: whole, or as events while it is computed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from ...llm.tools import ToolFormat
from ..backend import Usage
from ..messages import Piece
from ..sending import Events, Json, run_until_disconnect
from ..service import Service
from ..words import Words
from .outputs import FinishEvent, InstrumentedStream, Output, ToolCallDelta


@dataclass(frozen=True)
class ParsedRequest:
    """A request, in tokens."""

    model: str
    prompts: Sequence[tuple[int, ...]]  # one for each answer
    settings: dict[str, Any]
    stream: bool = False
    usage_at_end: bool = True  # of a stream
    calls: ToolFormat | None = None  # how calls of tools are written, where there may be any
    stop: tuple[str, ...] = ()  # where there may be calls, which may hold anything


@dataclass
class Choice:
    """All that one answer said."""

    text: str = ""
    pieces: list[Piece] = field(default_factory=list)
    calls: list[ToolCallDelta] = field(default_factory=list)
    ended: FinishEvent | None = None

    def add(self, output: Output) -> None:
        if isinstance(output, FinishEvent):
            self.ended = output
        elif isinstance(output, ToolCallDelta):
            self.calls.append(output)
        else:
            self.text += output.text
            if output.piece is not None:
                self.pieces.append(output.piece)


class ResponseFormatter(Protocol):
    """How an endpoint writes its answers."""

    named: bool  # whether events have names

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]: ...

    def opening(self, count: int) -> Iterable[dict[str, Any]]:
        """Events before the first token of any of `count` answers."""

    def events(self, number: int, output: Output) -> Iterable[dict[str, Any]]:
        """Events for what one of them says."""

    def closing(self, usage: dict[str, Any]) -> Iterable[dict[str, Any]]: ...


async def respond(request: Request, service: Service, asked: ParsedRequest, form: ResponseFormatter) -> Response:
    """Return the response. A client that leaves before it is complete frees its slots."""
    log = request.scope["state"]["log"]
    log |= {"model": asked.model, "stream": asked.stream, "choices": len(asked.prompts)}
    streams = await service.open(asked.model, asked.prompts, asked.settings)
    words = service.words(asked.model)
    answers = [
        InstrumentedStream(prompt, stream, words, service.metrics, log, asked.calls, asked.stop)
        for prompt, stream in zip(asked.prompts, streams, strict=True)
    ]
    streaming = False
    try:
        await run_until_disconnect(request, answers[0].begun())  # until then it can be refused by a status
        if asked.stream:
            streaming = True
            seconds = service.config.write_seconds
            events = _events(answers, form, asked.usage_at_end)
            return Events(events, lambda: _close(answers), write_seconds=seconds, named=form.named)
        choices = await run_until_disconnect(request, _gathered(answers))
        return Json(form.whole(choices, usage_of(answers)))
    finally:
        if not streaming:
            await _close(answers)


async def _close(answers: Sequence[InstrumentedStream]) -> None:
    for answer in answers:
        await answer.close()


async def _gathered(answers: Sequence[InstrumentedStream]) -> list[Choice]:
    async def gather(answer: InstrumentedStream) -> Choice:
        choice = Choice()
        async for output in answer:
            choice.add(output)
        return choice

    return list(await asyncio.gather(*map(gather, answers)))


async def _events(
    answers: Sequence[InstrumentedStream], form: ResponseFormatter, usage_at_end: bool
) -> AsyncIterator[dict[str, Any]]:
    for event in form.opening(len(answers)):
        yield event
    if len(answers) == 1:
        async for output in answers[0]:
            for event in form.events(0, output):
                yield event
    else:
        async for number, output in _merged(answers):
            for event in form.events(number, output):
                yield event
    if usage_at_end:
        for event in form.closing(usage_of(answers)):
            yield event


async def _merged(answers: Sequence[InstrumentedStream]) -> AsyncIterator[tuple[int, Output]]:
    """Yield the outputs of several answers as they come, each in its order. The first that fails ends all."""
    coming: asyncio.Queue[tuple[int, Output | BaseException | None]] = asyncio.Queue()

    async def pump(number: int, answer: InstrumentedStream) -> None:
        try:
            async for output in answer:
                coming.put_nowait((number, output))
            coming.put_nowait((number, None))
        except Exception as error:
            coming.put_nowait((number, error))

    pumping = [asyncio.ensure_future(pump(number, answer)) for number, answer in enumerate(answers)]
    try:
        left = len(pumping)
        while left:
            number, output = await coming.get()
            if isinstance(output, BaseException):
                raise output
            if output is None:
                left -= 1
            else:
                yield number, output
    finally:
        for task in pumping:
            task.cancel()
        await asyncio.gather(*pumping, return_exceptions=True)


def usage_of(answers: Sequence[InstrumentedStream]) -> dict[str, Any]:
    """Of all answers together. Those to one prompt count it once, as OpenAI does."""
    parts: list[Usage] = [answer.usage for answer in answers]
    prompts = {answer.prompt: answer.usage for answer in reversed(answers)}
    prompt = sum(part.prompt_tokens for part in prompts.values())
    completion = sum(part.completion_tokens for part in parts)
    cached = sum(part.cached_tokens for part in prompts.values())
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def token_text(words: Words, token: int) -> tuple[str, list[int]]:
    """A token as logprobs name it: what can be read of it, and its bytes."""
    data = words.token_bytes(token)
    return data.decode("utf-8", "replace"), list(data)

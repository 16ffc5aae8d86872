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
from ..sending import Events, Json, unless_left
from ..service import Measured, Service, close
from ..words import Words
from .outputs import Called, Ended, Output, outputs


@dataclass(frozen=True)
class Asked:
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
    calls: list[Called] = field(default_factory=list)
    ended: Ended | None = None

    def add(self, output: Output) -> None:
        if isinstance(output, Ended):
            self.ended = output
        elif isinstance(output, Called):
            self.calls.append(output)
        else:
            self.text += output.text
            if output.piece is not None:
                self.pieces.append(output.piece)


class Form(Protocol):
    """How an endpoint writes its answers."""

    named: bool  # whether events have names

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]: ...

    def opening(self, count: int) -> Iterable[dict[str, Any]]:
        """Events before the first token of any of `count` answers."""

    def events(self, number: int, output: Output) -> Iterable[dict[str, Any]]:
        """Events for what one of them says."""

    def closing(self, usage: dict[str, Any]) -> Iterable[dict[str, Any]]: ...


async def respond(request: Request, service: Service, asked: Asked, form: Form) -> Response:
    """The response; whoever leaves before it is there frees his slots."""
    noted = request.scope["state"]["log"]
    noted |= {"model": asked.model, "stream": asked.stream, "choices": len(asked.prompts)}
    answers = await service.open(asked.model, asked.prompts, asked.settings, noted)
    streaming = False
    try:
        await unless_left(request, answers[0].begun())  # until then it can be refused by a status
        told = [outputs(answer, service.words(asked.model), asked.calls, asked.stop) for answer in answers]
        if asked.stream:
            streaming = True
            seconds = service.config.write_seconds
            events = _events(answers, told, form, asked.usage_at_end)
            return Events(events, lambda: close(answers), write_seconds=seconds, named=form.named)
        choices = await unless_left(request, _gathered(told))
        return Json(form.whole(choices, usage_of(answers)))
    finally:
        if not streaming:
            await close(answers)


async def _gathered(told: Sequence[AsyncIterator[Output]]) -> list[Choice]:
    async def gather(one: AsyncIterator[Output]) -> Choice:
        choice = Choice()
        async for output in one:
            choice.add(output)
        return choice

    return list(await asyncio.gather(*map(gather, told)))


async def _events(
    answers: Sequence[Measured], told: Sequence[AsyncIterator[Output]], form: Form, usage_at_end: bool
) -> AsyncIterator[dict[str, Any]]:
    for event in form.opening(len(told)):
        yield event
    async for number, output in merged(told):
        for event in form.events(number, output):
            yield event
    if usage_at_end:
        for event in form.closing(usage_of(answers)):
            yield event


async def merged(told: Sequence[AsyncIterator[Output]]) -> AsyncIterator[tuple[int, Output]]:
    """What several say, as it comes, each in its order; the first that fails ends all."""
    coming: asyncio.Queue[tuple[int, Output | BaseException | None]] = asyncio.Queue()

    async def pump(number: int, one: AsyncIterator[Output]) -> None:
        try:
            async for output in one:
                coming.put_nowait((number, output))
            coming.put_nowait((number, None))
        except Exception as error:
            coming.put_nowait((number, error))

    pumping = [asyncio.ensure_future(pump(number, one)) for number, one in enumerate(told)]
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


def usage_of(answers: Sequence[Measured]) -> dict[str, Any]:
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

"""`/v1/completions`: texts that are continued as they are."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..failures import Refusal
from ..incoming import read_json
from ..messages import Piece
from ..service import Service
from ..words import Words
from .answering import Choice, ParsedRequest, respond, token_text
from .chat import IGNORED, ending, stream_options
from .fields import MISSING, Fields
from .outputs import FinishEvent, Output, TextDelta
from .sampling import output_tokens, sampling
from .structure import schema_of

REFUSED = {
    "echo": "put the prompt before the answer yourself",
    "suffix": "the model continues texts, and fills no gaps",
}


async def completions(request: Request) -> Response:
    service: Service = request.app.state.service
    body = await read_json(request, service.config)
    asked, form = await asyncio.to_thread(_understand, Fields(body), service)
    return await respond(request, service, asked, form)


def _understand(fields: Fields, service: Service) -> tuple[ParsedRequest, CompletionForm]:
    config = service.config
    model = fields.text("model")
    words = service.words(model)
    given = fields.raw("prompt", MISSING)
    settings = sampling(fields, config)
    settings["max_new_tokens"] = output_tokens(fields, ("max_tokens",), config)
    tops = fields.whole("logprobs", 0, 20, None)
    settings |= {"logprobs": tops is not None, "top_logprobs": tops or 0}
    schema = schema_of(fields.inside("response_format", None), config)
    if schema is not None:
        settings["json_schema"] = schema
    count = fields.whole("n", 1, config.max_choices, 1)
    if fields.whole("best_of", 1, config.max_choices, count) != count:
        raise Refusal(400, "best_of is not served: ask for n and choose", param="best_of", code="unsupported_parameter")
    stream, usage_at_end = stream_options(fields)
    fields.ignore(*IGNORED)
    fields.refuse(REFUSED)
    fields.end()
    prompts = [tokens for tokens in prompts_of(given, words) for _ in range(count)]
    if len(prompts) > config.max_choices:
        raise Refusal(
            400,
            f"{len(prompts)} answers are asked for; {config.max_choices} are the most (max_choices)",
            param="prompt",
        )
    return ParsedRequest(model, prompts, settings, stream, usage_at_end), CompletionForm(model, words, tops)


def prompts_of(given: Any, words: Words) -> list[tuple[int, ...]]:
    """A text, tokens, or a list of either."""
    if isinstance(given, str):
        return [words.encode_text(given)]
    if isinstance(given, list) and given:
        if all(isinstance(entry, str) for entry in given):
            return [words.encode_text(text) for text in given]
        if all(isinstance(entry, list) for entry in given):
            return [words.encode_tokens(tokens) for tokens in given]
        if all(isinstance(entry, int) for entry in given):
            return [words.encode_tokens(given)]
    raise Refusal(400, "prompt is a text, a list of token numbers, or a list of either", param="prompt")


class CompletionForm:
    """Chunks and whole answers, which look the same."""

    named = False

    def __init__(self, model: str, words: Words, tops: int | None) -> None:
        self._words = words
        self._tops = tops
        self._offsets: dict[int, int] = {}
        about = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}
        self._about = {**about, "object": "text_completion"}

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
        listed = []
        for number, choice in enumerate(choices):
            assert choice.ended is not None
            logprobs = self._logprobs(number, choice.pieces) if self._tops is not None else None
            listed.append({"index": number, "text": choice.text, "logprobs": logprobs, **ending(choice.ended)})
        return {**self._about, "choices": listed, "usage": usage}

    def opening(self, count: int) -> Iterator[dict[str, Any]]:
        yield from ()

    def events(self, number: int, output: Output) -> Iterator[dict[str, Any]]:
        if isinstance(output, FinishEvent):
            yield self._chunk(number, "", None, **ending(output))
        elif isinstance(output, TextDelta):
            pieces = [output.piece] if output.piece is not None else []
            logprobs = self._logprobs(number, pieces) if self._tops is not None else None
            if output.text or (logprobs is not None and pieces):
                yield self._chunk(number, output.text, logprobs)

    def closing(self, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {**self._about, "choices": [], "usage": usage}

    def _chunk(self, number: int, text: str, logprobs: Any, **more: Any) -> dict[str, Any]:
        choice = {"index": number, "text": text, "logprobs": logprobs, "finish_reason": None, **more}
        return {**self._about, "choices": [choice]}

    def _logprobs(self, number: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for piece in pieces:
            text, _ = token_text(self._words, piece.token)
            found["tokens"].append(text)
            found["token_logprobs"].append(piece.logprob)
            found["top_logprobs"].append({token_text(self._words, token)[0]: logprob for token, logprob in piece.top})
            found["text_offset"].append(self._offsets.get(number, 0))
            self._offsets[number] = self._offsets.get(number, 0) + len(text)
        return found

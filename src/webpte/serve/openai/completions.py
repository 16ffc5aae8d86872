"""`/v1/completions`: continue a text as it is."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response

from ...llm.engine.output import Piece
from ...llm.settings import GenerateSettings
from ...llm.text_model import TextModel
from ..backend import RequestUsage
from ..bodies import read_body
from ..clients import run_in_thread
from ..config import Config
from ..errors import ApiError
from ..served_models import ServedModel
from ..service import Service
from .chat import UNFINISHED, finish_fields
from .generation import (
    Choice,
    Delta,
    FinishEvent,
    ParsedRequest,
    at_most,
    checked_params,
    choice_settings,
    output_tokens,
    respond,
    response_schema,
    stream_usage,
)
from .requests import CompletionRequest
from .response_types import (
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionHeader,
    CompletionLogprobs,
    CompletionUsage,
    FinishFields,
)
from .tools import TextDelta


async def completions(request: Request) -> Response:
    """Handle `POST /v1/completions`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, CompletionRequest)
    model = await service.open_model(request, body.model, body.kind)
    parsed, formatter = await run_in_thread(request, _parse, body, service.config, model)
    return await respond(request, service, parsed, formatter)


def _parse(body: CompletionRequest, config: Config, model: ServedModel) -> tuple[ParsedRequest, CompletionFormatter]:
    text = model.text
    if body.best_of not in (None, body.n):
        raise ApiError(
            400, "best_of is not supported: request n responses and choose", param="best_of",
            code="unsupported_parameter",
        )  # fmt: skip
    settings: GenerateSettings = {
        **choice_settings(body),
        "max_new_tokens": output_tokens(config, max_tokens=body.max_tokens),
        "logprobs": body.logprobs is not None,
        "top_logprobs": body.logprobs or 0,
    }
    schema = response_schema(body.response_format, "response_format.json_schema.schema", config)
    if schema is not None:
        settings["json_schema"] = schema
    texts = _prompts(body.prompt)
    at_most("prompt", len(texts) * body.n, config.max_choices, "max_choices")
    encoded = [
        text.prompt(text.tokenize_text(prompt, parse_special=body.parse_special) if isinstance(prompt, str) else prompt)
        for prompt in texts
    ]
    prompts = [tokens for tokens in encoded for _ in range(body.n)]
    params = checked_params(config, text, settings)
    parsed = ParsedRequest(model, prompts, params, body.stream, stream_usage(body))
    return parsed, CompletionFormatter(model.name, text, body.logprobs is not None)


def _prompts(prompt: str | list[str] | list[int] | list[list[int]]) -> list[str] | list[list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt[0], int):
        return [prompt]
    return prompt


class CompletionFormatter:
    """Writes chunks and whole responses, which have the same form."""

    named_events = False

    def __init__(self, model: str, text: TextModel, logprobs: bool) -> None:
        self._text = text
        self._with_logprobs = logprobs
        self._offsets: dict[int, int] = {}
        self._header: CompletionHeader = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "object": "text_completion",
        }

    def whole(self, choices: Sequence[Choice], usage: CompletionUsage) -> Completion:
        listed: list[CompletionChoice] = []
        for index, choice in enumerate(choices):
            assert choice.finish is not None
            logprobs = self._logprobs(index, choice.pieces) if self._with_logprobs else None
            listed.append({"index": index, "text": choice.text, "logprobs": logprobs, **finish_fields(choice.finish)})
        return {**self._header, "choices": listed, "usage": usage}

    def opening(self, usages: Sequence[RequestUsage]) -> Iterator[CompletionChunk]:
        yield from ()

    def events(self, index: int, delta: Delta) -> Iterator[CompletionChunk]:
        if isinstance(delta, FinishEvent):
            yield self._chunk(index, "", None, finish_fields(delta))
        elif isinstance(delta, TextDelta):
            pieces = [delta.piece] if delta.piece is not None else []
            logprobs = self._logprobs(index, pieces) if self._with_logprobs else None
            if delta.text or (logprobs is not None and pieces):
                yield self._chunk(index, delta.text, logprobs)

    def closing(self, usage: CompletionUsage) -> Iterator[Completion]:
        yield {**self._header, "choices": [], "usage": usage}

    def _chunk(
        self, index: int, text: str, logprobs: CompletionLogprobs | None, finish: FinishFields = UNFINISHED
    ) -> CompletionChunk:
        choice: CompletionChoice = {"index": index, "text": text, "logprobs": logprobs, **finish}
        return {**self._header, "choices": [choice]}

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> CompletionLogprobs:
        listed: CompletionLogprobs = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for piece in pieces:
            text, _ = self._text.token_text(piece.token)
            top = {self._text.token_text(token)[0]: logprob for token, logprob in piece.top_logprobs}
            listed["tokens"].append(text)
            listed["token_logprobs"].append(piece.logprob)
            listed["top_logprobs"].append(top)
            listed["text_offset"].append(self._offsets.get(index, 0))
            self._offsets[index] = self._offsets.get(index, 0) + len(text)
        return listed

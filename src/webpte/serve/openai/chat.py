"""`/v1/chat/completions`."""

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
from .fields import Fields
from .messages import messages_from
from .outputs import FinishEvent, Output, TextDelta, ToolCallDelta
from .sampling import output_tokens, sampling
from .structure import constrained, schema_of
from .tools import offer_from

# What clients send that changes nothing about an answer.
IGNORED = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
)
REFUSED = {
    "functions": "use tools",
    "function_call": "use tool_choice",
    "audio": "answers are text",
    "prediction": "drafts are made by the server itself",
    "web_search_options": "there is no search here",
    "reasoning_effort": "the model has one way to think",
    "verbosity": "ask for it in a message",
}


async def chat(request: Request) -> Response:
    service: Service = request.app.state.service
    body = await read_json(request, service.config)
    asked, form = await asyncio.to_thread(_understand, Fields(body), service)
    return await respond(request, service, asked, form)


def _understand(fields: Fields, service: Service) -> tuple[ParsedRequest, ChatForm]:
    """Everything about a request is checked here, before anything is computed."""
    config = service.config
    model = fields.text("model")
    words = service.words(model)
    messages = messages_from(fields)
    offer = offer_from(fields, config)
    settings = sampling(fields, config)
    settings["max_new_tokens"] = output_tokens(fields, ("max_completion_tokens", "max_tokens"), config)
    tops = _logprobs(fields, settings)
    schema = schema_of(fields.inside("response_format", None), config)
    count = fields.whole("n", 1, config.max_choices, 1)
    stream, usage_at_end = stream_options(fields)
    _modalities(fields)
    fields.ignore(*IGNORED)
    fields.refuse(REFUSED)
    fields.end()
    calls, stop = constrained(settings, offer, schema, words)
    tokens = words.encode_chat(messages, offer.for_template())
    asked = ParsedRequest(model, [tokens] * count, settings, stream, usage_at_end, calls, stop)
    return asked, ChatForm(model, words, tops)


def stream_options(fields: Fields) -> tuple[bool, bool]:
    """Whether to stream, and whether usage is to come at the end of it."""
    stream = fields.flag("stream")
    options = fields.inside("stream_options", None)
    if options is None:
        return stream, False
    if not stream:
        raise Refusal(400, "stream_options are for streams; set stream to true", param="stream_options")
    usage = options.flag("include_usage")
    options.ignore("include_obfuscation")
    options.end()
    return stream, usage


def _logprobs(fields: Fields, settings: dict[str, Any]) -> int | None:
    """How many of the likeliest tokens to tell of; None for not even that of the one that was chosen."""
    wanted = fields.flag("logprobs")
    tops = fields.whole("top_logprobs", 0, 20, None)
    if tops and not wanted:
        raise Refusal(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
    settings |= {"logprobs": wanted, "top_logprobs": tops or 0}
    return (tops or 0) if wanted else None


def _modalities(fields: Fields) -> None:
    if fields.listed("modalities", 8, ["text"]) != ["text"]:
        raise fields.wrong("modalities", '["text"]; this server says nothing else')


class ChatForm:
    """Chunks and whole answers."""

    named = False

    def __init__(self, model: str, words: Words, tops: int | None) -> None:
        self._words = words
        self._tops = tops
        self._about = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
        listed = [self._choice(number, choice) for number, choice in enumerate(choices)]
        return {**self._about, "object": "chat.completion", "choices": listed, "usage": usage}

    def _choice(self, number: int, choice: Choice) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
        if choice.calls:
            message["tool_calls"] = [_call(call) for call in choice.calls]
            message["content"] = choice.text or None
        assert choice.ended is not None
        logprobs = self._logprobs(choice.pieces) if self._tops is not None else None
        return {"index": number, "message": message, "logprobs": logprobs, **ending(choice.ended)}

    def opening(self, count: int) -> Iterator[dict[str, Any]]:
        for number in range(count):
            yield self._chunk(number, {"role": "assistant", "content": ""})

    def events(self, number: int, output: Output) -> Iterator[dict[str, Any]]:
        if isinstance(output, FinishEvent):
            yield self._chunk(number, {}, **ending(output))
        elif isinstance(output, ToolCallDelta):
            yield self._chunk(number, {"tool_calls": [{"index": output.number, **_call(output)}]})
        elif output.text or (self._tops is not None and output.piece is not None):
            yield self._chunk(number, {"content": output.text}, logprobs=self._said(output))

    def closing(self, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {**self._about, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def _chunk(self, number: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        choice = {"index": number, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        return {**self._about, "object": "chat.completion.chunk", "choices": [choice]}

    def _said(self, said: TextDelta) -> dict[str, Any] | None:
        return self._logprobs([said.piece]) if self._tops is not None and said.piece is not None else None

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        return {"content": [self._token(piece) for piece in pieces], "refusal": None}

    def _token(self, piece: Piece) -> dict[str, Any]:
        tops = [self._named(token, logprob) for token, logprob in piece.top]
        return {**self._named(piece.token, piece.logprob), "top_logprobs": tops}

    def _named(self, token: int, logprob: float | None) -> dict[str, Any]:
        text, data = token_text(self._words, token)
        return {"token": text, "logprob": logprob, "bytes": data}


def ending(ended: FinishEvent) -> dict[str, Any]:
    """How an answer ended. `stop_reason` is ours: what cut it short before its time."""
    cut = {"stop_reason": ended.cut} if ended.cut is not None else {}
    return {"finish_reason": ended.finish, **cut}


def _call(call: ToolCallDelta) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

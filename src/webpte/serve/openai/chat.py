"""`/v1/chat/completions`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...llm.engine.output import Piece
from ...llm.text_model import TextModel
from ..bodies import read_body
from ..clients import run_in_thread
from ..errors import ApiError
from ..service import Service
from .generation import (
    Choice,
    Delta,
    FinishEvent,
    ParsedRequest,
    at_most,
    checked_params,
    choice_settings,
    constrain_response,
    output_tokens,
    respond,
    response_schema,
    stream_usage,
)
from .requests import AssistantMessage, ChatMessage, ChatRequest, Content, ToolMessage
from .tools import ToolCallDelta, ToolConfig, tool_config


async def chat(request: Request) -> Response:
    """Handle `POST /v1/chat/completions`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, ChatRequest)
    parsed, formatter = await run_in_thread(request, _parse, body, service)
    return await respond(request, service, parsed, formatter)


def _parse(body: ChatRequest, service: Service) -> tuple[ParsedRequest, ChatFormatter]:
    """Check everything about a request before anything is computed."""
    config = service.config
    model = service.model(body.model, "language").name
    text = service.text_model(model)
    at_most("n", body.n, config.max_choices, "max_choices")
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs: allowed only with logprobs", param="top_logprobs")
    settings = choice_settings(body) | {
        "max_new_tokens": output_tokens(
            config, max_completion_tokens=body.max_completion_tokens, max_tokens=body.max_tokens
        ),
        "logprobs": body.logprobs,
        "top_logprobs": body.top_logprobs or 0,
    }
    tools = tool_config(body, config) if body.tools or body.tool_choice else ToolConfig()
    schema = response_schema(body.response_format, "response_format.json_schema.schema", config)
    calls = constrain_response(settings, tools, schema, text)
    tokens = text.prompt(text.tokenize_chat(template_messages(body.messages), tools.for_template()))
    params = checked_params(service, text, settings)
    parsed = ParsedRequest(model, [tokens] * body.n, params, body.stream, stream_usage(body), calls)
    return parsed, ChatFormatter(model, text, body.logprobs)


def template_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages as chat templates expect them."""
    return [_template_message(message, at) for at, message in enumerate(messages)]


def _template_message(message: ChatMessage, at: int) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role
    fields: dict[str, Any] = {"role": role, "content": _text(message.content)}
    if isinstance(message, AssistantMessage):
        if message.content is None and not message.tool_calls:
            raise ApiError(400, f"messages[{at}].content: required without tool_calls", param=f"messages[{at}].content")
        if message.tool_calls:
            fields["tool_calls"] = [call.model_dump() for call in message.tool_calls]
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        fields["name"] = message.name
    return fields


def _text(content: Content | None) -> str:
    if isinstance(content, list):
        return "".join(part.text for part in content)
    return content or ""


class ChatFormatter:
    """Writes chunks and whole responses."""

    named_events = False

    def __init__(self, model: str, text: TextModel, logprobs: bool) -> None:
        self._text = text
        self._with_logprobs = logprobs
        self._header = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
        listed = [self._choice(index, choice) for index, choice in enumerate(choices)]
        return {**self._header, "object": "chat.completion", "choices": listed, "usage": usage}

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
        if choice.tool_calls:
            message["tool_calls"] = [_tool_call(call) for call in choice.tool_calls]
            message["content"] = choice.text or None
        assert choice.finish is not None
        logprobs = self._logprobs(choice.pieces) if self._with_logprobs else None
        return {"index": index, "message": message, "logprobs": logprobs, **finish_fields(choice.finish)}

    def opening(self, count: int) -> Iterator[dict[str, Any]]:
        for index in range(count):
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def events(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        if isinstance(delta, FinishEvent):
            yield self._chunk(index, {}, **finish_fields(delta))
        elif isinstance(delta, ToolCallDelta):
            yield self._chunk(index, {"tool_calls": [{"index": delta.index, **_tool_call(delta)}]})
        else:
            measured = self._with_logprobs and delta.piece is not None
            if delta.text or measured:
                logprobs = self._logprobs([delta.piece]) if measured and delta.piece is not None else None
                yield self._chunk(index, {"content": delta.text}, logprobs=logprobs)

    def closing(self, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {**self._header, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def _chunk(self, index: int, delta: dict[str, Any], **fields: Any) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **fields}
        return {**self._header, "object": "chat.completion.chunk", "choices": [choice]}

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        return {"content": [self._token(piece) for piece in pieces], "refusal": None}

    def _token(self, piece: Piece) -> dict[str, Any]:
        top = [self._logprob(token, logprob) for token, logprob in piece.top_logprobs]
        return {**self._logprob(piece.token, piece.logprob), "top_logprobs": top}

    def _logprob(self, token: int, logprob: float | None) -> dict[str, Any]:
        text, data = self._text.token_text(token)
        return {"token": text, "logprob": logprob, "bytes": data}


def finish_fields(finish: FinishEvent) -> dict[str, Any]:
    """Return how a response ended. `stop_reason` is an extension: what cut the response short."""
    cut = {"stop_reason": finish.cut} if finish.cut is not None else {}
    return {"finish_reason": finish.finish, **cut}


def _tool_call(call: ToolCallDelta) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

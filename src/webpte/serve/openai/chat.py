"""`/v1/chat/completions`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response

from ...llm.engine.output import Piece
from ...llm.image_prompts import PreparedImage
from ...llm.prompts import TemplateCall, TemplateMessage
from ...llm.settings import GenerateSettings
from ...llm.text_model import TextModel
from ..backend import RequestUsage
from ..bodies import read_body
from ..clients import run_in_thread
from ..config import Config
from ..errors import ApiError
from ..images import ImageUpload, read_images, template_content
from ..served_models import ServedModel
from ..service import Service
from .generation import (
    Choice,
    Delta,
    FinishEvent,
    ParsedRequest,
    ReasoningDelta,
    at_most,
    checked_params,
    choice_settings,
    constrain_response,
    output_tokens,
    respond,
    response_schema,
    stream_usage,
    thinking_settings,
)
from .requests import AssistantMessage, CalledTool, ChatMessage, ChatRequest, ImagePart, ToolMessage
from .response_types import (
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    ChatLogprobs,
    ChatUsageChunk,
    ChoiceDelta,
    CompletionUsage,
    FinishFields,
    MessageToolCall,
    ResponseHeader,
    TokenLogprob,
    TopLogprob,
)
from .tools import ToolCallDelta, ToolConfig, tool_config

UNFINISHED: FinishFields = {"finish_reason": None}  # of a chunk that is not the last


async def chat(request: Request) -> Response:
    """Handle `POST /v1/chat/completions`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, ChatRequest)
    model = await service.open_model(request, body.model, body.kind)
    images = await read_images(request, model, image_uploads(body.messages))
    parsed, formatter = await run_in_thread(request, _parse, body, service.config, model, images)
    return await respond(request, service, parsed, formatter)


def _parse(
    body: ChatRequest, config: Config, model: ServedModel, images: Sequence[PreparedImage]
) -> tuple[ParsedRequest, ChatFormatter]:
    """Check everything about a request before anything is computed."""
    text = model.text
    at_most("n", body.n, config.max_choices, "max_choices")
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs: allowed only with logprobs", param="top_logprobs")
    settings: GenerateSettings = {
        **choice_settings(body),
        **thinking_settings(body, body.reasoning_effort),
        "max_new_tokens": output_tokens(
            config, max_completion_tokens=body.max_completion_tokens, max_tokens=body.max_tokens
        ),
        "logprobs": body.logprobs,
        "top_logprobs": body.top_logprobs or 0,
    }
    tools = tool_config(body, config) if body.tools or body.tool_choice else ToolConfig()
    schema = response_schema(body.response_format, "response_format.json_schema.schema", config)
    calls = constrain_response(settings, tools, schema, text)
    params = checked_params(config, text, settings)
    tokens, params = text.chat_prompt(template_messages(body.messages, images), tools.for_template(), params)
    parsed = ParsedRequest(model, [tokens] * body.n, params, body.stream, stream_usage(body), calls)
    return parsed, ChatFormatter(model.name, text, body.logprobs)


def image_uploads(messages: Sequence[ChatMessage]) -> list[ImageUpload]:
    """Return the images of messages in order."""
    return [
        ImageUpload.from_address(f"messages[{at}].content[{number}]", part.image_url.url)
        for at, message in enumerate(messages)
        if isinstance(message.content, list)
        for number, part in enumerate(message.content)
        if isinstance(part, ImagePart)
    ]


def template_messages(messages: Sequence[ChatMessage], images: Sequence[PreparedImage]) -> list[TemplateMessage]:
    """Return messages, with their images in order, as chat templates expect them."""
    following = iter(images)
    return [_template_message(message, at, following) for at, message in enumerate(messages)]


def _template_message(message: ChatMessage, at: int, images: Iterator[PreparedImage]) -> TemplateMessage:
    role = "system" if message.role == "developer" else message.role
    parts = message.content if isinstance(message.content, list) else ()
    content = template_content(next(images) if isinstance(part, ImagePart) else part.text for part in parts)
    fields: TemplateMessage = {
        "role": role,
        "content": message.content if isinstance(message.content, str) else content,
    }
    if isinstance(message, AssistantMessage):
        if message.content is None and not message.tool_calls:
            raise ApiError(400, f"messages[{at}].content: required without tool_calls", param=f"messages[{at}].content")
        if reasoning := message.reasoning_content or message.reasoning:
            fields["reasoning_content"] = reasoning
        if message.tool_calls:
            fields["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        fields["name"] = message.name
    return fields


def _template_call(call: CalledTool) -> TemplateCall:
    function = call.function
    return {
        "id": call.id,
        "type": call.type,
        "function": {"name": function.name, "arguments": function.arguments},
    }


class ChatFormatter:
    """Writes chunks and whole responses."""

    named_events = False

    def __init__(self, model: str, text: TextModel, logprobs: bool) -> None:
        self._text = text
        self._with_logprobs = logprobs
        self._header: ResponseHeader = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, choices: Sequence[Choice], usage: CompletionUsage) -> ChatCompletion:
        listed = [self._choice(index, choice) for index, choice in enumerate(choices)]
        return {**self._header, "object": "chat.completion", "choices": listed, "usage": usage}

    def _choice(self, index: int, choice: Choice) -> ChatChoice:
        message: ChatCompletionMessage = {"role": "assistant", "content": choice.text, "refusal": None}
        if choice.thoughts:
            message["reasoning_content"] = choice.reasoning
        if choice.tool_calls:
            message["tool_calls"] = [_tool_call(call) for call in choice.tool_calls]
            message["content"] = choice.text or None
        assert choice.finish is not None
        logprobs = self._logprobs(choice.pieces) if self._with_logprobs else None
        return {"index": index, "message": message, "logprobs": logprobs, **finish_fields(choice.finish)}

    def opening(self, usages: Sequence[RequestUsage]) -> Iterator[ChatCompletionChunk]:
        for index in range(len(usages)):
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def events(self, index: int, delta: Delta) -> Iterator[ChatCompletionChunk]:
        if isinstance(delta, FinishEvent):
            yield self._chunk(index, {}, finish=finish_fields(delta))
        elif isinstance(delta, ToolCallDelta):
            yield self._chunk(index, {"tool_calls": [{"index": delta.index, **_tool_call(delta)}]})
        elif isinstance(delta, ReasoningDelta):
            yield self._chunk(index, {"reasoning_content": delta.text})
        else:
            measured = self._with_logprobs and delta.piece is not None
            if delta.text or measured:
                logprobs = self._logprobs([delta.piece]) if measured and delta.piece is not None else None
                yield self._chunk(index, {"content": delta.text}, logprobs)

    def closing(self, usage: CompletionUsage) -> Iterator[ChatUsageChunk]:
        yield {**self._header, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def _chunk(
        self, index: int, delta: ChoiceDelta, logprobs: ChatLogprobs | None = None, finish: FinishFields = UNFINISHED
    ) -> ChatCompletionChunk:
        choice: ChatChunkChoice = {"index": index, "delta": delta, "logprobs": logprobs, **finish}
        return {**self._header, "object": "chat.completion.chunk", "choices": [choice]}

    def _logprobs(self, pieces: Sequence[Piece]) -> ChatLogprobs:
        return {"content": [self._token(piece) for piece in pieces], "refusal": None}

    def _token(self, piece: Piece) -> TokenLogprob:
        top = [self._logprob(token, logprob) for token, logprob in piece.top_logprobs]
        return {**self._logprob(piece.token, piece.logprob), "top_logprobs": top}

    def _logprob(self, token: int, logprob: float | None) -> TopLogprob:
        text, data = self._text.token_text(token)
        return {"token": text, "logprob": logprob, "bytes": data}


def finish_fields(finish: FinishEvent) -> FinishFields:
    """Return how a response ended."""
    if finish.cut is not None:
        return {"finish_reason": finish.finish, "stop_reason": finish.cut}
    return {"finish_reason": finish.finish}


def _tool_call(call: ToolCallDelta) -> MessageToolCall:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

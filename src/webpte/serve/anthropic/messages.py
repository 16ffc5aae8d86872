"""`/v1/messages` and `/v1/messages/count_tokens`: conversations in the form of Anthropic's API."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from ...llm.image_prompts import PreparedImage
from ...llm.prompts import TemplateCall, TemplateCalledFunction, TemplateContent, TemplateMessage
from ...llm.settings import GenerateSettings
from ...llm.text_model import TextModel
from ..backend import RequestUsage
from ..bodies import read_body
from ..clients import run_in_thread
from ..config import Config
from ..errors import ApiError
from ..images import ImageUpload, prompt_items, read_images, template_content
from ..messages import prompt_length
from ..openai.generation import (
    Choice,
    Delta,
    FinishEvent,
    ParsedRequest,
    ReasoningDelta,
    checked_params,
    constrain_response,
    respond,
    response_schema,
    sampling_settings,
)
from ..openai.requests import Function, FunctionName, ToolChoiceMode
from ..openai.response_types import CompletionUsage
from ..openai.tools import ToolCallDelta, ToolConfig, checked_tools
from ..responses import JsonResponse
from ..served_models import ServedModel
from ..service import Service
from .requests import (
    AssistantTurn,
    Base64Source,
    ConversationFields,
    CountTokensRequest,
    ImageBlock,
    MessagesRequest,
    SystemTurn,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    UserTurn,
)
from .response_types import (
    AnthropicEvent,
    AnthropicMessage,
    AnthropicText,
    AnthropicThinking,
    AnthropicTokenCount,
    AnthropicToolUse,
    AnthropicUsage,
    BlockDelta,
    BlockDeltaEvent,
    BlockStartEvent,
    BlockStopEvent,
    ContentBlock,
    MessageDeltaEvent,
    MessageStartEvent,
    StopFields,
    StopReason,
)

SIGNATURE = "unsigned"  # of thoughts: some clients send a thought back only if it has a signature
TOOL_CHOICES: dict[str, ToolChoiceMode] = {"auto": "auto", "any": "required", "none": "none"}
STOP_REASONS: dict[str, StopReason] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


async def messages(request: Request) -> Response:
    """Handle `POST /v1/messages`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, MessagesRequest)
    model = await service.open_model(request, body.model, body.kind)
    images = await read_images(request, model, list(_uploads(body)))
    parsed = await run_in_thread(request, _parse, body, service.config, model, images)
    return await respond(request, service, parsed, MessagesFormatter(model.name))


async def count_tokens(request: Request) -> Response:
    """Handle `POST /v1/messages/count_tokens`: return the length of the prompt."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, CountTokensRequest)
    model = await service.open_model(request, body.model, body.kind)
    images = await read_images(request, model, list(_uploads(body)))
    content: AnthropicTokenCount = {
        "input_tokens": await run_in_thread(request, _count, body, service.config, model, images)
    }
    return JsonResponse(content)


def _uploads(body: ConversationFields) -> Iterator[ImageUpload]:
    for at, turn in enumerate(body.messages):
        for number, block in enumerate(turn.content if isinstance(turn, UserTurn) else ()):
            param = f"messages[{at}].content[{number}]"
            if isinstance(block, ImageBlock):
                yield _upload(block, param)
            elif isinstance(block, ToolResultBlock):
                for position, part in enumerate(block.content):
                    if isinstance(part, ImageBlock):
                        yield _upload(part, f"{param}.content[{position}]")


def _upload(block: ImageBlock, param: str) -> ImageUpload:
    source = block.source
    return (
        ImageUpload(param, source.data)
        if isinstance(source, Base64Source)
        else ImageUpload.from_address(param, source.url)
    )


def _count(body: CountTokensRequest, config: Config, model: ServedModel, images: Sequence[PreparedImage]) -> int:
    text = model.text
    tools = _tools(body, config)
    params = text.sampling_params(_thinking_settings(body, text))
    segments = text.chat_segments(_template_messages(body, images), tools.for_template(), params)
    return prompt_length(prompt_items(segments))


def _parse(body: MessagesRequest, config: Config, model: ServedModel, images: Sequence[PreparedImage]) -> ParsedRequest:
    text = model.text
    settings: GenerateSettings = {
        **sampling_settings(body, body.seed),
        **_thinking_settings(body, text),
        # Clients have to set it, and many send the maximum of Anthropic's models: it is lowered, not refused.
        "max_new_tokens": min(body.max_tokens, config.max_output_tokens),
        "stop": body.stop_sequences,
    }
    tools = _tools(body, config)
    schema = response_schema(body.output_config.format, "output_config.format.schema", config)
    calls = constrain_response(settings, tools, schema, text)
    params = checked_params(config, text, settings)
    tokens, params = text.chat_prompt(_template_messages(body, images), tools.for_template(), params)
    return ParsedRequest(model, [tokens], params, body.stream, include_usage=False, calls=calls)


def _thinking_settings(body: ConversationFields, text: TextModel) -> GenerateSettings:
    """Return what a request sets of the thought. Without `thinking` there is none, as in Anthropic's API: clients that
    did not request one read the first block as the answer. An adaptive thought is the model's decision."""
    thinking, effort = body.thinking, body.output_config.effort
    settings: GenerateSettings = {"thinking_budget": thinking.budget_tokens}
    if thinking.type != "adaptive":
        settings["think"] = thinking.type == "enabled"
    if effort is not None and thinking.type != "disabled" and text.thought_tags is not None:
        settings["reasoning_effort"] = "xhigh" if effort == "max" else effort
    return settings


def _tools(body: ConversationFields, config: Config) -> ToolConfig:
    tools = tuple(
        Function(name=tool.name, description=tool.description, parameters=tool.input_schema) for tool in body.tools
    )
    choice = body.tool_choice
    named: ToolChoiceMode | FunctionName
    if choice.type == "tool":
        if choice.name is None:
            raise ApiError(400, "tool_choice.name: required", param="tool_choice.name")
        named = FunctionName(name=choice.name)
    else:
        named = TOOL_CHOICES[choice.type]
    return checked_tools(tools, named, not choice.disable_parallel_tool_use, config)


# -- messages --------------------------------------------------------------------------------------------------------


def _template_messages(body: ConversationFields, images: Sequence[PreparedImage]) -> list[TemplateMessage]:
    """Return a conversation, with its images in order, as chat templates expect it."""
    turns = body.messages
    if isinstance(turns[-1], AssistantTurn):
        param = f"messages[{len(turns) - 1}].role"
        raise ApiError(400, f"{param}: expected user, got assistant. A response cannot be begun for it.", param=param)
    following = iter(images)
    system = _content(body.system, following)
    messages: list[TemplateMessage] = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        messages += _turn_messages(turn, following)
    return messages


def _turn_messages(
    turn: SystemTurn | UserTurn | AssistantTurn, images: Iterator[PreparedImage]
) -> Iterator[TemplateMessage]:
    """Yield the messages of a turn. Each result of a tool is one, and so are the blocks between them."""
    if isinstance(turn, AssistantTurn):
        yield _assistant_message(turn)
        return
    if isinstance(turn.content, str):
        yield {"role": turn.role, "content": turn.content}
        return
    blocks: list[TextBlock | ImageBlock] = []
    for block in turn.content:
        if not isinstance(block, ToolResultBlock):
            blocks.append(block)
            continue
        if blocks:
            yield {"role": turn.role, "content": _content(blocks, images)}
            blocks = []
        yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _content(block.content, images)}
    if blocks:
        yield {"role": turn.role, "content": _content(blocks, images)}


def _assistant_message(turn: AssistantTurn) -> TemplateMessage:
    if isinstance(turn.content, str):
        return {"role": "assistant", "content": turn.content}
    text, thought = "", ""
    calls: list[TemplateCall] = []
    for block in turn.content:
        if isinstance(block, TextBlock):
            text += block.text
        elif isinstance(block, ThinkingBlock):
            thought += block.thinking
        else:
            called: TemplateCalledFunction = {"name": block.name, "arguments": block.input}
            calls.append({"id": block.id, "type": "function", "function": called})
    message: TemplateMessage = {"role": "assistant", "content": text}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return message


def _content(content: str | Sequence[TextBlock | ImageBlock], images: Iterator[PreparedImage]) -> TemplateContent:
    if isinstance(content, str):
        return content
    return template_content(next(images) if isinstance(block, ImageBlock) else block.text for block in content)


# -- responses -------------------------------------------------------------------------------------------------------


class MessagesFormatter:
    """Writes a message: a list of blocks, of a thought, text or a call. A stream starts, fills and stops each."""

    named_events = True

    def __init__(self, model: str) -> None:
        self._model = model
        self._id = f"msg_{secrets.token_hex(12)}"
        self._next_block = 0
        self._open: Literal["text", "thinking"] | None = None  # the block that deltas belong to

    def whole(self, choices: Sequence[Choice], usage: CompletionUsage) -> AnthropicMessage:
        (choice,) = choices
        assert choice.finish is not None
        content: list[ContentBlock] = []
        if choice.thoughts:
            content.append(_thinking(choice.reasoning, SIGNATURE))
        if choice.text:
            content.append(_text_block(choice.text))
        content += [_tool_use(call, json.loads(call.arguments)) for call in choice.tool_calls]
        return self._message(content, _stop_fields(choice.finish), choice.finish.usage)

    def _message(self, content: list[ContentBlock], stop: StopFields, usage: RequestUsage) -> AnthropicMessage:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            **stop,
            "usage": _usage(usage),
        }

    def opening(self, usages: Sequence[RequestUsage]) -> Iterator[AnthropicEvent]:
        usage = replace(usages[0], completion_tokens=0, reasoning_tokens=0)  # none is sent yet
        start: MessageStartEvent = {
            "type": "message_start",
            "message": self._message([], {"stop_reason": None, "stop_sequence": None}, usage),
        }
        yield start

    def events(self, index: int, delta: Delta) -> Iterator[AnthropicEvent]:
        if isinstance(delta, FinishEvent):
            yield from self._close()
            end: MessageDeltaEvent = {
                "type": "message_delta",
                "delta": _stop_fields(delta),
                "usage": _usage(delta.usage),
            }
            yield end
            yield {"type": "message_stop"}
        elif isinstance(delta, ToolCallDelta):
            yield from self._close()
            yield from self._start(_tool_use(delta, {}))
            yield self._delta({"type": "input_json_delta", "partial_json": delta.arguments})
            yield self._stop()
        elif isinstance(delta, ReasoningDelta):
            if self._open != "thinking":
                yield from self._close()
                yield from self._start(_thinking("", ""))
                self._open = "thinking"
            yield self._delta({"type": "thinking_delta", "thinking": delta.text})
        elif delta.text:
            if self._open != "text":
                yield from self._close()
                yield from self._start(_text_block(""))
                self._open = "text"
            yield self._delta({"type": "text_delta", "text": delta.text})

    def closing(self, usage: CompletionUsage) -> Iterator[AnthropicEvent]:
        return iter(())

    def _start(self, block: ContentBlock) -> Iterator[AnthropicEvent]:
        start: BlockStartEvent = {
            "type": "content_block_start",
            "index": self._next_block,
            "content_block": block,
        }
        yield start
        if not self._next_block:
            yield {"type": "ping"}
        self._next_block += 1

    def _delta(self, delta: BlockDelta) -> BlockDeltaEvent:
        return {"type": "content_block_delta", "index": self._next_block - 1, "delta": delta}

    def _stop(self) -> BlockStopEvent:
        return {"type": "content_block_stop", "index": self._next_block - 1}

    def _close(self) -> Iterator[AnthropicEvent]:
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": SIGNATURE})
        if self._open is not None:
            yield self._stop()
        self._open = None


def _text_block(text: str) -> AnthropicText:
    return {"type": "text", "text": text}


def _thinking(text: str, signature: str) -> AnthropicThinking:
    return {"type": "thinking", "thinking": text, "signature": signature}


def _tool_use(call: ToolCallDelta, arguments: dict[str, Any]) -> AnthropicToolUse:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _stop_fields(finish: FinishEvent) -> StopFields:
    if finish.stop_string is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": finish.stop_string}
    return {"stop_reason": STOP_REASONS[finish.finish], "stop_sequence": None}


def _usage(usage: RequestUsage) -> AnthropicUsage:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }

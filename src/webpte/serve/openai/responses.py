"""`/v1/responses`, for text and tools. Nothing is stored: every request contains the whole conversation."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from ...llm.image_prompts import PreparedImage
from ...llm.prompts import TemplateCall, TemplateMessage
from ..backend import RequestUsage
from ..bodies import read_body
from ..clients import run_in_thread
from ..config import Config
from ..images import ImageUpload, read_images, template_content
from ..served_models import ServedModel
from ..service import Service
from .generation import (
    Choice,
    Delta,
    FinishEvent,
    ParsedRequest,
    ReasoningDelta,
    checked_params,
    constrain_response,
    output_tokens,
    respond,
    response_schema,
    sampling_settings,
    thinking_settings,
)
from .requests import (
    FunctionCallItem,
    FunctionCallOutputItem,
    MessageItem,
    ReasoningItem,
    ResponsesImagePart,
    ResponsesRequest,
)
from .response_types import (
    ArgumentsDeltaEvent,
    ArgumentsDoneEvent,
    CompletionUsage,
    ContentPartEvent,
    FunctionToolCall,
    IncompleteDetails,
    ItemEventType,
    ItemPlace,
    ItemStatus,
    OutputItem,
    OutputItemEvent,
    OutputMessage,
    OutputReasoning,
    OutputText,
    PartEventType,
    PartPlace,
    ReasoningContent,
    ReasoningDeltaEvent,
    ReasoningDetails,
    ReasoningDoneEvent,
    RequestFields,
    ResponseEvent,
    ResponseObject,
    ResponseStatus,
    ResponseStatusEvent,
    ResponseUsage,
    StatusEventType,
    TextDeltaEvent,
    TextDoneEvent,
)
from .tools import ToolCallDelta, ToolConfig, tool_config


async def responses(request: Request) -> Response:
    """Handle `POST /v1/responses`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, ResponsesRequest)
    model = await service.open_model(request, body.model, body.kind)
    images = await read_images(request, model, _uploads(body))
    parsed, formatter = await run_in_thread(request, _parse, body, service.config, model, images)
    return await respond(request, service, parsed, formatter)


def _uploads(body: ResponsesRequest) -> list[ImageUpload]:
    return [
        ImageUpload.from_address(f"input[{at}].content[{number}]", part.image_url)
        for at, item in enumerate(body.input if isinstance(body.input, list) else ())
        if isinstance(item, MessageItem) and not isinstance(item.content, str)
        for number, part in enumerate(item.content)
        if isinstance(part, ResponsesImagePart)
    ]


def _parse(
    body: ResponsesRequest, config: Config, model: ServedModel, images: Sequence[PreparedImage]
) -> tuple[ParsedRequest, ResponsesFormatter]:
    text = model.text
    settings = sampling_settings(body, body.seed)
    settings["max_new_tokens"] = output_tokens(config, max_output_tokens=body.max_output_tokens)
    tools = tool_config(body, config) if body.tools or body.tool_choice else ToolConfig()
    schema = response_schema(body.text.format if body.text is not None else None, "text.format.schema", config)
    calls = constrain_response(settings, tools, schema, text)
    settings |= thinking_settings(body, body.reasoning.effort)
    params = checked_params(config, text, settings)
    tokens, params = text.chat_prompt(_messages(body, iter(images)), tools.for_template(), params)
    dumped = body.model_dump(by_alias=True, exclude_unset=True)
    request_fields: RequestFields = {
        "model": model.name,
        "instructions": body.instructions,
        "max_output_tokens": params.max_new_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "tools": dumped.get("tools", []),
        "tool_choice": dumped.get("tool_choice", "auto"),
        "parallel_tool_calls": tools.parallel,
        "text": dumped.get("text", {"format": {"type": "text"}}),
    }
    parsed = ParsedRequest(model, [tokens], params, body.stream, include_usage=True, calls=calls)
    return parsed, ResponsesFormatter(request_fields)


def _messages(body: ResponsesRequest, images: Iterator[PreparedImage]) -> list[TemplateMessage]:
    """Return `instructions` and `input` as messages for a chat template."""
    messages: list[TemplateMessage] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return [*messages, {"role": "user", "content": body.input}]
    thought = ""
    for item in body.input:
        if isinstance(item, ReasoningItem):
            thought += "".join(part.text for part in item.content or item.summary)
            continue
        message = _template_message(item, images)
        if thought and message["role"] == "assistant":
            message["reasoning_content"], thought = thought, ""
            messages.append(message)
        elif "tool_calls" in message and messages and messages[-1]["role"] == "assistant":  # one message to a template
            messages[-1].setdefault("tool_calls", []).extend(message["tool_calls"])
        else:
            messages.append(message)
    return messages


def _template_message(
    item: MessageItem | FunctionCallItem | FunctionCallOutputItem, images: Iterator[PreparedImage]
) -> TemplateMessage:
    if isinstance(item, FunctionCallItem):
        call: TemplateCall = {
            "id": item.call_id,
            "type": "function",
            "function": {"name": item.name, "arguments": item.arguments},
        }
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if isinstance(item, FunctionCallOutputItem):
        return {"role": "tool", "tool_call_id": item.call_id, "content": item.output}
    parts = [item.content] if isinstance(item.content, str) else item.content
    content = template_content(
        part if isinstance(part, str) else next(images) if isinstance(part, ResponsesImagePart) else part.text
        for part in parts
    )
    return {"role": "system" if item.role == "developer" else item.role, "content": content}


class ResponsesFormatter:
    """Writes a response: a list of items, each a message or a function call. A stream opens, fills and closes each."""

    named_events = True

    def __init__(self, request_fields: RequestFields) -> None:
        self._request_fields = request_fields
        self._id = f"resp_{secrets.token_hex(16)}"
        self._created = int(time.time())
        self._next_number = 0  # of the events
        self._items: list[OutputItem] = []
        self._open: OutputMessage | OutputReasoning | None = None  # the item that deltas belong to
        self._texts: list[str] = []  # of its deltas: adding them up one by one would copy the text for each
        self._finish: FinishEvent | None = None

    # -- whole -------------------------------------------------------------------------------------------------------

    def whole(self, choices: Sequence[Choice], usage: CompletionUsage) -> ResponseObject:
        choice = choices[0]
        if choice.thoughts:
            self._items.append(_reasoning(choice.reasoning, "completed"))
        if choice.text or not choice.tool_calls:
            self._items.append(_message(choice.text, "completed"))
        self._items += [_call(call) for call in choice.tool_calls]
        self._finish = choice.finish
        return self._response(usage)

    def _response(self, usage: CompletionUsage | None) -> ResponseObject:
        status: ResponseStatus = "in_progress"
        details: IncompleteDetails | None = None
        if self._finish is not None:
            cut = self._finish.finish == "length"
            status = "incomplete" if cut else "completed"
            details = {"reason": self._finish.cut or "max_output_tokens"} if cut else None
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": details,
            "output": [item.copy() for item in self._items],
            "usage": _usage(usage) if usage is not None else None,
            "previous_response_id": None,
            "store": False,
            "metadata": {},
            "truncation": "disabled",
            **self._request_fields,
        }

    # -- events ------------------------------------------------------------------------------------------------------

    def opening(self, usages: Sequence[RequestUsage]) -> Iterator[ResponseEvent]:
        yield self._status("response.created", None)
        yield self._status("response.in_progress", None)

    def events(self, index: int, delta: Delta) -> Iterator[ResponseEvent]:
        if isinstance(delta, FinishEvent):
            self._finish = delta
            if not any(item["type"] != "reasoning" for item in self._items):
                yield from self._open_item("message")
            yield from self._close_item()
        elif isinstance(delta, ToolCallDelta):
            yield from self._close_item()
            yield from self._function_call(delta)
        elif isinstance(delta, ReasoningDelta):
            yield from self._open_item("reasoning")
            self._texts.append(delta.text)
            thought: ReasoningDeltaEvent = {
                "type": "response.reasoning_text.delta",
                "sequence_number": self._number(),
                **self._part_place(),
                "delta": delta.text,
            }
            yield thought
        elif delta.text:
            yield from self._open_item("message")
            self._texts.append(delta.text)
            event: TextDeltaEvent = {
                "type": "response.output_text.delta",
                "sequence_number": self._number(),
                **self._part_place(),
                "delta": delta.text,
                "logprobs": [],
            }
            yield event

    def closing(self, usage: CompletionUsage) -> Iterator[ResponseEvent]:
        assert self._finish is not None
        yield self._status("response.incomplete" if self._finish.finish == "length" else "response.completed", usage)

    def _status(self, type: StatusEventType, usage: CompletionUsage | None) -> ResponseStatusEvent:
        return {"type": type, "sequence_number": self._number(), "response": self._response(usage)}

    def _open_item(self, type: Literal["message", "reasoning"]) -> Iterator[ResponseEvent]:
        if self._open is not None and self._open["type"] == type:
            return
        yield from self._close_item()
        self._open = _message("", "in_progress") if type == "message" else _reasoning("", "in_progress")
        self._items.append(self._open)
        empty = self._open.copy()
        empty["content"] = []
        yield self._item("response.output_item.added", empty)
        yield self._part("response.content_part.added", self._open["content"][0])

    def _close_item(self) -> Iterator[ResponseEvent]:
        item = self._open
        if item is None:
            return
        text = item["content"][0]["text"] = "".join(self._texts)
        place = self._part_place()
        if item["type"] == "message":
            done: TextDoneEvent = {
                "type": "response.output_text.done",
                "sequence_number": self._number(),
                **place,
                "text": text,
                "logprobs": [],
            }
            yield done
        else:
            thought: ReasoningDoneEvent = {
                "type": "response.reasoning_text.done",
                "sequence_number": self._number(),
                **place,
                "text": text,
            }
            yield thought
        yield self._part("response.content_part.done", item["content"][0])
        item["status"] = "completed"
        yield self._item("response.output_item.done", item.copy())
        self._open, self._texts = None, []

    def _function_call(
        self, call: ToolCallDelta
    ) -> Iterator[OutputItemEvent | ArgumentsDeltaEvent | ArgumentsDoneEvent]:
        item = _call(call)
        self._items.append(item)
        yield self._item("response.output_item.added", {**item, "arguments": "", "status": "in_progress"})
        delta: ArgumentsDeltaEvent = {
            "type": "response.function_call_arguments.delta",
            "sequence_number": self._number(),
            "delta": call.arguments,
            **self._item_place(),
        }
        yield delta
        done: ArgumentsDoneEvent = {
            "type": "response.function_call_arguments.done",
            "sequence_number": self._number(),
            "arguments": call.arguments,
            "name": call.name,
            **self._item_place(),
        }
        yield done
        yield self._item("response.output_item.done", item.copy())

    def _item(self, type: ItemEventType, item: OutputItem) -> OutputItemEvent:
        return {"type": type, "sequence_number": self._number(), "output_index": len(self._items) - 1, "item": item}

    def _part(self, type: PartEventType, part: OutputText | ReasoningContent) -> ContentPartEvent:
        return {"type": type, "sequence_number": self._number(), **self._part_place(), "part": part.copy()}

    def _number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number

    def _item_place(self) -> ItemPlace:
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}

    def _part_place(self) -> PartPlace:
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1, "content_index": 0}


def _message(text: str, status: ItemStatus) -> OutputMessage:
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [_part(text)],
    }


def _part(text: str) -> OutputText:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _reasoning(text: str, status: ItemStatus) -> OutputReasoning:
    return {
        "id": f"rs_{secrets.token_hex(12)}",
        "type": "reasoning",
        "status": status,
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
    }


def _call(call: ToolCallDelta) -> FunctionToolCall:
    return {
        "id": f"fc_{secrets.token_hex(12)}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "status": "completed",
    }


def _usage(usage: CompletionUsage) -> ResponseUsage:
    details: ReasoningDetails = {"reasoning_tokens": 0}
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"],
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": usage.get("completion_tokens_details", details),
        "total_tokens": usage["total_tokens"],
    }

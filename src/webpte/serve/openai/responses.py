"""`/v1/responses`, for text and tools. Nothing is stored: a conversation comes whole with each request."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..incoming import read_json
from ..service import Service
from .answering import Choice, ParsedRequest, respond
from .fields import Fields
from .outputs import FinishEvent, Output, ToolCallDelta
from .response_input import messages_of
from .sampling import output_tokens, temperature
from .structure import ANY_OBJECT, constrained, read_schema
from .tools import offer_from

REFUSED = {
    "previous_response_id": "nothing is stored here; send the whole conversation as input",
    "conversation": "nothing is stored here; send the whole conversation as input",
    "background": "wait for the answer, or stream it",
    "prompt": "there are no stored prompts; send the text",
    "reasoning": "the model has one way to think",
    "max_tool_calls": "no tool is called by the server",
}
IGNORED = (
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "truncation", "include", "stream_options",
)  # fmt: skip


async def responses(request: Request) -> Response:
    service: Service = request.app.state.service
    body = await read_json(request, service.config)
    asked, form = await asyncio.to_thread(_understand, Fields(body), service)
    return await respond(request, service, asked, form)


def _understand(fields: Fields, service: Service) -> tuple[ParsedRequest, ResponseForm]:
    config = service.config
    model = fields.text("model")
    words = service.words(model)
    messages = messages_of(fields)
    offer = offer_from(fields, config, flat=True)
    settings = temperature(fields, config)
    settings["max_new_tokens"] = output_tokens(fields, ("max_output_tokens",), config)
    schema = _schema(fields.inside("text", None), service)
    stream = fields.flag("stream")
    fields.choice("truncation", ("disabled",), "disabled")
    fields.ignore(*IGNORED)
    fields.refuse(REFUSED)
    fields.end()
    calls, stop = constrained(settings, offer, schema, words)
    tokens = words.encode_chat(messages, offer.for_template())
    told = {
        "model": model,
        "instructions": fields.text("instructions", None),
        "max_output_tokens": settings["max_new_tokens"],
        "temperature": settings["temperature"],
        "top_p": settings["top_p"],
        "tools": fields.listed("tools", config.max_tools, []),
        "tool_choice": fields.raw("tool_choice", "auto"),
        "parallel_tool_calls": offer.parallel,
        "text": fields.raw("text", {"format": {"type": "text"}}),
    }
    return ParsedRequest(model, [tokens], settings, stream, True, calls, stop), ResponseForm(told)


def _schema(text: Fields | None, service: Service) -> Any:
    """What `text.format` asks for, which here holds a schema itself."""
    if text is None:
        return None
    format = text.inside("format", None)
    text.end()
    if format is None:
        return None
    kind = format.choice("type", ("text", "json_object", "json_schema"))
    if kind == "json_schema":
        return read_schema(format, service.config)
    format.end()
    return ANY_OBJECT if kind == "json_object" else None


class ResponseForm:
    """A response is a list of items: a message, calls of functions. As events, each is opened, filled and closed."""

    named = True

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._id = f"resp_{secrets.token_hex(16)}"
        self._created = int(time.time())
        self._number = 0  # of the next event
        self._items: list[dict[str, Any]] = []
        self._text: dict[str, Any] | None = None  # the message that is being written
        self._ended: FinishEvent | None = None

    # -- whole -------------------------------------------------------------------------------------------------------

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
        choice = choices[0]
        if choice.text or not choice.calls:
            self._items.append(_message(choice.text, "completed"))
        self._items += [_call(call, "completed") for call in choice.calls]
        self._ended = choice.ended
        return self._response(usage)

    def _response(self, usage: dict[str, Any] | None) -> dict[str, Any]:
        status, why = "in_progress", None
        if self._ended is not None:
            cut = self._ended.finish == "length"
            status = "incomplete" if cut else "completed"
            why = {"reason": self._ended.cut or "max_output_tokens"} if cut else None
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": why,
            "output": [dict(item) for item in self._items],
            "usage": _usage(usage) if usage is not None else None,
            "previous_response_id": None,
            "store": False,
            "metadata": {},
            "truncation": "disabled",
            **self._told,
        }

    # -- events ------------------------------------------------------------------------------------------------------

    def opening(self, count: int) -> Iterator[dict[str, Any]]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._response(None))

    def events(self, number: int, output: Output) -> Iterator[dict[str, Any]]:
        if isinstance(output, FinishEvent):
            self._ended = output
            if not self._items:
                yield from self._open_text()
            yield from self._close_text()
        elif isinstance(output, ToolCallDelta):
            yield from self._close_text()
            yield from self._call(output)
        elif output.text:
            yield from self._open_text()
            assert self._text is not None
            self._text["content"][0]["text"] += output.text
            yield self._part("response.output_text.delta", delta=output.text, logprobs=[])

    def closing(self, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
        assert self._ended is not None
        kind = "response.incomplete" if self._ended.finish == "length" else "response.completed"
        yield self._event(kind, response=self._response(usage))

    def _open_text(self) -> Iterator[dict[str, Any]]:
        if self._text is not None:
            return
        self._text = _message("", "in_progress")
        self._items.append(self._text)
        yield self._item("response.output_item.added", {**self._text, "content": []})
        yield self._part("response.content_part.added", part=_part(""))

    def _close_text(self) -> Iterator[dict[str, Any]]:
        if self._text is None:
            return
        text = self._text["content"][0]["text"]
        yield self._part("response.output_text.done", text=text, logprobs=[])
        yield self._part("response.content_part.done", part=_part(text))
        self._text["status"] = "completed"
        yield self._item("response.output_item.done", dict(self._text))
        self._text = None

    def _call(self, called: ToolCallDelta) -> Iterator[dict[str, Any]]:
        item = _call(called, "completed")
        self._items.append(item)
        yield self._item("response.output_item.added", {**item, "arguments": "", "status": "in_progress"})
        about = {"item_id": item["id"], "output_index": len(self._items) - 1}
        yield self._event("response.function_call_arguments.delta", delta=called.arguments, **about)
        yield self._event(
            "response.function_call_arguments.done", arguments=called.arguments, name=called.name, **about
        )
        yield self._item("response.output_item.done", dict(item))

    def _item(self, kind: str, item: dict[str, Any]) -> dict[str, Any]:
        return self._event(kind, output_index=len(self._items) - 1, item=item)

    def _part(self, kind: str, **more: Any) -> dict[str, Any]:
        about = {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1, "content_index": 0}
        return self._event(kind, **about, **more)

    def _event(self, kind: str, **more: Any) -> dict[str, Any]:
        number = self._number
        self._number += 1
        return {"type": kind, "sequence_number": number, **more}


def _message(text: str, status: str) -> dict[str, Any]:
    made = {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant"}
    return {**made, "status": status, "content": [_part(text)]}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: ToolCallDelta, status: str) -> dict[str, Any]:
    made = {"id": f"fc_{secrets.token_hex(12)}", "type": "function_call", "call_id": call.id}
    return {**made, "name": call.name, "arguments": call.arguments, "status": status}


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"],
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }

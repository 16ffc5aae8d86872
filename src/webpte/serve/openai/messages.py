"""Messages of a chat as clients write them, in the form that chat templates take."""

from __future__ import annotations

import json
from typing import Any

from ..failures import Refusal
from .fields import MISSING, Fields, shown

ROLES = ("system", "developer", "user", "assistant", "tool")
MOST_MESSAGES = 4096


def messages_from(fields: Fields) -> list[dict[str, Any]]:
    """The field `messages`, each entry checked."""
    given = fields.listed("messages", MOST_MESSAGES)
    if not given:
        raise Refusal(400, "messages is empty; one is the least", param="messages")
    return [_message(Fields(entry, f"messages[{at}]")) for at, entry in enumerate(given)]


def _message(fields: Fields) -> dict[str, Any]:
    role = fields.choice("role", ROLES)
    message: dict[str, Any] = {"role": "system" if role == "developer" else role}
    calls = fields.listed("tool_calls", 128, []) if role == "assistant" else []
    content = _content(fields, None if calls else MISSING)
    message["content"] = content if content is not None else ""
    if calls:
        message["tool_calls"] = [
            _call(Fields(entry, f"{fields.path('tool_calls')}[{at}]")) for at, entry in enumerate(calls)
        ]
    if role == "tool":
        message["tool_call_id"] = fields.text("tool_call_id")
    if (name := fields.text("name", None)) is not None:
        message["name"] = name
    fields.ignore("refusal", "annotations", "audio", "function_call")  # clients send answers back as they came
    fields.end()
    return message


def _content(fields: Fields, default: Any) -> str | None:
    given = fields.raw("content", default)
    if given is default or isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise fields.wrong("content", "a text or a list of parts")
    return "".join(text_part(part, f"{fields.path('content')}[{at}]") for at, part in enumerate(given))


def text_part(part: Any, where: str, kinds: tuple[str, ...] = ("text",)) -> str:
    """A part of a content, which is text or nothing this server knows."""
    inside = Fields(part, where)
    kind = inside.text("type")
    if kind not in kinds:
        raise Refusal(400, f"{where} is of type {shown(kind)}; this server reads {', '.join(kinds)} only", param=where)
    return str(inside.text("text"))


def _call(fields: Fields) -> dict[str, Any]:
    """A call of a tool in an earlier answer. Templates want arguments as an object."""
    fields.choice("type", ("function",), "function")
    identity = fields.text("id")
    function = fields.inside("function")
    name = function.text("name")
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments_of(function)}}


def arguments_of(function: Fields) -> dict[str, Any]:
    """The arguments of a call, which are written as JSON in a text."""
    text = function.text("arguments")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise function.wrong("arguments", "a JSON object, written as a text")
    return found

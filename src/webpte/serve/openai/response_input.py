"""The input of `/v1/responses`, as messages that chat templates take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..failures import Refusal
from .fields import MISSING, Fields, shown
from .messages import MOST_MESSAGES, arguments_of, text_part

ROLES = ("system", "developer", "user", "assistant")
TEXTS = ("input_text", "output_text", "text")


def messages_of(fields: Fields) -> list[dict[str, Any]]:
    """The fields `instructions` and `input`."""
    told = fields.text("instructions", None)
    first = [{"role": "system", "content": told}] if told is not None else []
    given = fields.raw("input", MISSING)
    if isinstance(given, str):
        return [*first, {"role": "user", "content": given}]
    entries = fields.listed("input", MOST_MESSAGES)
    if not entries:
        raise Refusal(400, "input is empty; one item is the least", param="input")
    messages = first
    for at, entry in enumerate(entries):
        item = Fields(entry, f"input[{at}]")
        kind = item.text("type", "message")
        if kind not in KINDS:
            raise Refusal(
                400, f"input[{at}] is of type {shown(kind)}; this server knows {', '.join(KINDS)}", param=f"input[{at}]"
            )
        message = KINDS[kind](item)
        item.ignore("id", "status", "phase")
        item.end()
        _add(messages, message)
    return messages


def _add(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Calls that follow each other, or what was said before them, are one message to a template."""
    if "tool_calls" in message and messages and messages[-1]["role"] == "assistant":
        messages[-1].setdefault("tool_calls", []).extend(message["tool_calls"])
    else:
        messages.append(message)


def _message(item: Fields) -> dict[str, Any]:
    role = item.choice("role", ROLES)
    given = item.raw("content", MISSING)
    if isinstance(given, list):
        where = item.path("content")
        given = "".join(text_part(part, f"{where}[{at}]", TEXTS) for at, part in enumerate(given))
    elif not isinstance(given, str):
        raise item.wrong("content", "a text or a list of parts")
    return {"role": "system" if role == "developer" else role, "content": given}


def _call(item: Fields) -> dict[str, Any]:
    function = {"name": item.text("name"), "arguments": arguments_of(item)}
    call = {"id": item.text("call_id"), "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _output(item: Fields) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": item.text("call_id"), "content": item.text("output")}


KINDS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _output,
}

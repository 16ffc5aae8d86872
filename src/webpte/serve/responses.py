"""Responses: JSON objects, errors, event streams and streams of lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import Error
from .anthropic.response_types import ERROR_TYPES, AnthropicError
from .clients import ClientDisconnected, until_disconnect
from .errors import ApiError, api_error
from .ollama.response_types import OllamaError
from .openai.response_types import ErrorBody

DONE = b"data: [DONE]\n\n"
ENCODED_ITEMS = 64  # of a list in a response, at once
OLLAMA_PATH, ANTHROPIC_PATH = "/api", "/v1/messages"  # the beginning of all paths of an API


class JsonResponse(Response):
    """A JSON object. A lone surrogate, which generated tool arguments may contain, is written as a question mark.

    A response with a list of unbounded length is made with `run_in_thread`.
    """

    media_type = "application/json"

    def __init__(self, content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(_encode_json(content).encode("utf-8", "replace"), status, headers)


def _encode_json(content: Mapping[str, Any]) -> str:
    """Return the JSON of an object. Lists are encoded in parts: the encoder keeps all other threads from running, and a
    million tokens would take it a second."""
    fields = []
    for name, value in content.items():
        text = json.dumps(value, ensure_ascii=False) if not isinstance(value, list) else _encode_list(value)
        fields.append(f"{json.dumps(name, ensure_ascii=False)}: {text}")
    return "{" + ", ".join(fields) + "}"


def _encode_list(items: list[Any]) -> str:
    parts = (items[start : start + ENCODED_ITEMS] for start in range(0, len(items), ENCODED_ITEMS))
    return "[" + ", ".join(json.dumps(part, ensure_ascii=False)[1:-1] for part in parts) + "]"


def is_ollama(path: str) -> bool:
    """Return whether a path belongs to Ollama's API."""
    return _is_below(path, OLLAMA_PATH)


def is_anthropic(path: str) -> bool:
    """Return whether a path belongs to Anthropic's API."""
    return _is_below(path, ANTHROPIC_PATH)


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")


def error_body(error: ApiError, path: str) -> ErrorBody | OllamaError | AnthropicError:
    """Return an error in the form of the API that the path belongs to."""
    if is_ollama(path):
        return {"error": str(error)}
    if is_anthropic(path):
        return {"type": "error", "error": {"type": ERROR_TYPES[error.status], "message": str(error)}}
    return error.body()


def error_response(error: ApiError, path: str) -> Response:
    """Return a response with an error."""
    return JsonResponse(error_body(error, path), error.status, error.headers)


class EventStream(Response):
    """Server-sent events. `finish` runs however the stream ends: completed, failed, or disconnected."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[Mapping[str, Any]],
        finish: Callable[[], Awaitable[None]],
        *,
        write_timeout: float,
        named: bool = False,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._finish = finish
        self._write_timeout = write_timeout
        self._named = named  # each event has a name, and there is no [DONE]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(receive, self._send_all(send, scope["path"]))
        finally:
            await self._finish()

    async def _send_all(self, send: Send, path: str) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for event in self._events:
                await self._send(send, self._encoded(event))
            if not self._named:
                await self._send(send, DONE)
        except (Error, ApiError) as error:
            await self._send(send, self._encoded(self._last_event(error_body(api_error(error), path))))
        except TimeoutError:
            raise ClientDisconnected from None  # a client that does not read is as good as gone
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(self._write_timeout):  # `wait_for` of Python 3.11 may lose a cancellation
            await send({"type": "http.response.body", "body": data, "more_body": True})

    def _last_event(self, error: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"type": "error", **error}

    def _encoded(self, event: Mapping[str, Any]) -> bytes:
        name = f"event: {event['type']}\n" if self._named else ""
        return f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


class LineStream(EventStream):
    """A JSON object per line, as Ollama's API has it."""

    media_type = "application/x-ndjson"

    def __init__(
        self,
        events: AsyncIterator[Mapping[str, Any]],
        finish: Callable[[], Awaitable[None]],
        *,
        write_timeout: float,
        named: bool = True,
    ) -> None:
        super().__init__(events, finish, write_timeout=write_timeout, named=True)  # without [DONE]

    def _last_event(self, error: Mapping[str, Any]) -> Mapping[str, Any]:
        return error

    def _encoded(self, event: Mapping[str, Any]) -> bytes:
        return f"{json.dumps(event, ensure_ascii=False)}\n".encode("utf-8", "replace")

"""Answers on their way to a client who may leave, or read slowly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import Error
from .failures import Refusal, refusal_of

Result = TypeVar("Result")
DONE = b"data: [DONE]\n\n"
NOBODY = 499  # the status in logs of a request whose client has left; nobody is sent it


class ClientDisconnected(Exception):  # noqa: N818 - it is nobody's error
    """The client has gone."""


async def run_until_disconnect(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is given up when the client goes. The body must have been read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_leaving(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _leaving(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Events(Response):
    """Server-sent events. `finish` is called whatever ends them: the last one, an error, a client that leaves."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[Mapping[str, Any]],
        finish: Callable[[], Awaitable[None]],
        *,
        write_seconds: float,
        named: bool = False,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._finish = finish
        self._write_seconds = write_seconds
        self._named = named  # each says its type before its data, and none says that all is done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_leaving(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                scope["state"]["log"]["left"] = True
            else:
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._finish()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for event in self._events:
                await self._send(send, self._encoded(event))
            if not self._named:
                await self._send(send, DONE)
        except (Error, Refusal) as error:
            await self._send(send, self._encoded({"type": "error", **refusal_of(error).body()}))
        except TimeoutError:
            raise ClientDisconnected from None  # in effect
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(self._write_seconds):  # `wait_for` of Python 3.11 may lose a cancellation
            await send({"type": "http.response.body", "body": data, "more_body": True})

    def _encoded(self, event: Mapping[str, Any]) -> bytes:
        name = f"event: {event['type']}\n" if self._named else ""
        return f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def refused(refusal: Refusal) -> Response:
    return Json(refusal.body(), refusal.status, refusal.headers)


class Json(Response):
    """A body of JSON. Half a surrogate pair, which a model may say, is written as a mark."""

    media_type = "application/json"

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"), status, headers)

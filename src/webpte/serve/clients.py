"""Clients of the server: who sends a request, how work is done for it, and when it is gone."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from .accounts import RequestClock

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive

Result = TypeVar("Result")
IPV6_CLIENT_BITS = 64  # a subscriber has at least a network of this length, and all its addresses


@lru_cache(maxsize=1024)
def client_of_address(address: str) -> str:
    """Return the name of the client at an IP address. All addresses of one IPv6 network are one client."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # such as the path of a socket
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(parsed), IPV6_CLIENT_BITS), strict=False))
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def clock_of(request: Request) -> RequestClock:
    """Return the clock of a request, which `RequestMiddleware` has started."""
    clock: RequestClock = request.scope["state"]["clock"]
    return clock


def client_of(request: Request) -> str:
    """Return the client that sent a request, as `RequestMiddleware` knows it."""
    client: str = request.scope["state"]["client"]
    return client


async def run_in_thread(request: Request, function: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of a function, called in a thread. There are few threads, so each client has one at a time. The
    body must have been read."""
    async with request.app.state.service.threads.slot(client_of(request)):
        if await request.is_disconnected():
            raise ClientDisconnected
        return await asyncio.to_thread(function, *arguments)


class ClientDisconnected(Exception):  # noqa: N818 - not an error of the server
    """The client closed its connection."""


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`. If the client disconnects first, cancel it and raise ClientDisconnected. The body
    must have been read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

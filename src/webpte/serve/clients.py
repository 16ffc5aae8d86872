"""Clients of the server: who sends a request, how clients share what the server has, and when one is gone."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive

Item = TypeVar("Item")
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


class FairQueue(Generic[Item]):
    """Items that wait for a slot, by client. The next slot goes to the client that holds the fewest; among several, to
    the one whose last turn was longest ago. The items of one client keep their order."""

    def __init__(self, slots: int, max_per_client: int) -> None:
        self.slots = slots
        self.max_per_client = max_per_client
        self._waiting: dict[str, deque[Item]] = {}  # in the order of turns
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def num_held(self) -> int:
        """Return the number of slots that are taken."""
        return self._held.total()

    def push(self, client: str, item: Item) -> None:
        self._waiting.setdefault(client, deque()).append(item)

    def has_slot(self, client: str) -> bool:
        """Return whether a client could have another slot now."""
        return self.num_held < self.slots and self._held[client] < self.max_per_client

    def pop(self) -> Item | None:
        """Remove the next item and give its client a slot. Return None if no client can have another one."""
        clients = [client for client in self._waiting if self.has_slot(client)]
        if not clients:
            return None
        client = min(clients, key=lambda each: self._held[each])
        items = self._waiting.pop(client)
        item = items.popleft()
        if items:
            self._waiting[client] = items  # after the others
        self._held[client] += 1
        return item

    def release(self, client: str) -> None:
        """Free a slot of a client."""
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]

    def remove(self, client: str, item: Item) -> None:
        """Remove an item that waits."""
        self._waiting[client].remove(item)
        if not self._waiting[client]:
            del self._waiting[client]

    def to_displace(self, client: str) -> Item | None:
        """Return the item to drop for one of `client`: the newest of the client with the longest queue.

        Return None if `client` would then have as many itself.
        """
        most = max(self._waiting.values(), key=len, default=deque[Item]())
        return most[-1] if len(most) > len(self._waiting.get(client, ())) + 1 else None


class ClientTurns:
    """Lets each client do one thing at a time, so that the others need not wait for all that one has begun."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for the turn of a client, and keep it during the block."""
        lock = self._locks.setdefault(client, asyncio.Lock())
        self._users[client] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[client] -= 1
            if not self._users[client]:
                del self._users[client], self._locks[client]


# -- work for a client -----------------------------------------------------------------------------------------------


def client_of(request: Request) -> str:
    """Return the client that sent a request, as `RequestMiddleware` knows it."""
    client: str = request.scope["state"]["client"]
    return client


async def run_in_thread(request: Request, function: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of a function, called in a thread. There are few threads, so each client has one at a time. The
    body must have been read."""
    turns: ClientTurns = request.app.state.service.turns
    async with turns.turn(client_of(request)):
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

"""Clients of the server: who sends a request, and how clients share what the server has."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections import Counter, deque
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Generic, TypeVar

Item = TypeVar("Item")
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

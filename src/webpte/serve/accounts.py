"""Accounts of clients: what each takes of the server, charged before the work is done and shared fairly.

A client is an API key, or the address of a connection before a key has been checked and where there are no keys. Every
resource has one row in `RESOURCES`. What is used up, such as seconds, decides which client is next. What is held, such
as bytes, has a limit for each client and for all together.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from .errors import ApiError

Item = TypeVar("Item")
Resource = Literal[
    "connections", "events", "requests", "bytes", "media_bytes", "thread_seconds", "decoding_seconds",
    "download_seconds", "compiling_seconds", "recording_seconds", "prompt_tokens",
]  # fmt: skip
RESOURCES: Mapping[Resource, str] = {
    "connections": "connections",
    "events": "events of the HTTP parser",
    "requests": "requests in progress",
    "bytes": "bytes of request bodies",
    "media_bytes": "bytes of decoded audio and images",
    "thread_seconds": "seconds of parsing, tokenizing and writing responses",
    "decoding_seconds": "seconds of decoding audio and images",
    "download_seconds": "seconds of downloading images",
    "compiling_seconds": "seconds of compiling schemas",
    "recording_seconds": "seconds for which a recording was decoded and transcribed",
    "prompt_tokens": "tokens of prompts",
}
HELD: tuple[Resource, ...] = ("connections", "requests", "bytes", "media_bytes")  # until they are given back
HALF_LIFE_SECONDS = 30.0  # in which what a client has used counts half
LIGHT_SECONDS = 2.0  # of recent use, below which a client may take a reserved slot
MIN_SECONDS = 0.001
MAX_ACCOUNTS = 4096  # beyond, those that hold nothing are forgotten
RETRY = {"Retry-After": "1"}


class Account:
    """What one client holds, and what it has used lately."""

    def __init__(self) -> None:
        self.held: Counter[Resource] = Counter()
        self._used: dict[Resource, tuple[float, float]] = {}  # an amount, and when it was that

    def use(self, resource: Resource, amount: float) -> None:
        self._used[resource] = (self.recent(resource) + amount, time.monotonic())

    def recent(self, resource: Resource) -> float:
        """Return what was used of a resource, of which half is forgotten every `HALF_LIFE_SECONDS`."""
        amount, when = self._used.get(resource, (0.0, 0.0))
        return amount * 0.5 ** ((time.monotonic() - when) / HALF_LIFE_SECONDS) if amount else 0.0


@dataclass(frozen=True)
class ByteLimit:
    """The bytes that all requests may hold together, and those of one client, with the options that set them."""

    total: int
    client: int
    option: str
    client_option: str


class Accounts:
    """The accounts of all clients of a server, and the bytes that their requests may hold together."""

    def __init__(self, max_bytes: int, max_client_bytes: int = 0, max_media_bytes: int = 0) -> None:
        """Take the limits. With `max_client_bytes` 0, one client may have half of all, as of decoded media."""
        self._limits: dict[Resource, ByteLimit] = {
            "bytes": ByteLimit(max_bytes, max_client_bytes or max_bytes // 2, "max_held_bytes", "max_client_bytes"),
            "media_bytes": ByteLimit(
                max_media_bytes, max_media_bytes // 2, "max_media_bytes", "half of max_media_bytes"
            ),
        }
        self.totals: Counter[Resource] = Counter()  # used since the start, or held now
        self.refused: Counter[Resource] = Counter()
        self._accounts: dict[str, Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, client: str) -> Account:
        """Return the account of a client."""
        account = self._accounts.get(client)
        if account is None:
            if len(self._accounts) >= MAX_ACCOUNTS:
                self._accounts = {name: each for name, each in self._accounts.items() if each.held.total()}
            account = self._accounts[client] = Account()
        return account

    def largest(self, resource: Resource) -> float:
        """Return the most that one client holds of a resource, or has used of it lately."""
        if resource in HELD:
            return max((each.held[resource] for each in self._accounts.values()), default=0)
        return max((each.recent(resource) for each in self._accounts.values()), default=0.0)

    def charge(self, client: str, resource: Resource, amount: float) -> None:
        """Charge what a client uses up."""
        self.of(client).use(resource, amount)
        self.totals[resource] += amount  # type: ignore[assignment]  # seconds are not whole

    def take(self, client: str, resource: Resource, amount: int = 1) -> None:
        """Charge what a client holds until `give_back`."""
        self.of(client).held[resource] += amount
        self.totals[resource] += amount

    def give_back(self, client: str, resource: Resource, amount: int = 1) -> None:
        account = self.of(client)
        account.held[resource] -= amount
        if account.held[resource] <= 0:
            del account.held[resource]
        self.totals[resource] -= amount

    @contextlib.contextmanager
    def request(self, client: str, limit: int) -> Iterator[None]:
        """Hold one request of a client. Raise ApiError 429 if it has as many as can be computed and wait."""
        if self.of(client).held["requests"] >= limit:
            self.refused["requests"] += 1
            raise ApiError(
                429, f"this client has {limit} requests in progress. Retry in 1 second.", code="too_many_requests",
                headers=RETRY,
            )  # fmt: skip
        self.take(client, "requests")
        try:
            yield
        finally:
            self.give_back(client, "requests")

    def take_bytes(self, client: str, amount: int, resource: Resource = "bytes") -> None:
        """Take bytes before they are read or kept. Raise ApiError 429 if the client has its part, 503 if all have."""
        limit = self._limits[resource]
        kind, wait = RESOURCES[resource], {"Retry-After": "1", "Connection": "close"}
        if self.of(client).held[resource] + amount > limit.client:
            self.refused[resource] += 1
            raise ApiError(
                429, f"the requests of this client may have {limit.client} {kind} together ({limit.client_option}). "
                "Retry in 1 second.", code="too_many_bytes", headers=wait,
            )  # fmt: skip
        if self.totals[resource] + amount > limit.total:
            self.refused[resource] += 1
            raise ApiError(
                503, f"all requests may have {limit.total} {kind} together ({limit.option}). Retry in 1 second.",
                code="too_many_bytes", headers=wait,
            )  # fmt: skip
        self.take(client, resource, amount)

    def hold_media(self, until: contextlib.ExitStack, client: str, amount: int) -> None:
        """Take bytes of decoded media, and give them back when the stack is closed."""
        self.take_bytes(client, amount, "media_bytes")
        until.callback(self.give_back, client, "media_bytes", amount)


class FairQueue(Generic[Item]):
    """Items that wait for a slot, by client. The next slot goes to the client that holds the fewest; among several, to
    the one that has used least lately, and then to the one whose last turn was longest ago. The items of one client
    keep their order."""

    def __init__(
        self, slots: int, max_per_client: int, recent: Callable[[str], float] = lambda client: 0.0, reserved: int = 0
    ) -> None:
        """Take `recent`, which returns what a client has used lately. Clients that have used much leave `reserved`
        slots free."""
        self.slots = slots
        self.max_per_client = max_per_client
        self._recent = recent
        self._reserved = reserved
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
        free = self.slots - self.num_held
        if self._reserved and self._recent(client) >= LIGHT_SECONDS:
            free -= self._reserved
        return free > 0 and self._held[client] < self.max_per_client

    def pop(self) -> Item | None:
        """Remove the next item and give its client a slot. Return None if no client can have another one."""
        clients = [client for client in self._waiting if self.has_slot(client)]
        if not clients:
            return None
        client = min(clients, key=lambda each: (self._held[each], self._recent(each)))
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


class RequestClock:
    """The seconds that a request has left until its last byte, and to wait for decoders, helpers and slots."""

    def __init__(self, total: float, waiting: float) -> None:
        self._ends = time.monotonic() + total
        self._waiting = waiting

    @property
    def left(self) -> float:
        """Return the seconds until the request has to end, more than 0."""
        return max(MIN_SECONDS, self._ends - time.monotonic())

    @property
    def left_to_wait(self) -> float:
        """Return the seconds for which the request may still wait."""
        return max(MIN_SECONDS, min(self._waiting, self.left))

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block as waiting."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._waiting -= time.monotonic() - began


class Pool:
    """Slots of one kind of work. The seconds for which a client has a slot are charged to it, and the next slot goes to
    the client that has used least lately."""

    def __init__(
        self, accounts: Accounts, resource: Resource, slots: int, max_per_client: int = 1, reserved: int = 0
    ) -> None:
        self._accounts = accounts
        self._resource: Resource = resource
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(
            slots, max_per_client, lambda client: accounts.of(client).recent(resource), reserved
        )

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._queue)

    @contextlib.asynccontextmanager
    async def slot(
        self, client: str, timeout: float | None = None, clock: RequestClock | None = None
    ) -> AsyncIterator[None]:
        """Wait for a slot, and keep it during the block. Raise ApiError 503 after `timeout` seconds, by default those
        that a clock has left to wait."""
        if clock is None:
            await self._wait(client, timeout)
        else:
            with clock.waiting():
                await self._wait(client, clock.left_to_wait if timeout is None else timeout)
        started = time.monotonic()
        try:
            yield
        finally:
            self._accounts.charge(client, self._resource, time.monotonic() - started)
            self._queue.release(client)
            self._dispatch()

    async def _wait(self, client: str, timeout: float | None) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.push(client, turn)
        self._dispatch()
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wait([turn])
        except BaseException as error:
            if turn.done():
                self._queue.release(client)
                self._dispatch()
            else:
                self._queue.remove(client, turn)
            if not isinstance(error, TimeoutError):
                raise
            self._accounts.refused[self._resource] += 1
            raise ApiError(
                503, f"other requests took all {RESOURCES[self._resource]} for {timeout:g} s. Try again later.",
                headers={"Retry-After": "5"},
            ) from None  # fmt: skip

    def _dispatch(self) -> None:
        while (turn := self._queue.pop()) is not None:
            turn.set_result(None)

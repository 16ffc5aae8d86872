"""Many clients at once, of whom most do something wrong: see `python -m tests.serving load`."""

from __future__ import annotations

import asyncio
import collections
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.support.harness.serving import Running, children_of

CHAT = "/v1/chat/completions"
WARM = 200  # requests, after which memory is looked at first
GROWTH = 1.02
FULL = 429
SAMPLES = 12  # of memory, half a second apart; it is given back a second after the last request, and the least counts
NESTED: Any = {"type": "string"}
for _ in range(60):
    NESTED = {"anyOf": [NESTED, {"type": "array", "items": NESTED}]} if len(str(NESTED)) < 20_000 else NESTED
HOSTILE: tuple[Any, ...] = (
    {"type": "array", "uniqueItems": True},
    {"$ref": "https://example.com/schema.json"},
    {"$ref": "#"},
    {"type": "string", "pattern": "(a|aa)+" * 40 + "$"},
    {"type": "string", "pattern": "["},
    {"enum": []},
    {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(2000)}},
    {"type": "string", "minLength": 2_000_000},
    NESTED,
)
KINDS = ("ask", "stream", "leave", "leave", "read_slowly", "oversize", "no_json", "hostile", "unknown")


class Turn(NamedTuple):
    """The action of one request, and its numbers."""

    kind: str
    schema: Any  # of a hostile one
    seed: int


def turns(count: int, seed: int) -> list[Turn]:
    """Shuffled, but so that each 81 in a row hold every kind with every hostile schema: the first 200 bring all."""
    chance = random.Random(seed)
    results: list[Turn] = []
    while len(results) < count:
        block = [Turn(kind, schema, chance.getrandbits(32)) for kind, schema in itertools.product(KINDS, HOSTILE)]
        chance.shuffle(block)
        results += block
    return results[:count]


class Client:
    """The actions of a client. Each returns a status: 0 if the client left, -1 if it was cut off."""

    def __init__(self, http: httpx.AsyncClient, model: str, turn: Turn) -> None:
        self._http = http
        self._model = model
        self._turn = turn
        self._chance = random.Random(turn.seed)

    async def act(self) -> int:
        does: Callable[[], Awaitable[int]] = getattr(self, self._turn.kind)
        try:
            return await does()
        except httpx.TransportError:  # a connection that was kept, and closed as it was used again
            return -1

    def _body(self, **more: Any) -> dict[str, Any]:
        text = "x" * self._chance.randrange(1, 40)
        tokens = self._chance.randrange(1, 24)
        messages = [{"role": "user", "content": text}]
        return {"model": self._model, "messages": messages, "max_tokens": tokens, **more}

    async def _post(self, **more: Any) -> int:
        return (await self._http.post(CHAT, json=self._body(**more))).status_code

    async def ask(self) -> int:
        return await self._post(n=self._chance.randrange(1, 3))

    async def stream(self) -> int:
        return await self._post(stream=True)

    async def leave(self) -> int:
        """After a while, whether there was an answer or not."""
        try:
            async with asyncio.timeout(self._chance.random() * 0.5):
                return await self._post(stream=self._chance.random() < 0.5, max_tokens=500)
        except TimeoutError:
            return 0

    async def read_slowly(self) -> int:
        async with self._http.stream("POST", CHAT, json=self._body(stream=True)) as response:
            async for _ in response.aiter_bytes(64):
                await asyncio.sleep(0.01)
            return response.status_code

    async def oversize(self) -> int:
        try:
            return await self._post(user="x" * 200_000)
        except httpx.TransportError:  # the server has said 413 and closed before all of it was sent
            return 413

    async def no_json(self) -> int:
        data = bytes(self._chance.randrange(256) for _ in range(200))
        return (await self._http.post(CHAT, content=data, headers={"Content-Type": "application/json"})).status_code

    async def hostile(self) -> int:
        schema = {"name": "hostile", "schema": self._turn.schema}
        return await self._post(response_format={"type": "json_schema", "json_schema": schema})

    async def unknown(self) -> int:
        return await self._post(model="nobody")


class Pressed(NamedTuple):
    """Results of a loaded server: ends of answers, and memory of both processes when it was idle."""

    statuses: collections.Counter[int]
    health: dict[str, Any]
    memory: dict[int, dict[str, int]]  # by the number of requests that were over


async def press(running: Running, model: str, marks: Sequence[int], clients: int, seed: int) -> Pressed:
    """Send the number of requests of the last mark. At each mark, wait until the server is idle, and measure."""
    statuses: collections.Counter[int] = collections.Counter()
    planned = turns(marks[-1], seed)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=running.url, timeout=300, limits=limits) as http:

        async def send(some: Sequence[Turn]) -> None:
            left = iter(some)

            async def one() -> None:
                for turn in left:
                    while (status := await Client(http, model, turn).act()) == FULL:
                        statuses[FULL] += 1
                        await asyncio.sleep(1)  # as it is asked to, before it comes again
                    statuses[status] += 1

            await asyncio.gather(*(one() for _ in range(clients)))

        results: dict[int, dict[str, int]] = {}
        health: dict[str, Any] = {}
        for start, end in itertools.pairwise((0, *marks)):
            await send(planned[start:end])
            health = await quiet(http)
            results[end] = await memory(running)
        return Pressed(statuses, health, results)


async def quiet(http: httpx.AsyncClient, seconds: float = 60) -> dict[str, Any]:
    """Return the server's statistics when it is idle, or after that many seconds."""
    health: dict[str, Any] = {}
    for _ in range(int(10 * seconds)):
        await asyncio.sleep(0.1)
        health = (await http.get("/health")).json()
        if not health["busy"] and not health["queued"]:
            break
    return health


async def memory(running: Running) -> dict[str, int]:
    """Bytes that each process has for itself: the least of several looks."""
    (worker,) = children_of(running.pid)
    results: dict[str, list[int]] = {"server": [], "worker": []}
    for _ in range(SAMPLES):
        await asyncio.sleep(0.5)
        for name, pid in zip(results, (running.pid, worker), strict=True):
            results[name].append(resident(pid))
    return {name: min(sizes) for name, sizes in results.items()}


def resident(pid: int) -> int:
    """Bytes in memory, of what the kernel counts one by one instead of roughly."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith("Rss:"))
    return 1024 * kilobytes


def judge(pressed: Pressed) -> list[str]:
    """Return the failures. Memory must not grow after the first mark."""
    wrong = [f"{count} answers of status {status}" for status, count in pressed.statuses.items() if status >= 500]
    if not pressed.statuses[200]:
        wrong.append("nobody was answered")
    if pressed.health["busy"] or pressed.health["queued"]:
        wrong.append(f"slots are still taken: {pressed.health}")
    before, after = (list(pressed.memory.values())[number] for number in (0, -1))
    for name, size in before.items():
        growth = after[name] / size
        if not growth <= GROWTH:
            wrong.append(f"the {name} has grown by {growth:.4f}")
    return wrong


def run(path: str, marks: Sequence[int], clients: int, seed: int) -> list[str]:
    """Print the results; return the failures."""
    arguments = ("--max-body-bytes", 100_000, "--max-queue", 32, "--warmup", "--log-level", "warning")
    patience = ("--queue-timeout", 600, "--ttft-timeout", 600)  # of a busy machine
    with Running(f"m={path}", *arguments, *patience) as running:
        pressed = asyncio.run(press(running, "m", marks, clients, seed))
    print(f"statuses {dict(sorted(pressed.statuses.items()))}; {pressed.health}")
    last = pressed.memory[marks[-1]]
    for number, sizes in pressed.memory.items():
        text = ", ".join(f"{name} {size / 1e6:.1f} MB (x {last[name] / size:.4f})" for name, size in sizes.items())
        print(f"behind {number:,} requests: {text}")
    return judge(pressed) + [f"the log: {line}" for line in running.lines if '"level": "error"' in line]


def show(path: str, requests: int, clients: int, seed: int) -> int:
    marks = sorted({min(WARM, requests // 4), requests // 2, requests})
    wrong = run(path, marks, clients, seed)
    for line in wrong:
        print(f"WRONG: {line}")
    return int(bool(wrong))

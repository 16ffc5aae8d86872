"""A server whose worker is killed, or loses its device, at random moments of four streams.

The server is a process, and the streams are read over HTTP. What they say must not change.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.harness.serving import Running, children_of

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "sizes": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["name", "sizes"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "sizes", "schema": SCHEMA}}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0, "response_format": FORMAT},
    {"temperature": 1.2, "top_p": 0.95, "seed": 7, "frequency_penalty": 0.2},
    {"temperature": 1.0, "seed": 11, "logprobs": 2},
)
READY = 120.0  # seconds for a worker to be there again


@dataclass(frozen=True)
class Answered:
    """An answer as a client sees it."""

    text: str
    reason: str
    tokens: int
    events: int
    longest: float  # wait for one

    @property
    def said(self) -> tuple[str, str, int]:
        return self.text, self.reason, self.tokens


@dataclass(frozen=True)
class Round:
    """One kill of the worker or loss of the device."""

    how: str
    open: int  # streams at that moment
    wrong: tuple[int, ...]  # which of the answers
    errors: tuple[str, ...]
    pause: float  # the longest wait of all clients
    recovery: float  # until another worker was ready; 0 where it continued by itself


def asks(model: str, prompt: int, most: int) -> list[dict[str, Any]]:
    """Return a body for each of the settings. The last one's stop string is found by `with_stop`."""
    chosen = random.Random(5)
    about = {"model": model, "max_tokens": most, "stream": True, "stream_options": {"include_usage": True}}
    return [about | {"prompt": [chosen.randrange(40, 120) for _ in range(prompt)]} | own for own in SETTINGS]


class Streams:
    """Clients of one server, and the blows that its worker gets."""

    def __init__(self, running: Running, http: httpx.AsyncClient) -> None:
        self._running = running
        self._http = http

    async def answer(self, body: dict[str, Any], at: int = 0, strike: Callable[[], None] | None = None) -> Answered:
        """Return a whole stream, and strike at one of its events. Raise the error of a server that reports one."""
        text, reason, tokens, events, longest, last = "", "", -1, 0, 0.0, time.monotonic()
        async with self._http.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != 200:
                raise AssertionError(f"status {response.status_code}: {(await response.aread()).decode()}")
            async for line in response.aiter_lines():
                now = time.monotonic()
                longest, last = max(longest, now - last), now
                if line in ("", "data: [DONE]"):
                    continue
                events += 1
                if events == at and strike is not None:
                    strike()
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise AssertionError(f"an event is an error: {event['error']}")
                for choice in event["choices"]:
                    text += choice["text"]
                    reason = choice["finish_reason"] or reason
                if event.get("usage"):
                    tokens = event["usage"]["completion_tokens"]
        assert reason and tokens >= 0, "an answer has no end"
        return Answered(text, reason, tokens, events, longest)

    async def with_stop(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the last request again, with a stop string of three characters that are late in its answer."""
        said = (await self.answer(asked[-1])).text
        at = len(said) * 3 // 4
        return [*asked[:-1], asked[-1] | {"stop": [said[at : at + 3]]}]

    async def undisturbed(self, asked: Sequence[dict[str, Any]]) -> list[Answered]:
        """Each alone; and all of them at once, which must be the same."""
        expected = [await self.answer(body) for body in asked]
        together = await asyncio.gather(*map(self.answer, asked))
        assert [one.said for one in together] == [one.said for one in expected]
        return expected

    async def counted(self, name: str) -> float:
        """A number of the server's metrics."""
        match = re.search(rf"^webpte_{name} (\S+)$", (await self._http.get("/metrics")).text, re.MULTILINE)
        assert match is not None, name
        return float(match[1])

    async def _ready_again(self, restarts: float) -> None:
        async with asyncio.timeout(READY):
            while await self.counted("restarts_total") <= restarts or (await self._http.get("/health")).is_error:
                await asyncio.sleep(0.02)

    async def blow(
        self, asked: Sequence[dict[str, Any]], expected: Sequence[Answered], how: signal.Signals, part: float
    ) -> Round:
        """Four answers, and one blow when the first of them has that part of its events: so none is over by then."""
        restarts = await self.counted("restarts_total")
        (worker,) = children_of(self._running.pid)
        struck: list[int] = []  # streams that were open

        def hit() -> None:
            if not struck:
                os.kill(worker, how)
                struck.append(sum(not stream.done() for stream in streams))

        places = [max(1, int(part * one.events)) for one in expected]
        pairs = zip(asked, places, strict=True)
        streams = [asyncio.create_task(self.answer(body, at, hit)) for body, at in pairs]
        actual = await asyncio.gather(*streams, return_exceptions=True)
        if how == signal.SIGKILL:
            await self._ready_again(restarts)  # where the answers were over before
        again = await self.counted("restarts_total") > restarts
        good = [one if isinstance(one, Answered) else None for one in actual]
        both = enumerate(zip(good, expected, strict=True))
        return Round(
            how.name,
            struck[0],
            tuple(number for number, (one, want) in both if one is None or one.said != want.said),
            tuple(repr(one) for one in actual if not isinstance(one, Answered)),
            max((one.longest for one in good if one is not None), default=0.0),
            await self.counted("recovery_seconds") if again else 0.0,
        )

    async def rounds(self, asked: Sequence[dict[str, Any]], count: int, seed: int) -> list[Round]:
        """Blows of both kinds in turn, each at a random moment."""
        moments = random.Random(seed)
        whole = await self.with_stop(list(asked))
        expected = await self.undisturbed(whole)
        assert expected[-1].reason == "stop"
        hows = [(signal.SIGKILL, signal.SIGUSR1)[number % 2] for number in range(count)]
        return [await self.blow(whole, expected, how, moments.uniform(0, 0.9)) for how in hows]


async def strike(running: Running, model: str, count: int, seed: int, tokens: int) -> tuple[list[Round], float, float]:
    """Kill the worker or lose the device; return the observations, restarts, and losses without a restart."""
    async with httpx.AsyncClient(base_url=running.url, timeout=300) as http:
        streams = Streams(running, http)
        result = await streams.rounds(asks(model, 12, tokens), count, seed)
        await asyncio.sleep(2)  # what the worker counts comes with its answers to pings, one a second
        return result, await streams.counted("restarts_total"), await streams.counted("device_losses_total")


def run(path: str, count: int, seed: int, tokens: int) -> list[Round]:
    """Prints what was seen."""
    arguments = (f"m={path}", "--slots", 4, "--log-level", "error")
    with Running(*arguments, module="tests.serving.hurt_server") as running:
        result, restarts, losses = asyncio.run(strike(running, "m", count, seed, tokens))
    for number, one in enumerate(result):
        output = " ".join((str(one.wrong or "equal"), *one.errors))
        print(f"{number:3} {one.how} with {one.open} streams open: {output}; pause {one.pause:.2f} s")
    print(f"{restarts:.0f} restarts, {losses:.0f} losses survived in the worker.")
    recoveries = [one.recovery for one in result if one.recovery]
    if recoveries:
        middle = statistics.median(recoveries)
        print(f"ready again after {min(recoveries):.2f} to {max(recoveries):.2f} s, in the middle {middle:.2f} s")
    for how in ("SIGKILL", "SIGUSR1"):
        pauses = [one.pause for one in result if one.how == how]
        if pauses:
            print(f"{how}: clients waited {statistics.median(pauses):.2f} s in the middle, {max(pauses):.2f} s at most")
    return result


def show(path: str, count: int, seed: int, tokens: int) -> int:
    result = run(path, count, seed, tokens)
    bad = [one for one in result if one.wrong or one.errors]
    print(f"{len(result) - len(bad)} of {len(result)} rounds left the text of {len(SETTINGS)} streams as it was.")
    return int(bool(bad))

"""Many streams by HTTP, beside the engine without it: see `python -m tests.serving streams`."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.studies.batching.requests import CHANGED, read
from tests.support.harness.serving import Running, children_of, event_in
from webpte.llm import LLM
from webpte.llm.generation import create_generation

SIZES = (1, 4, 8, 16)
WARM = 3  # turns, by which both have compiled all and made the slots they will have
TICKS = os.sysconf("SC_CLK_TCK")
BEGINNINGS = (
    "The lighthouse keeper climbed the stairs and", "Water boils at a hundred degrees because", "Dear Anna, I write to",
    "In the middle of the market square stood", "To repair a bicycle tyre you first", "The oldest trees of the island",
    "My grandfather used to say that", "When the orchestra had tuned,", "The history of paper begins in",
    "A good soup needs time, and", "Behind the door there was", "Rivers carry sand and stones from",
    "The night train to the coast", "Bees find their way home by", "Once there was a miller who", "Glass is made of",
)  # fmt: skip


class Cost(NamedTuple):
    """The cost of a token in wall seconds and in processor seconds, which a busy machine does not change."""

    clock: float
    processors: float
    listener: float = 0.0  # of it, what the process took that speaks HTTP


def prompts(size: int, turn: int) -> list[str]:
    """Return prompts that differ from the first token on in each turn, so that no cache has them."""
    return [f"{turn}-{size}-{number}: {text}" for number, text in enumerate(BEGINNINGS[:size])]


def show(path: str, rounds: int, tokens: int) -> int:
    """Prints costs; 1 if a text by HTTP is not what the engine gives for it alone."""
    with (
        LLM.load(path, max_sequences=max(SIZES)) as llm,
        Running(
            f"m={path}", "--slots", max(SIZES), "--max-client-slots", max(SIZES), "--log-level", "warning"
        ) as running,
    ):
        for turn in range(WARM):
            _turn(llm, running, prompts(max(SIZES), -1 - turn), 4)
        first = 0.0
        for size in SIZES:
            costs = _middle([_turn(llm, running, prompts(size, turn), tokens) for turn in range(rounds)])
            first = first or 1 / costs[1].clock
            _tell(size, costs, first)
        asked = prompts(max(SIZES), rounds)
        _, texts = _by_http(running, asked, tokens)
        wrong = [text for text, result in zip(asked, texts, strict=True) if result != _alone(llm, text, tokens)]
    print(f"{len(asked) - len(wrong)} of {len(asked)} streams side by side have the text that each has alone.")
    return int(bool(wrong))


def _turn(llm: LLM, running: Running, asked: Sequence[str], tokens: int) -> tuple[Cost, Cost]:
    return _by_engine(llm, asked, tokens), _by_http(running, asked, tokens)[0]


def _middle(turns: Sequence[tuple[Cost, Cost]]) -> tuple[Cost, Cost]:
    engine, served = (Cost(*map(statistics.median, zip(*column, strict=True))) for column in zip(*turns, strict=True))
    return engine, served


def _tell(size: int, costs: tuple[Cost, Cost], first: float) -> None:
    engine, served = costs
    print(
        f"{size:2}: {1 / engine.clock:.2f} tokens a second by the engine, {1 / served.clock:.2f} by HTTP "
        f"({served.clock / engine.clock - 1:+.1%}), {1 / served.clock / first:.2f} x one stream; "
        f"{engine.processors * 1e3:.1f} and {served.processors * 1e3:.1f} ms of processors a token "
        f"({served.processors / engine.processors - 1:+.1%}), {served.listener * 1e3:.2f} of it for HTTP",
        flush=True,
    )


def _by_engine(llm: LLM, asked: Sequence[str], tokens: int) -> Cost:
    llm.reset_prefix_cache()
    started, spent, count = time.monotonic(), time.process_time(), 0
    settings = {"max_new_tokens": tokens}
    live = [create_generation(llm, settings, text=text, changed=CHANGED) for text in asked]
    while live:
        count += len(read(llm, live))
        live = [answer for answer in live if not answer.finished]
    return Cost((time.monotonic() - started) / count, (time.process_time() - spent) / count)


def _alone(llm: LLM, text: str, tokens: int) -> str:
    llm.reset_prefix_cache()
    return llm.complete(text, max_new_tokens=tokens).result()


def _by_http(running: Running, asked: Sequence[str], tokens: int) -> tuple[Cost, list[str]]:
    processes = [running.pid, *children_of(running.pid)]
    started, before = time.monotonic(), list(map(_spent_by, processes))
    result = asyncio.run(_streams(running, asked, tokens))
    spent = [after - was for after, was in zip(map(_spent_by, processes), before, strict=True)]
    count = sum(count for _, count in result)
    cost = Cost((time.monotonic() - started) / count, sum(spent) / count, spent[0] / count)
    return cost, [text for text, _ in result]


async def _streams(running: Running, asked: Sequence[str], tokens: int) -> list[tuple[str, int]]:
    async with httpx.AsyncClient(base_url=running.url, timeout=600) as client:

        async def one(text: str) -> tuple[str, int]:
            body = {"model": "m", "prompt": text, "max_tokens": tokens, "temperature": 0, "stream": True}
            body["stream_options"] = {"include_usage": True}
            parts, count = [], 0
            async with client.stream("POST", "/v1/completions", json=body) as response:
                async for line in response.aiter_lines():
                    if (event := event_in(line)) is not None:
                        parts += [choice["text"] for choice in event["choices"]]
                        count = (event.get("usage") or {}).get("completion_tokens", count)
            return "".join(parts), count

        return list(await asyncio.gather(*map(one, asked)))


def _spent_by(pid: int) -> float:
    """Seconds of all processors, to a hundredth."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS

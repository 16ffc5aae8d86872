"""Prompts of many lengths, and answers to them, alone or side by side."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from webpte.llm import LLM, Generation
from webpte.llm.generation import create_generation, wait_for_output

CHANGED = threading.Condition()  # of the outputs of all answers that `read` waits for


class Request(NamedTuple):
    """A prompt with its own settings."""

    tokens: tuple[int, ...]
    settings: dict[str, Any]

    def ask(self, llm: LLM) -> Generation:
        return create_generation(llm, self.settings, tokens=self.tokens, changed=CHANGED)


def requests(llm: LLM, count: int, longest: int, new: tuple[int, int], seed: int = 0) -> list[Request]:
    """Prompts of 1 to `longest` tokens, many of them short, every other one sampled with a seed of its own."""
    chosen = random.Random(seed)
    results = []
    for number in range(count):
        length = {0: 1, 1: longest}.get(number, round(longest ** chosen.random()))
        tokens = tuple(chosen.randrange(llm.vocabulary) for _ in range(length))
        settings: dict[str, Any] = {"max_new_tokens": min(chosen.randint(*new), llm.capacity - length)}
        if number % 2:
            settings |= {"temperature": 0.8, "top_p": 0.95, "seed": number}
        results.append(Request(tokens, settings))
    return results


def answers_alone(llm: LLM, asked: Iterable[Request]) -> Iterator[list[int]]:
    """Yield each answer with nothing beside it and nothing in the cache."""
    for request in asked:
        llm.reset_prefix_cache()
        answer = request.ask(llm)
        answer.result()
        yield answer.tokens


def answers_together(llm: LLM, asked: list[Request], at_once: int, seed: int = 0) -> list[list[int]]:
    """Return all answers, that many at a time. They join at random ticks, and some that no one needs join and leave."""
    chosen = random.Random(seed)
    answers: list[Generation] = []
    others: list[Generation] = []
    live: list[Generation] = []
    while live or len(answers) < len(asked):
        while len(answers) < len(asked) and len(live) < at_once and (not live or chosen.random() < 0.6):
            answers.append(asked[len(answers)].ask(llm))
            live.append(answers[-1])
            if chosen.random() < 0.15:
                others.append(chosen.choice(asked).ask(llm))
                others[-1].start()
        if others and chosen.random() < 0.3:
            others.pop()  # dropped, wherever it is
        read(llm, live)
        live = [answer for answer in live if not answer.finished]
    return [answer.tokens for answer in answers]


def read(llm: LLM, live: list[Generation]) -> list[float]:
    """Wait for a step and read its pieces; return the time of each."""
    for answer in live:
        answer.start()
    while live and not any(answer.ready for answer in live):
        wait_for_output(live)
    times = []
    for answer in live:
        while not answer.finished and answer.ready:
            if next(answer, None) is not None:
                times.append(time.perf_counter())
    return times

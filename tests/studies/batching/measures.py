"""Measure a model that computes many sequences at once."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from webpte.llm import LLM, Generation
from webpte.llm.engine.runner import BatchToken, SampleRow
from webpte.llm.generation import create_generation
from webpte.llm.sampling import SampledToken

from .requests import CHANGED, Request, answers_alone, answers_together, read, requests


def different(llm: LLM, count: int, longest: int, at_once: int, new: tuple[int, int]) -> list[int]:
    """Numbers of the sequences whose tokens are others than alone."""
    asked = requests(llm, count, longest, new)
    together = answers_together(llm, asked, at_once)
    alone = answers_alone(llm, asked)
    return [number for number, (one, other) in enumerate(zip(together, alone, strict=True)) if one != other]


class Rate(NamedTuple):
    """Tokens by second, and by second of all threads' computing."""

    seconds: float
    work: float


def throughput(llm: LLM, sizes: Sequence[int], turns: int, answers: int = 16) -> dict[int, Rate]:
    """Return the medians of interleaved turns: the same answers, one or several at a time, prompts included.

    There are no drafts: random weights repeat themselves, which would count as speed.
    """
    asked = [
        request._replace(settings={**request.settings, "speculate": False})
        for request in requests(llm, answers, 24, (32, 32), seed=1)
    ]
    rates: dict[int, list[Rate]] = {size: [] for size in sizes}
    for turn, size in itertools.product(range(turns + 1), sizes):
        llm.reset_prefix_cache()
        started, work = time.perf_counter(), time.process_time()
        tokens = sum(map(len, _so_many_at_a_time(llm, asked, size)))
        if turn:  # the first prepares what the others use
            rates[size].append(Rate(tokens / (time.perf_counter() - started), tokens / (time.process_time() - work)))
    return {size: Rate(*map(statistics.median, zip(*result, strict=True))) for size, result in rates.items()}


def _so_many_at_a_time(llm: LLM, asked: Sequence[Request], size: int) -> list[list[int]]:
    waiting, live, done = list(asked), list[Generation](), list[list[int]]()
    while waiting or live:
        while waiting and len(live) < size:
            live.append(waiting.pop().ask(llm))
        read(llm, live)
        done += [answer.tokens for answer in live if answer.finished]
        live = [answer for answer in live if not answer.finished]
    return done


class Steps(NamedTuple):
    """The cost of steps in which the number of sequences did not change."""

    lowerings: int
    objects: int  # buffers, bind groups, pipelines and shader modules
    host: float  # share of the time in which the ticking thread ran


def steady(llm: LLM, sequences: int, steps: int) -> Steps:
    """Steps after the first few of that many sequences."""
    live = _decoding(llm, sequences, 4 + steps)
    method = llm.engine.runner.method
    before, lowerings = method.counters.snapshot(), method.lowerings
    started, host = time.perf_counter(), time.thread_time()
    for _ in range(steps):
        read(llm, live)
    wall, host = time.perf_counter() - started, time.thread_time() - host
    done = method.counters.since(before)
    objects = done.buffers + done.bind_groups + done.pipelines + done.shader_modules
    return Steps(method.lowerings - lowerings, objects, host / wall)


def _decoding(llm: LLM, sequences: int, steps: int) -> list[Generation]:
    """Answers that are a few tokens long."""
    llm.reset_prefix_cache()
    prompts = [[7 + number, 8, 9] for number in range(sequences)]
    settings: dict[str, Any] = {"max_new_tokens": steps + 8, "tokens_per_submit": 1, "speculate": False}
    live = [llm.generate(tokens=prompt, **settings) for prompt in prompts]
    read(llm, live)
    while any(len(answer.tokens) < 4 for answer in live):
        read(llm, live)
    return live


class Gap(NamedTuple):
    """Between two tokens of those who decode: seconds, and what all threads computed in them."""

    seconds: float
    work: float


class Gaps(NamedTuple):
    """The median with nothing beside them, and the largest while a prompt is read, each by itself."""

    plain: Gap
    largest: Gap
    passes: int  # that read it


def gaps(llm: LLM, sequences: int, prompt: int) -> Gaps:
    """Return how long others wait while a long prompt is read, the first time and once more: the second is reported."""
    result = Gaps(Gap(0.0, 0.0), Gap(0.0, 0.0), 0)
    live: list[Generation] = []
    for number in range(2):  # passes of new sizes are prepared in the first
        live.clear()
        live += _decoding(llm, sequences, 400)
        plain = _gaps(llm, live, 12)
        late = llm.generate(tokens=[(31 * i + number) % llm.vocabulary for i in range(prompt)], max_new_tokens=1)
        late.start()
        during: list[Gap] = []
        while not late.ready:
            during += _gaps(llm, live, 1)
        middle = Gap(statistics.median(gap.seconds for gap in plain), statistics.median(gap.work for gap in plain))
        largest = Gap(max(gap.seconds for gap in during), max(gap.work for gap in during))
        result = Gaps(middle, largest, len(during))
    return result


def _gaps(llm: LLM, live: list[Generation], ticks: int) -> list[Gap]:
    results = []
    for _ in range(ticks):
        started, work = time.perf_counter(), time.process_time()
        read(llm, live)
        results.append(Gap(time.perf_counter() - started, time.process_time() - work))
    return results


class Prefix(NamedTuple):
    """Mean seconds to the first token of several sequences that begin at once."""

    apart: float  # with prompts that share nothing
    shared: float  # whose beginning is cached already
    computed: int  # rows of the shared beginning that were computed again


def prefix(llm: LLM, sequences: int, shared: int) -> Prefix:
    before, after = 0.0, 0.0
    beginning = [(13 * i + 1) % llm.vocabulary for i in range(shared)]
    for turn in range(2):  # the first prepares what the second uses
        llm.reset_prefix_cache()
        apart = [[n + turn, *beginning[1:], n] for n in range(sequences)]
        before = _first_tokens(llm, apart)
        llm.reset_prefix_cache()
        _first_tokens(llm, [[*beginning, 5]])
        with _rows(llm) as rows:
            after = _first_tokens(llm, [[*beginning, 20 + n, turn] for n in range(sequences)])
    return Prefix(before, after, sum(row.position < shared for row in rows))


def _first_tokens(llm: LLM, prompts: list[list[int]]) -> float:
    """The mean time to their first tokens."""
    started = time.perf_counter()
    settings = {"max_new_tokens": 4, "tokens_per_submit": 1}
    live = [create_generation(llm, settings, tokens=prompt, changed=CHANGED) for prompt in prompts]
    waiting, taken = list(live), []
    while waiting:
        read(llm, live)
        taken += [time.perf_counter() - started for answer in waiting if answer.tokens]
        waiting = [answer for answer in waiting if not answer.tokens]
        live = [answer for answer in live if not answer.finished]
    for answer in live:
        answer.result()
    return statistics.mean(taken)


@contextmanager
def _rows(llm: LLM) -> Iterator[list[BatchToken]]:
    """Yield all rows that are run inside."""
    runner, result = llm.engine.runner, list[BatchToken]()
    run = runner.run

    def noting(rows: Sequence[BatchToken], picks: Sequence[SampleRow]) -> list[SampledToken]:
        result.extend(rows)
        return run(rows, picks)

    with mock.patch.object(runner, "run", noting):
        yield result

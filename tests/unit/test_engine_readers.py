"""More answers than slots: however they are read, every token is computed once, in the order of arrival."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.harness.fake_runner import FakeLLM, FakeRunner, alone
from webpte.llm import Generation

PROMPT_TOKENS, NEW_TOKENS, CAPACITY = 60, 40, 256


def prompts(count: int) -> list[list[int]]:
    return [[number, *((number * 7 + at * 3) % 97 for at in range(PROMPT_TOKENS - 1))] for number in range(count)]


def answers(llm: FakeLLM, count: int) -> list[Generation]:
    return [llm.generate(tokens=prompt, max_new_tokens=NEW_TOKENS, speculate=False) for prompt in prompts(count)]


def by_generate_many(llm: FakeLLM, count: int) -> list[list[int]]:
    asked = [{"tokens": prompt} for prompt in prompts(count)]
    return [answer.tokens for answer in llm.generate_many(asked, max_new_tokens=NEW_TOKENS, speculate=False)]


def by_threads(llm: FakeLLM, count: int) -> list[list[int]]:
    result = answers(llm, count)
    threads = [threading.Thread(target=answer.result) for answer in result]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [answer.tokens for answer in result]


def by_tasks(llm: FakeLLM, count: int) -> list[list[int]]:
    async def read(answer: Generation) -> list[int]:
        return [piece.token async for piece in answer]

    async def main() -> list[list[int]]:
        return await asyncio.gather(*map(read, answers(llm, count)))

    return asyncio.run(main())


def by_zip(llm: FakeLLM, count: int) -> list[list[int]]:
    result = answers(llm, count)
    for _ in zip(*result, strict=True):
        pass
    return [answer.tokens for answer in result]


@pytest.mark.parametrize("background", [True, False], ids=["thread", "synchronous"])
@pytest.mark.parametrize(("slots", "count"), [(4, 5), (4, 8), (4, 40), (16, 17), (16, 32)])
@pytest.mark.parametrize("read", [by_generate_many, by_threads, by_tasks, by_zip])
def test_engine_computes_each_token_once_for_any_reader_order(read, slots, count, background):
    runner = FakeRunner(max_slots=slots, capacity=CAPACITY, max_batch_tokens=64)
    runner.max_samples = 32
    llm = FakeLLM(runner, max_num_seqs=slots, background=background)
    assert read(llm, count) == [alone(prompt, NEW_TOKENS, CAPACITY) for prompt in prompts(count)]
    stats, least = llm.engine.stats, count * (PROMPT_TOKENS + NEW_TOKENS - 1)
    assert stats.tokens == sum(len(rows) for rows in runner.passes) <= 1.05 * least
    assert stats.evictions == stats.preemptions == 0
    llm.close()

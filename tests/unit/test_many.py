"""Many prompts, and asyncio, over the engine with a fake runner."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.fake_runner import FakeLLM, FakeRunner, alone
from webpte.errors import ClosedError, InputError
from webpte.llm import ContextFullError, Generation, LogitsError
from webpte.progress import CancelToken, Progress

PROMPTS = [{"tokens": [n, n + 1, n + 2], "max_new_tokens": 3 + 7 * (n % 4)} for n in range(40)]
WANT = [alone(list(p["tokens"]), int(p["max_new_tokens"])) for p in PROMPTS]  # type: ignore[call-overload]


def test_answers_come_in_order_or_as_they_are_finished():
    llm = FakeLLM(FakeRunner(max_slots=4))
    events: list[Progress] = []
    assert [answer.tokens for answer in llm.generate_many(PROMPTS, progress=events.append)] == WANT
    assert [event.done for event in events] == list(range(1, 41)) and {event.total for event in events} == {40}
    actual = [answer.tokens for answer in llm.generate_many(PROMPTS, in_order=False)]
    assert sorted(actual) == sorted(WANT) and actual != WANT
    assert max(len(rows) for rows in llm.runner.passes) >= 4


def test_many_prompts_start_as_slots_become_free():
    llm = FakeLLM(FakeRunner(max_slots=2), max_num_seqs=2)
    taken: list[int] = []

    def endless():
        for number in itertools.count():
            taken.append(number)
            yield {"tokens": [number % 90], "max_new_tokens": 4}

    answers = llm.generate_many(endless())
    for number, answer in zip(range(6), answers, strict=False):
        assert answer.tokens == alone([number], 4)
    assert len(taken) <= 6 + 2 * 2
    answers.close()  # type: ignore[attr-defined]
    assert next(llm.generate_many([{"tokens": [5]}])).tokens == alone([5], 256)


def test_generate_many_failing_prompt_is_one_result():
    llm = FakeLLM()
    llm.runner.bad = lambda tokens: tokens[0] == 3
    prompts: list[Any] = [
        {"tokens": [1]},
        {"tokens": [500]},
        {"tokens": [2] * 99},
        {"tokens": [3]},
        {"nonsense": 1},
        "a",
    ]
    answers = list(llm.generate_many(prompts, max_new_tokens=5))
    assert [type(answer.error) for answer in answers] == [
        type(None), InputError, ContextFullError, LogitsError, InputError, type(None),
    ]  # fmt: skip
    assert answers[0].tokens == alone([1], 5) and answers[5].tokens == alone([ord("a") % 97], 5)
    with raises(InputError, "'nonsense'", code="unknown_option"):
        llm.generate_many([], nonsense=1)  # type: ignore[call-arg]


def test_generate_many_waits_for_queue_space():
    llm = FakeLLM(FakeRunner(max_slots=1), max_queue_size=2)
    other = llm.generate(tokens=[77])
    other.start()
    assert [answer.tokens for answer in llm.generate_many(PROMPTS[:6])] == WANT[:6]
    assert next(other).token == alone([77], 1)[0]


def test_tasks_share_passes_and_one_that_is_cancelled_leaves():
    llm = FakeLLM(FakeRunner(max_slots=8), background=True)

    answers: list[Generation] = []

    def all_submitted() -> None:  # the first step waits for it
        while not (len(answers) == 8 and all(answer._submitted for answer in answers)):
            time.sleep(0.001)
        llm.runner.before = lambda: None

    llm.runner.before = all_submitted

    async def read(number: int) -> list[int]:
        answer = llm.generate(tokens=[number], max_new_tokens=30)
        answers.append(answer)
        return [piece.token async for piece in answer]

    async def main() -> tuple[list[list[int]], list[list[int]]]:
        first = await asyncio.gather(*map(read, range(8)))
        tasks = [asyncio.create_task(read(number)) for number in range(8)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        rest = await asyncio.gather(*(task for number, task in enumerate(tasks) if number != 3))
        with pytest.raises(asyncio.CancelledError):
            await tasks[3]
        return first, rest

    first, rest = asyncio.run(main())
    want = [alone([number], 30) for number in range(8)]
    assert first == want and rest == want[:3] + want[4:]
    assert max(len(rows) for rows in llm.runner.passes) == 8
    llm.close()
    assert not llm.engine.scheduler.running and not llm.engine.scheduler.waiting


def test_generation_async_properties_while_streaming():
    llm = FakeLLM()

    async def main() -> None:
        answer = llm.generate(tokens=[1, 2], max_new_tokens=3)
        async for piece in answer:
            assert piece.token == alone([1, 2], 3)[0]
            break
        await answer.aclose()
        assert [piece async for piece in answer] == []
        assert answer.usage.finish_reason == "cancelled" and len(answer.tokens) == 1

    asyncio.run(main())


def test_generation_async_closed_model_ends():
    llm = FakeLLM()

    async def main() -> None:
        answer, other = llm.generate(tokens=[1]), llm.generate(tokens=[2], max_new_tokens=1)
        assert other.result() and [piece async for piece in other] == []
        llm.close()
        with raises(ClosedError):
            async for _ in answer:
                pass
        assert [piece async for piece in other] == []

    asyncio.run(main())


def test_generate_many_cancelled_returns_partial_results():
    llm, cancel = FakeLLM(FakeRunner(max_slots=4)), CancelToken()
    answers = []
    for answer in llm.generate_many(iter(PROMPTS), cancel=cancel):
        answers.append(answer)
        if len(answers) == 5:
            cancel.cancel()
    reasons = [answer.usage.finish_reason for answer in answers]
    assert reasons[:5] == ["length"] * 5 and set(reasons[5:]) <= {"length", "cancelled"} and "cancelled" in reasons
    assert len(answers) < len(PROMPTS)
    for answer, want in zip(answers, WANT, strict=False):
        assert answer.error is None and answer.tokens == want[: len(answer.tokens)]
    assert [answer.tokens for answer in llm.generate_many(PROMPTS[:6])] == WANT[:6]

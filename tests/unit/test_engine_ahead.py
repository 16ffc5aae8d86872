"""Decode steps that run ahead of the host: what they compute too much changes no answer, and is not delivered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.harness.fake_runner import FakeLLM, FakeRunner, FakeSteps, ForgetfulRunner, alone
from webpte import CancelToken
from webpte.llm.engine.kv_slots import LAST_TOKEN_ONLY

A, B = list(range(1, 20)), list(range(30, 50))


class RecordingRunner(FakeRunner):
    """Records the start and the reading of decode steps, with their number, in order."""

    def __init__(self) -> None:
        super().__init__(capacity=512)
        self.events: list[tuple[str, int]] = []

    def start_steps(self, rows, picks, count):
        return RecordingSteps(self, rows, picks, count)


class RecordingSteps(FakeSteps):
    def __init__(self, runner, rows, picks, count):
        super().__init__(runner, rows, picks, count)
        self.events, self.count = runner.events, count
        self.events.append(("start", count))

    def follow(self, count):
        return RecordingSteps(self._runner, *self._next, count)

    def take(self):
        self.events.append(("read", self.count))
        return super().take()

    def discard(self):
        self.events.append(("discard", self.count))


@pytest.fixture
def llm():
    return FakeLLM(RecordingRunner())


def ask(llm, prompt, count, **settings):
    settings = {"tokens_per_submit": 1, "dry_multiplier": 0, "speculate": False, **settings}
    return llm.generate(tokens=prompt, max_new_tokens=count, **settings)


def test_next_step_starts_before_tokens_are_read(llm):
    answer = ask(llm, A, 6)
    assert answer.result() and answer.tokens == alone(A, 6)
    # The first token is of the prompt's step. The number of tokens is known, so no step is too much.
    ahead = [("start", 1), ("read", 1)]
    assert llm.runner.events == [("start", 1), *ahead * 3, ("start", 1), ("read", 1), ("read", 1)]


def test_requests_of_batch_share_steps_ahead(llm):
    answers = [ask(llm, prompt, 40) for prompt in (A, B)]
    for _ in zip(*answers, strict=True):
        pass
    assert [answer.tokens for answer in answers] == [alone(prompt, 40) for prompt in (A, B)]
    ahead = sum(one[0] == two[0] == "start" for one, two in zip(llm.runner.events, llm.runner.events[1:], strict=False))
    assert 1 <= ahead <= 6  # only when the batch changes the device waits
    assert sum(len(rows) == 2 for rows in llm.runner.passes) >= 35


@pytest.mark.parametrize("per_submit", [1, 3])
def test_stop_token_in_flight_discards_later_tokens(llm, per_submit):
    want, others = alone(A, 30), alone(B, 60, capacity=512)
    end = next(number for number in range(6, 30) if want[number] not in [*want[:number], *others])
    llm.stop_tokens = frozenset({want[end]})
    answers = [ask(llm, prompt, 60, tokens_per_submit=per_submit) for prompt in (A, B)]
    for answer in answers:
        answer.result()
    assert answers[0].tokens == want[: end + 1] and answers[0].usage.finish_reason == "stop"
    assert answers[1].tokens == others
    # What the slot caches of the first answer, another prompt continues with.
    again = ask(llm, [*A, *want[:end]], 5)
    again.result()
    assert again.tokens == alone([*A, *want[:end]], 5)[: again.usage.completion_tokens]


def test_token_in_flight_after_one_that_is_not_finite_is_discarded(llm):
    seen: list[int] = []

    def bad(tokens: list[int]) -> bool:
        """Be so once, for the last token of the third submit."""
        now = len(tokens) == len(A) + 9 and not seen
        seen.extend([len(tokens)] * now)
        return now

    llm.runner.bad = bad
    answer = ask(llm, A, 30, tokens_per_submit=3)
    answer.result()
    assert seen and answer.tokens == alone(A, 30)


def test_only_answer_ends_and_steps_in_flight_are_discarded(llm):
    want = alone(A, 30)
    end = next(number for number in range(6, 30) if want[number] not in want[:number])
    llm.stop_tokens = frozenset({want[end]})
    answer = ask(llm, A, 30)
    answer.result()
    assert answer.tokens == want[: end + 1]
    assert llm.runner.events[-1] == ("discard", 1) and not llm.engine.has_work


@pytest.mark.parametrize("penalty", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_request_with_penalty_does_not_run_ahead(llm, penalty):
    settings: dict[str, Any] = {penalty: 1.5}
    answer = ask(llm, A, 12, **settings)
    answer.result()
    assert answer.tokens == alone(A, 12, **settings) and llm.runner.events == []


def test_drafts_are_verified_although_steps_run_ahead():
    runner = RecordingRunner()
    runner.recalls = 1  # it repeats itself soon
    llm = FakeLLM(runner)
    answer = ask(llm, A, 60, speculate=True)
    answer.result()
    assert answer.tokens == alone(A, 60, capacity=512, recalls=1)
    sizes = [len(rows) for rows in runner.passes]
    assert sizes.count(8) == 5 and len(sizes) == 22  # as many as without steps ahead


def test_cancelled_answer_gets_no_token_in_flight(llm):
    cancel = CancelToken()
    stopped, other = ask(llm, A, 40, cancel=cancel), ask(llm, B, 40)
    for _ in range(5):
        next(stopped), next(other)
    cancel.cancel()
    count = len(stopped.tokens)
    assert list(stopped) == [] and len(stopped.tokens) == count
    other.result()
    assert other.tokens == alone(B, 40)


def test_exclusive_use_finds_no_step_in_flight(llm):
    answer = ask(llm, A, 40)
    for _ in range(5):
        next(answer)
    kinds = [kind for kind, _ in llm.runner.events]
    assert kinds.count("start") == kinds.count("read") + 1
    with llm.engine.exclusive():
        kinds = [kind for kind, _ in llm.runner.events]
        assert kinds.count("start") == kinds.count("read")
    answer.result()
    assert answer.tokens == alone(A, 40)


def test_recurrent_state_does_not_run_ahead():
    llm = FakeLLM(ForgetfulRunner(LAST_TOKEN_ONLY))
    want = alone(A, 30)
    end = next(number for number in range(6, 30) if want[number] not in want[:number])
    llm.stop_tokens = frozenset({want[end]})
    ask(llm, A, 30).result()
    passes = len(llm.runner.passes)
    again = ask(llm, [*A, *want[:end], 7], 1)
    again.result()
    assert again.tokens == alone([*A, *want[:end], 7], 1)
    assert len(llm.runner.passes) == passes + 1  # nothing was computed again

"""Decode steps that run ahead of the host: what they compute too much changes no answer, and is not delivered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.harness.fake_runner import FakeLLM, FakeRunner, FakeSteps, ForgetfulRunner, alone
from webpte import CancelToken
from webpte.llm.engine.kv_slots import LAST_TOKEN_ONLY, CacheWindow

A, B = list(range(1, 20)), list(range(30, 50))


class RecordingRunner(FakeRunner):
    """Records the start and the reading of decode steps, with their number, in order."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, capacity=512)
        self.events: list[tuple[str, int]] = []

    def start_steps(self, rows, picks, count):
        return RecordingSteps(self, rows, picks, count)


class ForgetfulRecordingRunner(RecordingRunner, ForgetfulRunner):
    """Fails if a token is computed where the state is gone that it needs."""


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


def num_ahead(llm):
    """Return how many submits followed another whose tokens were not read."""
    in_flight, count = 0, 0
    for kind, _ in llm.runner.events:
        count += kind == "start" and in_flight > 0
        in_flight += 1 if kind == "start" else -1
    return count


def stop_in(llm, want, first):
    """Let the first token from a number on that is not before end an answer. Return its number."""
    end = next(number for number in range(first, len(want)) if want[number] not in want[:number])
    llm.stop_tokens = frozenset({want[end]})
    return end


CONVOLUTION = CacheWindow(2, 64)


@pytest.mark.parametrize("per_submit", [1, 3, 8])
def test_state_that_keeps_steps_in_flight_runs_ahead_and_computes_nothing_again(per_submit):
    llm = FakeLLM(ForgetfulRecordingRunner(window=CONVOLUTION))
    want, others = alone(A, 120, capacity=512), alone(B, 120, capacity=512)
    end = stop_in(llm, [*others, *want], len(others) + 70) - len(others)
    answers = [ask(llm, prompt, 120, tokens_per_submit=per_submit) for prompt in (A, B)]
    for answer in answers:
        answer.start()
    for answer in answers:
        answer.result()
    assert answers[0].tokens == want[: end + 1] and answers[1].tokens == others
    assert num_ahead(llm) >= 0.9 * 120 / per_submit - 3
    llm.runner.passes.clear()
    again = ask(llm, [*A, *want[:end], 7], 1)
    again.result()
    assert again.tokens == alone([*A, *want[:end], 7], 1, capacity=512)
    assert sum(map(len, llm.runner.passes)) == 1


@pytest.mark.parametrize(("per_submit", "follows"), [(2, True), (3, False)])
def test_steps_follow_as_far_as_state_goes_back(per_submit, follows):
    """What a state keeps beyond what a token needs is 5 positions: 2 + 2 steps in flight, but not 3 + 3."""
    llm = FakeLLM(ForgetfulRecordingRunner(window=CacheWindow(2, 7), max_batch_tokens=3))
    prompt = [*A, *B]  # far from the beginning
    want = alone(prompt, 61, capacity=512)
    end = stop_in(llm, want, 40)
    answer = ask(llm, prompt, 61, tokens_per_submit=per_submit)
    answer.result()
    assert answer.tokens == want[: end + 1]
    assert (num_ahead(llm) > 0) is follows
    llm.stop_tokens = frozenset()
    again = ask(llm, [*prompt, *want[:end], 7], 3)
    again.result()
    assert again.tokens == alone([*prompt, *want[:end], 7], 3, capacity=512)
    assert again.usage.reused_tokens == len(prompt) + end


@pytest.mark.parametrize("per_submit", [1, 4])
@pytest.mark.parametrize("first", [3, 40, 71])
def test_state_of_last_token_runs_ahead_of_checkpoint(per_submit, first):
    """A stop costs at most the tokens since the checkpoint, in the next turn."""
    llm = FakeLLM(ForgetfulRecordingRunner(window=LAST_TOKEN_ONLY, num_checkpoints=2))
    want = alone(A, 120, capacity=512)
    end = stop_in(llm, want, first)
    answer = ask(llm, A, 120, tokens_per_submit=per_submit)
    answer.result()
    assert answer.tokens == want[: end + 1]
    assert num_ahead(llm) >= (end / per_submit) * 0.8 - 2
    prompt = [*A, *want[: end + 1], 7, 8]
    again = ask(llm, prompt, 5)
    again.result()
    assert again.tokens == alone(prompt, 5, capacity=512)
    assert again.usage.reused_tokens >= len(A) + end - 32


def test_state_of_last_token_takes_no_checkpoint_of_another_to_run_ahead():
    runner = ForgetfulRecordingRunner(window=LAST_TOKEN_ONLY, num_checkpoints=2)
    llm = FakeLLM(runner, num_cache_slots=1)
    talks = [llm.sequence() for _ in range(2)]
    for number, talk in enumerate(talks):
        talk.logits([number + 1] * 20)
    for talk in talks:
        talk.close()
    saved = dict(runner.saved)
    assert len(saved) == 2
    answer = ask(llm, [9] * 3, 100)
    answer.result()
    assert answer.tokens == alone([9] * 3, 100, capacity=512)
    assert runner.saved == saved
    assert 0 < num_ahead(llm) < 32  # near its beginning only


def test_state_of_last_token_without_checkpoints_runs_ahead_near_beginning_only():
    llm = FakeLLM(ForgetfulRecordingRunner(window=LAST_TOKEN_ONLY))
    want = alone(A, 60, capacity=512)
    end = stop_in(llm, want, 40)
    ask(llm, A, 60).result()
    assert 0 < num_ahead(llm) <= 32 - len(A)
    again = ask(llm, [*A, *want[:end], 7], 1)
    again.result()
    assert again.tokens == alone([*A, *want[:end], 7], 1, capacity=512)
    assert again.usage.reused_tokens == len(A) + end  # nothing was computed again


def test_device_lost_with_steps_in_flight_computes_state_again():
    for window, checkpoints in ((CONVOLUTION, 0), (LAST_TOKEN_ONLY, 2)):
        llm = FakeLLM(ForgetfulRecordingRunner(window=window, num_checkpoints=checkpoints), recover=True)
        answer = ask(llm, A, 60)
        for _ in range(25):
            next(answer)
        assert llm.engine._flight is not None
        llm.runner.lose()
        answer.result()
        assert answer.tokens == alone(A, 60, capacity=512) and llm.stats.preemptions == 1


@pytest.mark.parametrize(("window", "checkpoints"), [(CONVOLUTION, 0), (LAST_TOKEN_ONLY, 3)])
def test_state_with_arrivals_aborts_and_stop_strings_in_flight(window, checkpoints):
    llm = FakeLLM(ForgetfulRecordingRunner(window=window, num_checkpoints=checkpoints))
    want = alone(A, 90, capacity=512)
    text = llm.text_model.tokenizer.decode(want)
    string = text[50:53]
    cancel = CancelToken()
    first = ask(llm, A, 90, stop=[string])
    for _ in range(7):
        next(first)
    other, third = ask(llm, B, 40, cancel=cancel), ask(llm, A[:11], 35)
    for _ in range(5):
        next(first), next(other), next(third)
    cancel.cancel()
    third.result()
    first.result()
    end = text.index(string) + len(string)
    assert first.tokens == want[:end] and first.usage.finish_reason == "stop"
    assert third.tokens == alone(A[:11], 35, capacity=512)
    assert other.tokens == alone(B, 40, capacity=512)[: len(other.tokens)]
    assert num_ahead(llm) > 40
    # What is kept of each continues exactly.
    for prompt in ([*A, *want[: end - 1], 7], [*B, *other.tokens[:-1], 8], [*A[:11], 9]):
        again = ask(llm, prompt, 9)
        again.result()
        assert again.tokens == alone(prompt, 9, capacity=512)

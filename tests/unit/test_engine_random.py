"""Joins, cancellations, forks, losses and too few slots in random order: every answer equals the answer alone."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.harness.fake_runner import FakeLLM, FakeRunner, ForgetfulRunner, alone
from webpte import CancelToken
from webpte.llm import StaleGenerationError
from webpte.llm.engine.kv_slots import CacheWindow

PROMPTS = st.builds(
    lambda shared, rest: [*([5] * shared), *rest],
    st.sampled_from([0, 3, 20, 40]),
    st.lists(st.integers(0, 4), min_size=1, max_size=20),
)
CHOICES = st.sampled_from(
    [
        {},
        {"temperature": 0.5, "seed": 1},
        {"temperature": 0.5, "seed": 2, "speculate": True},
        {"frequency_penalty": 0.5, "speculate": True},
    ]
)


class Engine(RuleBasedStateMachine):
    """Answers of a model, and of sequences that are kept."""

    @initialize(
        slots=st.integers(1, 4),
        rows=st.sampled_from([1, 4, 16]),
        recover=st.booleans(),
        recalls=st.sampled_from([None, 1, 2]),
        needed=st.sampled_from([None, None, 0, 7]),
        checkpoints=st.sampled_from([0, 1, 4]),
    )
    def begin(
        self, slots: int, rows: int, recover: bool, recalls: int | None, needed: int | None, checkpoints: int
    ) -> None:
        runner = FakeRunner(max_slots=slots, max_batch_tokens=rows)
        if needed is not None:  # a recurrent state, or a ring with room for a pass beside its window
            window = CacheWindow(needed, needed and needed + rows)
            runner = ForgetfulRunner(window, slots, max_batch_tokens=rows, num_checkpoints=checkpoints)
        self.llm = FakeLLM(runner, recover=recover)
        self.llm.runner.recalls = recalls
        self.recover = recover
        self.answers: list[Any] = []
        self.sequences = [self.llm.sequence()]

    @rule(prompt=PROMPTS, chosen=CHOICES, count=st.integers(1, 30), per_submit=st.sampled_from([None, 1, 3]))
    def ask(self, prompt: list[int], chosen: dict[str, Any], count: int, per_submit: int | None) -> None:
        self._begin(self.llm, prompt, chosen, count, per_submit)

    @rule(prompt=PROMPTS, chosen=CHOICES, count=st.integers(1, 30), which=st.integers(0, 9))
    def ask_in_a_sequence(self, prompt: list[int], chosen: dict[str, Any], count: int, which: int) -> None:
        self._begin(self.sequences[which % len(self.sequences)], prompt, chosen, count, None)

    def _begin(self, model: Any, prompt: list[int], chosen: dict[str, Any], count: int, per_submit: int | None) -> None:
        answer = model.generate(
            tokens=prompt, max_new_tokens=count, tokens_per_submit=per_submit, cancel=CancelToken(), **chosen
        )
        self.answers.append((answer, alone(prompt, count, recalls=self.llm.runner.recalls, **chosen)))

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, 9), count=st.integers(1, 12))
    def read(self, which: int, count: int) -> None:
        answer, _ = self.answers[which % len(self.answers)]
        try:
            for _ in range(count):
                next(answer, None)
        except StaleGenerationError:
            assert not answer._request.sequence.is_owned_by(answer._request)

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, 9))
    def finish(self, which: int) -> None:
        answer, want = self.answers.pop(which % len(self.answers))
        try:
            answer.result()
        except StaleGenerationError:
            return
        assert answer.tokens == want or answer.usage.finish_reason == "cancelled"

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, 9), how=st.sampled_from(["drop", "close", "cancel", "start"]))
    def leave(self, which: int, how: str) -> None:
        answer, _ = self.answers[which % len(self.answers)]
        if how == "drop":
            del self.answers[which % len(self.answers)]
        elif how == "start" and answer.usage.finish_reason is None:
            answer.start()
        elif how == "close":
            answer.close()
        elif how == "cancel":
            answer._cancel.cancel()

    @rule(which=st.integers(0, 9), how=st.sampled_from(["fork", "rewind", "logits", "drop", "close"]))
    def use_a_sequence(self, which: int, how: str) -> None:
        sequence = self.sequences[which % len(self.sequences)]
        if how == "fork":
            self.sequences.append(sequence.fork())
        elif how == "rewind":
            sequence.rewind(sequence.position // 2)
        elif how == "close":
            sequence.close()
        elif how == "drop" and len(self.sequences) > 1:
            del self.sequences[which % len(self.sequences)]
        elif how == "logits" and sequence.remaining:
            want = FakeLLM().sequence().logits([*sequence.tokens, 7])
            assert np.array_equal(sequence.logits([7]), want)

    @rule()
    def lose(self) -> None:
        self.llm.runner.lose()
        if not self.recover:
            self.llm.recover()

    @invariant()
    def what_came_is_right(self) -> None:
        for answer, want in getattr(self, "answers", []):
            assert answer.tokens == want[: len(answer.tokens)]


TestEngine = Engine.TestCase
TestEngine.settings = settings(stateful_step_count=40)

"""What a model does before anyone waits for it: all slots, every number of answers at once, several prompts."""

from __future__ import annotations

import pytest

from tests.support.harness.fake_runner import FakeLLM, FakeRunner, alone
from webpte import CancelToken
from webpte.errors import CancelledError, DeviceLost
from webpte.progress import Progress

PROMPT = list(range(1, 20))


def test_all_slots_are_made_and_every_number_of_answers_is_computed():
    llm = FakeLLM(FakeRunner(most_slots=8), most_slots=6, more_slots=2)
    events: list[Progress] = []
    llm.prepare(events.append)
    assert llm.runner.slots == 8
    assert [len(rows) for rows in llm.runner.passes] == [1, 2, 3, 4, 5, 6, 8, 12, 16]
    assert [(event.stage, event.done, event.total) for event in events] == [("prepare", n, 9) for n in range(9)]
    answer = llm.generate(tokens=PROMPT, max_new_tokens=20)
    answer.read()
    assert answer.tokens == alone(PROMPT, 20) and answer.usage.reused_tokens == 0


def test_more_answers_than_a_pass_can_choose_for_are_prepared_all_the_same():
    llm = FakeLLM(FakeRunner(most_slots=16), most_slots=16)
    llm.prepare()
    assert llm.runner.slots == 16 and max(len(rows) for rows in llm.runner.passes) == llm.runner.most_rows


def test_what_does_not_fit_is_left():
    llm = FakeLLM(FakeRunner(most_slots=8), most_slots=8)
    llm.runner.memory = 5
    llm.prepare()
    assert llm.runner.slots == llm.engine.most_at_once == 4


def test_a_program_that_computes_one_at_a_time_is_prepared_for_one():
    llm = FakeLLM(FakeRunner(most_slots=1, capacity=10))
    llm.prepare()
    assert [len(rows) for rows in llm.runner.passes] == [1, 8]  # a longer prompt would leave no room for an answer


def loses(runner, after):
    """What loses its device once, when it has been touched so many times."""
    left = iter(range(after + 1))

    def touched() -> None:
        if next(left, None) == after:
            runner.lose()

    return touched


@pytest.mark.parametrize("after", [0, 2, 7])
def test_a_lost_device_is_replaced_meanwhile_or_told_of(after):
    for recover in (True, False):
        llm = FakeLLM(FakeRunner(most_slots=4), recover=recover)
        llm.runner.before = loses(llm.runner, after)
        if recover:
            llm.prepare()
            assert llm.runner.slots == 4 and llm.runner.recoveries == 1
        else:
            with pytest.raises(DeviceLost):
                llm.prepare()


def test_it_can_be_cancelled_and_leaves_a_model_that_works():
    llm = FakeLLM()
    cancel = CancelToken()
    with pytest.raises(CancelledError):
        llm.prepare(lambda event: cancel.cancel() if event.done == 2 else None, cancel)
    answer = llm.generate(tokens=PROMPT, max_new_tokens=5)
    answer.read()
    assert answer.tokens == alone(PROMPT, 5)

"""The warm-up of a model: all slots, every number of rows, several prompts."""

from __future__ import annotations

import pytest

from tests.support.harness.fake_runner import FakeLLM, FakeRunner, alone
from webpte import CancelToken
from webpte.errors import CancelledError, DeviceLost
from webpte.progress import Progress

PROMPT = list(range(1, 20))


def test_warmup_creates_slots_and_runs_each_batch_size():
    llm = FakeLLM(FakeRunner(max_slots=8), max_num_seqs=6, num_cache_slots=2)
    events: list[Progress] = []
    llm.warmup(events.append)
    assert llm.runner.num_slots == 8
    decode = [(count, count, False) for count in range(1, 7)]
    assert llm.runner.warmed == [*decode, (8, 1, False), (12, 1, False), (16, 1, False), (1, 1, True)]
    assert [(event.stage, event.done, event.total) for event in events] == [("prepare", n, 10) for n in range(10)]
    answer = llm.generate(tokens=PROMPT, max_new_tokens=20)
    answer.result()
    assert answer.tokens == alone(PROMPT, 20) and answer.usage.reused_tokens == 0


def test_warmup_more_sequences_than_sample_rows():
    llm = FakeLLM(FakeRunner(max_slots=16), max_num_seqs=16)
    llm.warmup()
    assert llm.runner.num_slots == 16 and max(llm.runner.warmed)[0] == llm.runner.max_batch_tokens


def test_warmup_slots_beyond_memory_are_skipped():
    llm = FakeLLM(FakeRunner(max_slots=8), max_num_seqs=8)
    llm.runner.memory = 5
    llm.warmup()
    assert llm.runner.num_slots == llm.engine.max_num_seqs == 4


def test_warmup_unbatchable_program_runs_one_sequence():
    llm = FakeLLM(FakeRunner(max_slots=1, capacity=10))
    llm.warmup()
    assert llm.runner.warmed == [(1, 1, False), (8, 1, False), (1, 1, True)]  # a longer prompt leaves no room


def loses(runner, after):
    """Return what loses its device once, when it has been touched that many times."""
    left = iter(range(after + 1))

    def touched() -> None:
        if next(left, None) == after:
            runner.lose()

    return touched


@pytest.mark.parametrize("after", [0, 2, 7])
def test_warmup_device_lost_recovers_or_raises(after):
    for recover in (True, False):
        llm = FakeLLM(FakeRunner(max_slots=4), recover=recover)
        llm.runner.before = loses(llm.runner, after)
        if recover:
            llm.warmup()
            assert llm.runner.num_slots == 4 and llm.runner.recoveries == 1
        else:
            with pytest.raises(DeviceLost):
                llm.warmup()


def test_warmup_cancelled_leaves_model_usable():
    llm = FakeLLM()
    cancel = CancelToken()
    with pytest.raises(CancelledError):
        llm.warmup(lambda event: cancel.cancel() if event.done == 2 else None, cancel)
    answer = llm.generate(tokens=PROMPT, max_new_tokens=5)
    answer.result()
    assert answer.tokens == alone(PROMPT, 5)

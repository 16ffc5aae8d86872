"""The engine over a runner whose tokens depend on every bit of its caches: each sequence has its own tokens."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.harness.fake_runner import FakeLLM, FakeRunner, alone
from webpte import CancelToken
from webpte.errors import DeviceLost
from webpte.llm import ConstraintError, LogitsError, QueueFullError, StaleGenerationError
from webpte.llm.engine.output import Admitted, OutputProcessor
from webpte.llm.engine.request import MAX_UNREAD_OUTPUTS, SamplingRequest, SequenceState
from webpte.llm.engine.scheduler import MAX_STEPS_PER_SUBMIT, MIN_CHUNK_TOKENS, PrefillPolicy
from webpte.llm.settings import sampling_params_from

A, B, C = list(range(1, 20)), list(range(30, 50)), list(range(60, 63))


def tokens_of(answer):
    answer.result()
    return answer.tokens


def ask(model, prompt, count=20, **settings: Any):
    return model.generate(tokens=prompt, max_new_tokens=count, **settings)


def test_engine_single_response_is_exact():
    llm = FakeLLM()
    assert tokens_of(ask(llm, A)) == alone(A, 20)
    seeded: dict[str, Any] = {"temperature": 0.7, "seed": 5}
    assert tokens_of(ask(llm, A, **seeded)) == alone(A, 20, **seeded) != alone(A, 20)
    assert tokens_of(ask(llm, A, 100)) == alone(A, 100) and len(alone(A, 100)) == 64 - len(A) + 1


def test_engine_delivers_the_slot_of_a_request_before_its_prompt_is_computed():
    """Queue times end with it: they were the times to the first token."""
    llm, delivered = FakeLLM(), []
    answer = ask(llm, A)
    run = llm.runner.run

    def noted(*arguments: Any, **options: Any) -> Any:
        delivered.append(answer._outputs.peek())
        return run(*arguments, **options)

    llm.runner.run = noted  # type: ignore[method-assign]
    assert tokens_of(answer) == alone(A, 20)
    assert isinstance(delivered[0], Admitted)


def test_answers_side_by_side_share_passes():
    llm = FakeLLM()
    answers = [ask(llm, prompt, tokens_per_submit=1) for prompt in (A, B, C)]
    for _ in zip(*answers, strict=True):
        pass
    assert [answer.tokens for answer in answers] == [alone(prompt, 20) for prompt in (A, B, C)]
    assert [len(rows) for rows in llm.runner.passes[10:15]] == [3] * 5
    assert len(llm.runner.passes) < 30  # they have not begun at once


def test_engine_more_sequences_than_slots_take_turns():
    llm = FakeLLM(FakeRunner(max_slots=2))
    prompts = [[n, *A] for n in range(5)]
    answers = [ask(llm, prompt) for prompt in prompts]
    for _ in zip(*answers, strict=True):
        pass
    assert [answer.tokens for answer in answers] == [alone(prompt, 20) for prompt in prompts]
    assert llm.runner.num_slots == 2


def test_engine_unbatchable_program_takes_turns():
    llm = FakeLLM(FakeRunner(max_slots=1))
    answers = [ask(llm, prompt) for prompt in (A, B)]
    for _ in zip(*answers, strict=True):
        pass
    assert [answer.tokens for answer in answers] == [alone(A, 20), alone(B, 20)]


def test_slots_grow_as_memory_allows():
    runner = FakeRunner(max_slots=16)
    runner.memory = 4
    llm = FakeLLM(runner, max_num_seqs=8)
    answers = [ask(llm, [n]) for n in range(12)]
    for answer in answers:
        next(answer)
    assert runner.num_slots == 4 and llm.engine.max_num_seqs == 4
    assert [tokens_of(answer) for answer in answers] == [alone([n], 20) for n in range(12)]


def test_engine_prefix_in_other_slot_is_copied_or_taken():
    llm = FakeLLM()
    shared = list(range(40))
    assert tokens_of(ask(llm, [*shared, 1], 4)) == alone([*shared, 1], 4)
    before = len(llm.runner.passes)
    first = ask(llm, [*shared, 2], 4, tokens_per_submit=1)
    next(first)
    assert first.usage.reused_tokens == 40 and not llm.runner.copies  # no one lived there
    second = ask(llm, [*shared, 3], 4)
    next(second)
    assert second.usage.reused_tokens == 40 and len(llm.runner.copies) == 1
    assert sum(row.position < 40 for rows in llm.runner.passes[before:] for row in rows) == 0
    assert tokens_of(first) == alone([*shared, 2], 4) and tokens_of(second) == alone([*shared, 3], 4)


def test_engine_shared_prefix_of_waiting_prompts_computed_once():
    llm = FakeLLM(FakeRunner(max_slots=8, max_batch_tokens=8))
    shared = [n % 90 for n in range(50)]
    answers = [ask(llm, [*shared, n], 4) for n in range(6)]
    for answer in answers:
        answer.start()
    assert [tokens_of(answer) for answer in answers] == [alone([*shared, n], 4) for n in range(6)]
    computed = sum(row.position < 50 for rows in llm.runner.passes for row in rows)
    assert computed == 50 and [answer.usage.reused_tokens for answer in answers] == [0, *[50] * 5]


def test_engine_finished_prompt_reused_until_cache_reset():
    llm = FakeLLM()
    tokens_of(ask(llm, A))
    again = ask(llm, A)
    assert tokens_of(again) == alone(A, 20) and again.usage.reused_tokens == len(A) - 1
    llm.reset_prefix_cache()
    new = ask(llm, A)
    assert tokens_of(new) == alone(A, 20) and new.usage.reused_tokens == 0


def test_engine_long_prompt_does_not_block_others():
    """A pass may take twice what it takes without the prompt's piece; no one waits for the whole of it."""
    runner = FakeRunner(max_slots=8, capacity=700, max_batch_tokens=256)
    runner.cost = lambda rows: 0.02 + 0.005 * rows
    llm = FakeLLM(runner, max_num_seqs=8)
    others = [ask(llm, [n], 600, tokens_per_submit=1) for n in range(7)]
    for _ in range(10):
        for answer in others:
            next(answer)
    prompt = [n % 90 for n in range(600)]
    late = ask(llm, prompt, 3)
    late.start()
    gaps, last = [], runner.now
    while not late.ready:
        for answer in others:
            next(answer)
        gaps.append(runner.now - last)
        last = runner.now
    plain = runner.cost(7)
    assert max(gaps) <= 2.5 * plain and len(gaps) < 100
    assert next(late).token == alone(prompt, 1, 700)[0]
    assert all(answer.tokens == alone([n], len(answer.tokens), 700) for n, answer in enumerate(others))


def test_prompts_are_computed_in_order_and_a_short_one_is_not_delayed():
    runner = FakeRunner(max_slots=4, max_batch_tokens=8)
    llm = FakeLLM(runner)
    prompts = [[n] * 40 for n in range(3)] + [[3, 3]]
    answers = [ask(llm, prompt, 2) for prompt in prompts]
    for answer in answers:
        answer.start()
    next(answers[2])
    tokens = [{row.token for row in rows} for rows in runner.passes]
    firsts = [next(at for at, result in enumerate(tokens) if n in result) for n in range(4)]
    assert firsts[3] == 0 and firsts[:3] == sorted(firsts[:3])
    assert [tokens_of(answer) for answer in answers] == [alone(prompt, 2) for prompt in prompts]


def test_cancelling_ends_within_a_tick_and_frees_the_slot():
    llm = FakeLLM(FakeRunner(max_slots=2))
    cancel = CancelToken()
    stopped, other = ask(llm, A, cancel=cancel), ask(llm, B)
    next(stopped)
    next(other)
    cancel.cancel()
    assert list(stopped) == [] and stopped.usage.finish_reason == "cancelled"
    third = ask(llm, C)
    assert tokens_of(third) == alone(C, 20) and tokens_of(other) == alone(B, 20)
    assert llm.runner.num_slots == 2
    never = ask(llm, A, cancel=cancel)
    assert list(never) == [] and never.usage.finish_reason == "cancelled"


def test_engine_dropped_response_frees_slot():
    llm = FakeLLM(FakeRunner(max_slots=4))
    gc.disable()  # nothing may wait for the collector
    try:
        for n in range(20):
            next(ask(llm, [n]))
        kept = llm.sequence()
        kept.logits([1, 2, 3])
        del kept
        assert tokens_of(ask(llm, A)) == alone(A, 20)
    finally:
        gc.enable()
    assert llm.runner.num_slots == 1


def test_engine_unread_response_pauses_and_keeps_slot():
    llm = FakeLLM(FakeRunner(capacity=512))
    idle = ask(llm, A, 400, speculate=False)
    next(idle)
    tokens_of(ask(llm, B, 400, speculate=False))
    assert MAX_UNREAD_OUTPUTS <= len(idle._outputs) <= MAX_UNREAD_OUTPUTS + 2 * MAX_STEPS_PER_SUBMIT
    assert tokens_of(idle) == alone(A, 400, 512)
    assert llm.engine.stats.tokens == len(A) + len(B) + 399 + 399
    assert llm.engine.stats.evictions == llm.engine.stats.preemptions == 0


def test_engine_unread_response_continues_while_slot_is_contended():
    llm = FakeLLM(FakeRunner(max_slots=1, capacity=512))
    idle, waiting = ask(llm, A, 200, speculate=False), ask(llm, B, 20, speculate=False)
    next(idle)
    assert tokens_of(waiting) == alone(B, 20) and tokens_of(idle) == alone(A, 200, 512)
    assert llm.engine.stats.tokens == len(A) + len(B) + 199 + 19


def test_engine_queue_is_bounded():
    llm = FakeLLM(max_queue_size=3)
    answers = [ask(llm, [n]) for n in range(4)]
    for answer in answers[:3]:
        answer.start()
    with raises(QueueFullError, "3 requests", "4 slots"):
        next(answers[3])
    assert [tokens_of(answer) for answer in answers[:3]] == [alone([n], 20) for n in range(3)]


def test_engine_failing_request_does_not_affect_others():
    llm = FakeLLM()
    llm.runner.bad = lambda tokens: tokens[:1] == A[:1] and len(tokens) > len(A) + 2
    good, bad = ask(llm, B), ask(llm, A)
    for _ in range(3):
        next(good)
        next(bad)
    with raises(LogitsError, f"position {len(A) + 2} ", code="not_finite"):
        tokens_of(bad)
    assert bad.tokens == alone(A, 3) and isinstance(bad.error, LogitsError)
    assert tokens_of(good) == alone(B, 20)


class Oracle:
    """Steering that knows the answer: every third draft is wrong, and what follows a 7 is forced."""

    guided, ended = True, False

    def __init__(self, answer):
        self.answer, self.taken, self.seen, self.fails_at = answer, 0, [], len(answer)

    def append(self, token, *, in_answer):
        assert in_answer and token == self.answer[self.taken]
        self.taken += 1

    def forced(self):
        return tuple(self.answer[self.taken : self.taken + 2]) if self.taken and self.taken % 7 == 0 else ()

    def draft(self, rows, most):
        if self.taken >= self.fails_at:
            raise ConstraintError("impossible")
        drafts = self.answer[self.taken : self.taken + min(most, 4)]
        drafts = [token if (self.taken + at) % 3 else (token + 1) % 90 for at, token in enumerate(drafts)]
        return tuple(drafts), [None] * (1 + len(drafts))

    def verified(self, rows, drafted, accepted, seconds):
        self.seen.append((rows, drafted, accepted))


def steered(llm, prompt, count, oracle):
    """A request as an answer would submit it."""
    request = SamplingRequest(
        SequenceState(),
        prompt,
        sampling_params_from({"max_new_tokens": count}),
        OutputProcessor(llm.tokenizer),
        capacity=llm.capacity,
        decode_state=oracle,
    )
    llm.engine.submit(request)
    return request


def test_drafts_are_verified_and_forced_tokens_taken():
    llm = FakeLLM()
    want = alone(A, 40)
    oracle, other = Oracle(want), ask(llm, B, 40)
    request = steered(llm, A, 40, oracle)
    other.start()
    while not request.finished:
        llm.engine.step()
        while request.sink.take() is not None:
            pass
        if other.usage.finish_reason is None:
            next(other)
    assert request.tokens[len(A) :] == want and oracle.taken == 40
    assert any(accepted == 2 for _, _, accepted in oracle.seen) and any(rows == 2 for rows, _, _ in oracle.seen)
    assert len(oracle.seen) < 25
    assert tokens_of(other) == alone(B, 40)


def test_steering_that_fails_ends_its_own_answer():
    llm = FakeLLM()
    oracle, other = Oracle(alone(A, 40)), ask(llm, B)
    oracle.fails_at = 5
    request = steered(llm, A, 40, oracle)
    next(other)
    while not request.finished:
        llm.engine.step()
    assert isinstance(request.error, ConstraintError)
    assert tokens_of(other) == alone(B, 20)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", range(8))
def test_engine_interrupt_ends_one_response_others_continue(moment, call):
    llm = FakeLLM()
    seen = []

    def interrupt():
        seen.append(1)
        if len(seen) - 1 == call:
            raise KeyboardInterrupt

    first, second = ask(llm, A, tokens_per_submit=3), ask(llm, [*A, 5, 6, 7])
    second.start()
    setattr(llm.runner, moment, interrupt)
    with pytest.raises(KeyboardInterrupt):
        tokens_of(first)
    assert list(first) == [] and first.tokens == alone(A, 20)[: len(first.tokens)]
    assert tokens_of(second) == alone([*A, 5, 6, 7], 20)
    assert tokens_of(ask(llm, A)) == alone(A, 20)


def test_engine_device_lost_raises_until_recover():
    llm = FakeLLM()
    kept = llm.sequence()
    first, second, other = ask(llm, A), ask(llm, B), ask(kept, C)
    for answer in (first, second, other):
        next(answer)
    llm.runner.lose()
    for answer in (first, second, other):
        with pytest.raises(DeviceLost):
            tokens_of(answer)
    assert llm.recover() and not llm.recover()
    assert tokens_of(ask(llm, A)) == alone(A, 20)
    assert tokens_of(ask(kept, C, 4)) == alone(C, 4)


@pytest.mark.parametrize("call", range(1, 12))
def test_engine_recover_option_continues_after_device_loss(call):
    llm = FakeLLM(recover=True)
    seen = []

    def lose():
        seen.append(1)
        if len(seen) in (call, call + 5, call + 17):
            llm.runner.lose()

    llm.runner.before = lose
    answers = [ask(llm, prompt) for prompt in (A, B, C)]
    for _ in zip(*answers, strict=True):
        pass
    assert [answer.tokens for answer in answers] == [alone(prompt, 20) for prompt in (A, B, C)]
    assert llm.runner.recoveries == 3


def test_engine_recover_in_other_thread_repeats_only_that_step(monkeypatch):
    llm = FakeLLM()
    answer = ask(llm, A, tokens_per_submit=1, speculate=False)
    next(answer)
    run = llm.runner.run

    def recovered_meanwhile(rows, picks):
        monkeypatch.undo()
        result = run(rows, picks)
        llm.runner.lose()
        llm.runner.recover()
        return [chosen._replace(token=(chosen.token + 1) % 97) for chosen in result]  # of a cache that was half there

    monkeypatch.setattr(llm.runner, "run", recovered_meanwhile)
    assert tokens_of(answer) == alone(A, 20)


def test_sequence_two_responses_older_is_refused():
    sequence = FakeLLM().sequence()
    older, newer = ask(sequence, A), ask(sequence, B)
    next(older)
    next(newer)
    with raises(StaleGenerationError, "fork()"):
        tokens_of(older)
    assert tokens_of(newer) == alone(B, 20)


def test_sequence_keeps_its_tokens(tmp_path):
    llm = FakeLLM()
    sequence = llm.sequence()
    answer = ask(sequence, A, 5)
    tokens_of(answer)
    assert sequence.tokens == (*A, *answer.tokens[:4]) and sequence.remaining == 64 - sequence.position
    fork = sequence.fork()
    want = sequence.fork().logits([7])
    assert np.array_equal(fork.logits([7]), want) and fork.position == sequence.position + 1
    sequence.snapshot(tmp_path / "state")
    sequence.rewind(4)
    assert sequence.tokens == tuple(A)
    assert tokens_of(ask(sequence, [*A, 9], 3)) == alone([*A, 9], 3)
    other = FakeLLM().sequence()
    other.restore(tmp_path / "state")
    assert other.tokens == (*A, *answer.tokens[:4]) and np.array_equal(other.logits([7]), want)
    sequence.reset()
    assert sequence.position == 0 and np.array_equal(sequence.logits(A), llm.sequence().logits(A))


def test_parked_sequences_are_computed_again(tmp_path):
    llm = FakeLLM(FakeRunner(max_slots=1))
    first, second = llm.sequence(), llm.sequence()
    want = FakeLLM().sequence().logits([*A, 7])
    first.logits(A)
    second.logits(B)
    first.snapshot(tmp_path / "state")
    second.restore(tmp_path / "state")
    first.reset()
    first.logits(B)
    assert np.array_equal(second.logits([7]), want)


def test_sequence_logits_of_all_tokens_equal_single_steps():
    tokens = [(5 * n) % 31 for n in range(40)]  # several pieces of a pass
    single = FakeLLM().sequence()
    want = np.concatenate([single.logits([token]) for token in tokens])
    llm = FakeLLM()
    assert llm.sequence().logits(tokens).tolist() == want[-1:].tolist()  # and leaves them in the cache
    other = llm.sequence()
    assert np.array_equal(other.logits(tokens[:3], every=True), want[:3])
    assert np.array_equal(other.logits(tokens[3:], every=True), want[3:])
    assert other.tokens == tuple(tokens)


def test_sequence_logits_of_all_tokens_survive_device_loss():
    tokens = [(5 * n) % 31 for n in range(40)]
    want = FakeLLM().sequence().logits(tokens, every=True)
    llm = FakeLLM(recover=True)
    sequence = llm.sequence()
    sequence.logits(tokens[:2])
    llm.runner.after = lambda: llm.runner.lose() if len(llm.runner.passes) == 3 else None
    assert np.array_equal(sequence.logits(tokens[2:], every=True), want[2:])
    assert llm.runner.recoveries == 1


def test_threads_share_the_engine():
    llm = FakeLLM(FakeRunner(max_slots=3))
    wrong: list[Any] = []

    def talk(number):
        for turn in range(6):
            prompt = [number, turn, *A]
            try:
                result = tokens_of(ask(llm, prompt, 12, seed=turn, temperature=0.5))
            except BaseException as error:
                wrong.append(error)
            else:
                if result != alone(prompt, 12, seed=turn, temperature=0.5):
                    wrong.append(result)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    assert max(len(rows) for rows in llm.runner.passes) > 1


def test_prompt_chunk_size_follows_step_costs():
    policy = PrefillPolicy()
    assert policy.prefill_tokens(0, 256) == 256
    assert policy.prefill_tokens(1, 256) == MIN_CHUNK_TOKENS and policy.prefill_tokens(7, 256) == 7
    for size, seconds, chunk in ((7, 0.1, 7), (12, 0.11, 24 - 7), (24, 0.21, 16 - 7), (16, 0.12, 16 - 7)):
        for _ in range(3):
            policy.record(size, 1, seconds)
        assert policy.prefill_tokens(7, 256) == chunk
    assert policy.prefill_tokens(7, 12) == 12 - 7


def ask_for(llm, prompt):
    """Read one short answer; return how many tokens of its prompt were cached."""
    answer = llm.generate(tokens=prompt, max_new_tokens=2)
    assert tokens_of(answer) == alone(prompt, 2)
    return answer.usage.reused_tokens


def test_cache_slots_keep_prefixes_of_conversations():
    """Conversations that come in turn: without more slots than one each forgets the other."""
    prompts = [tuple(range(first, first + 20)) for first in (0, 30, 60)]
    for more, cached in ((0, 0), (2, 19)):
        llm = FakeLLM(FakeRunner(max_slots=4), max_num_seqs=1, num_cache_slots=more)
        for prompt in prompts:
            assert ask_for(llm, prompt) == 0
        assert [ask_for(llm, prompt) for prompt in prompts] == [cached] * 3
        assert llm.runner.num_slots == 1 + more


def test_engine_evicts_least_recently_used_prefix():
    first, second, third = (tuple(range(start, start + 20)) for start in (0, 30, 60))
    llm = FakeLLM(FakeRunner(max_slots=4), max_num_seqs=1, num_cache_slots=1)
    assert [ask_for(llm, prompt) for prompt in (first, second, first, third)] == [0, 0, 19, 0]
    assert [ask_for(llm, prompt) for prompt in (first, second)] == [19, 0]


def test_engine_conversation_kept_while_slot_is_empty():
    system = tuple(range(20))
    llm = FakeLLM(FakeRunner(max_slots=4), max_num_seqs=1, num_cache_slots=2)
    assert ask_for(llm, (*system, *range(40, 60))) == 0
    assert ask_for(llm, (*system, *range(60, 80))) == 20
    assert ask_for(llm, (*system, *range(40, 60))) == 39
    assert ask_for(llm, (*system, *range(60, 80))) == 39


def test_engine_extra_cache_slots_do_not_raise_concurrency():
    llm = FakeLLM(FakeRunner(max_slots=8), max_num_seqs=2, num_cache_slots=6)
    answers = [llm.generate(tokens=(number,), max_new_tokens=5) for number in range(6)]
    for answer in answers:
        answer.start()
    while not all(answer.ready for answer in answers):
        llm.engine.step()
        assert len({row.slot for row in llm.runner.passes[-1]}) <= 2
    assert [list(answer) and answer.tokens for answer in answers] == [alone((n,), 5) for n in range(6)]


def test_evictions_and_preemptions_are_counted():
    llm = FakeLLM(FakeRunner(max_slots=2), recover=True)
    sequences = [llm.sequence() for _ in range(3)]
    for number, sequence in enumerate(sequences):
        sequence.logits([number, *A])
    assert llm.engine.stats.evictions == 1 and llm.engine.stats.preemptions == 0
    tokens_of(ask(llm, B, 3))
    assert llm.engine.stats.evictions == 2
    first, second = ask(llm, A, tokens_per_submit=1), ask(llm, B, tokens_per_submit=1)
    next(first)
    next(second)
    evictions = llm.engine.stats.evictions
    llm.runner.lose()
    assert tokens_of(first) == alone(A, 20) and tokens_of(second) == alone(B, 20)
    assert llm.engine.stats.preemptions == 2 and llm.engine.stats.evictions == evictions

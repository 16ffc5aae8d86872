"""A sequence has one answer at a time: they never mix, whatever overlaps, is dropped, interrupted or run by threads."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.models.tiny_llm import CONTEXT, VOCAB, tokens_of, write_tiny_llm
from webpte.llm import LLM, LogitsError, StaleGenerationError, sampling

FIRST, SECOND = list(range(1, 20)), list(range(40, 60))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with LLM.load(write_tiny_llm(tmp_path_factory.mktemp("llm")) / "tiny.pte") as loaded:
        loaded.stop_tokens = frozenset()
        want = {}
        for prompt in (FIRST, SECOND):
            want[prompt[0]] = tokens_of(loaded.generate(tokens=prompt, max_new_tokens=24, tokens_per_submit=1))
        yield SimpleNamespace(model=loaded, first=want[FIRST[0]], second=want[SECOND[0]])


@pytest.fixture
def talk(shared):
    """Return a conversation: what the tests below disturb."""
    return shared.model.sequence()


def answer(talk, prompt, count=24, per_submit=1, **settings: Any):
    return talk.generate(tokens=prompt, max_new_tokens=count, tokens_per_submit=per_submit, **settings)


def assert_sound(talk, shared):
    """The model answers as if nothing had happened, from what its cache holds."""
    assert tokens_of(answer(talk, SECOND)) == shared.second
    assert tokens_of(answer(talk, FIRST)) == shared.first


def test_sequence_abandoned_response_keeps_next_exact(talk, shared):
    old = answer(talk, FIRST, per_submit=8)
    stream = iter(old)
    for _ in range(3):
        next(stream)
    new = answer(talk, SECOND)
    for _ in range(6):
        next(new)
    position = talk.position
    del old, stream
    gc.collect()
    assert talk.position == position
    assert tokens_of(new) == shared.second


def test_sequence_second_response_refuses_older(talk, shared):
    older, newer = answer(talk, FIRST), answer(talk, SECOND)
    next(older)
    next(newer)
    with raises(StaleGenerationError, "fork()"):
        next(older)
    assert older.usage.finish_reason == "cancelled" and list(older) == []
    assert tokens_of(newer) == shared.second
    assert_sound(talk, shared)


def test_zipped_answers_never_mix(talk, shared):
    a, b = answer(talk, FIRST), answer(talk, SECOND)
    with pytest.raises(StaleGenerationError):
        for _ in zip(a, b, strict=False):
            pass
    assert a.tokens == shared.first[: len(a.tokens)] and b.tokens == shared.second[: len(b.tokens)]
    assert_sound(talk, shared)


@pytest.mark.parametrize("act", ["reset", "rewind", "logits", "restore"])
def test_sequence_other_use_of_cache_ends_response(talk, shared, act, tmp_path):
    talk.snapshot(tmp_path / "empty")
    stream = answer(talk, FIRST, per_submit=8)
    for _ in range(3):
        next(stream)
    assert talk.position == len(FIRST) + 2  # what was computed ahead is not counted
    {
        "reset": talk.reset,
        "rewind": lambda: talk.rewind(1),
        "logits": lambda: talk.logits([5]),
        "restore": lambda: talk.restore(tmp_path / "empty"),
    }[act]()
    assert talk.position == {"reset": 0, "rewind": len(FIRST) + 1, "logits": len(FIRST) + 3, "restore": 0}[act]
    with pytest.raises(StaleGenerationError):
        stream.result()
    assert stream.tokens == shared.first[: len(stream.tokens)]
    assert_sound(talk, shared)


def test_sequence_fork_during_multi_step_starts_after_seen_tokens(talk, shared):
    stream = answer(talk, FIRST, per_submit=8)
    for _ in range(4):
        next(stream)
    other = talk.fork()
    assert other.position == talk.position == len(FIRST) + 3
    assert int(other.logits([shared.first[3]]).argmax()) == shared.first[4]
    assert tokens_of(stream) == shared.first
    other.close()


def test_generation_iterated_again_continues(talk, shared):
    generation = answer(talk, FIRST)
    for number, _ in enumerate(generation):
        if number == 4:
            break
    assert generation.tokens == shared.first[:5] and generation.usage.finish_reason is None
    assert [piece.token for piece in generation] == shared.first[5:]
    assert generation.tokens == shared.first and list(generation) == []
    text = generation.text
    assert generation.result() == text


def test_sequence_threads_refused_or_exact_never_mixed(talk, shared):
    """Each begins answers in the same sequence; the older one gets an error and never another's tokens."""
    wrong, refused, right = [], [], []

    def ask(prompt, want):
        for _ in range(12):
            generation = answer(talk, prompt, 8, per_submit=3)
            try:
                generation.result()
                right.append(1)
            except StaleGenerationError:
                refused.append(1)
            except BaseException as error:
                wrong.append(error)
            if generation.tokens != want[: len(generation.tokens)]:
                wrong.append(generation.tokens)

    threads = [threading.Thread(target=ask, args=pair) for pair in ((FIRST, shared.first), (SECOND, shared.second)) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(right) + len(refused) == 48
    assert_sound(talk, shared)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", [0, 1, 3])
def test_sequence_interrupted_step_keeps_state_exact(talk, shared, monkeypatch, when, call):
    """Raised before or after the device was given the work: what the model believes of its cache stays true."""
    seen = []

    def interrupted(name):
        real = getattr(talk.llm.engine.runner.method, name)

        def run(*arguments, **options):
            seen.append(name)
            if len(seen) - 1 == call and when == "before":
                raise KeyboardInterrupt
            result = real(*arguments, **options)
            if len(seen) - 1 == call:
                raise KeyboardInterrupt
            return result

        monkeypatch.setattr(talk.llm.engine.runner.method, name, run)

    answer(talk, FIRST[:10], 2).result()
    interrupted("run")
    interrupted("start_steps")
    interrupted("follow_steps")
    generation = answer(talk, FIRST, per_submit=4)
    with pytest.raises(KeyboardInterrupt):
        generation.result()
    monkeypatch.undo()
    assert generation.tokens == shared.first[: len(generation.tokens)] and list(generation) == []
    assert tokens_of(answer(talk, FIRST)) == shared.first
    assert_sound(talk, shared)


def poisoned(monkeypatch, mark, after):
    """Sampled tokens become a mark of the sampler from some step on."""
    steps = []

    def spoiled(outputs):
        steps.append(1)
        result = real(outputs)
        return [chosen._replace(token=mark) for chosen in result] if len(steps) > after else result

    real = sampling.unpack
    monkeypatch.setattr("webpte.llm.engine.runner.unpack", spoiled)
    monkeypatch.setattr("webpte.llm.engine.decode_steps.unpack", spoiled)


@pytest.mark.parametrize("per_submit", [1, 4])
@pytest.mark.parametrize(("mark", "code"), [(-1, "not_finite"), (-2, "all_hidden")])
def test_logits_that_leave_no_choice_are_an_error(talk, shared, monkeypatch, mark, code, per_submit):
    answer(talk, FIRST[:10], 1).result()
    poisoned(monkeypatch, mark, 3)
    generation = answer(talk, FIRST, per_submit=per_submit)
    with raises(LogitsError, f"position {len(FIRST) + 2} ", code=code):
        generation.result()
    assert generation.tokens == shared.first[:3]
    monkeypatch.undo()
    assert_sound(talk, shared)


def test_sequence_refused_call_changes_nothing(talk, shared):
    answer(talk, FIRST).result()
    position = talk.position
    for tokens in ([-1], [VOCAB], [2**31], [1.5], [[1]], [True], []):
        with pytest.raises(webpte.InputError):
            talk.generate(tokens=tokens)
        with pytest.raises(webpte.InputError):
            talk.logits(tokens)
    for settings in ({"seed": 2**31}, {"top_p": 2.0}, {"max_new_tokens": 0}, {"stop": None}):
        with pytest.raises(webpte.InputError):
            talk.generate("x", **settings)
    prompts: list[Any] = [None, 5, b"abc", [5], {}, [{"role": "user"}]]
    for prompt in prompts:
        with pytest.raises(webpte.InputError):
            talk.generate(prompt)
    for count in (-1, 1.0, 10**9, None):
        with pytest.raises(webpte.InputError):
            talk.rewind(count)
    assert talk.position == position == len(FIRST) + 23 <= CONTEXT
    assert_sound(talk, shared)

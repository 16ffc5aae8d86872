"""Models whose state is that of their last token: whatever a sequence goes through, it answers as transformers does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import webpte
from tests.studies.families.measuring import TOLERANCE, measured
from tests.support.harness.built_models import difference
from tests.support.harness.gate import slow_but
from tests.support.harness.random_states import RealModel, run_operations
from tests.support.models.families import CONTEXT, VOCABULARY, first
from webpte.llm import LLM

TEXT = [int(token) for token in np.random.default_rng(5).integers(3, VOCABULARY, 30)]


class Model:
    """A program, or its bundle, and transformers' model of the same checkpoint."""

    def __init__(self, family: str, folder: Path | None = None) -> None:
        self.goes_back = family == "lfm2"  # its convolutions keep their latest inputs
        result = measured(first(family))
        self.path = result.path
        self.real = first(family).make()
        if folder is not None:
            with webpte.load(result.path) as program:
                webpte.bundle(program, folder, sequences=4)
        self.llm = LLM.load(folder or result.path)
        self.llm.stop_tokens = frozenset()

    def logits(self, tokens):
        """Return the logits of transformers for all tokens at once."""
        with torch.no_grad():
            return self.real(torch.tensor([list(tokens)])).logits[0, -1:].numpy()

    def answer(self, tokens, count):
        known = list(tokens)
        for _ in range(count):
            known.append(int(self.logits(known).argmax()))
        return known[len(tokens) :]

    def check(self, sequence, token):
        """The next token of a sequence, against all of its tokens."""
        expected = self.logits([*sequence.tokens, token])
        assert difference(sequence.logits([token]), expected) <= TOLERANCE


@pytest.fixture(scope="module", params=slow_but(["lfm2"], ["lfm2", "qwen3_5", "lfm2 bundle", "qwen3_5 bundle"]))
def model(request, tmp_path_factory):
    family, _, bundle = request.param.partition(" ")
    result = Model(family, tmp_path_factory.mktemp("bundle") / "site" if bundle else None)
    with result.llm:
        yield result


@pytest.fixture
def talk(model):
    model.llm.reset_prefix_cache()
    with model.llm.sequence() as sequence:
        yield sequence


@pytest.mark.parametrize("pieces", [(29,), (1,) * 9, (2, 23, 1, 3), (23, 6)])
def test_hybrid_prompt_in_any_chunks_same_logits(model, talk, pieces):
    at = 0
    for count in pieces:  # a call takes 23 tokens at most: 29 are fed in two
        got = talk.logits(TEXT[at : at + count])
        at += count
        assert difference(got, model.logits(TEXT[:at])) <= TOLERANCE


@pytest.mark.parametrize("back", [1, 2, 5, 20])
def test_hybrid_sequence_rewound_continues_exactly(model, talk, back):
    talk.logits(TEXT[:20])
    talk.rewind(back)
    model.check(talk, 7)
    model.check(talk, 8)


def test_hybrid_sequence_reset_clears_state(model, talk):
    talk.logits(TEXT[:9])
    talk.reset()
    assert difference(talk.logits(TEXT[9:12]), model.logits(TEXT[9:12])) <= TOLERANCE


def test_forks_go_their_own_ways(model, talk):
    talk.logits(TEXT[:12])
    twin = talk.fork()
    model.check(talk, 5)
    model.check(twin, 6)
    model.check(talk, 7)
    model.check(twin, 8)


def test_hybrid_snapshot_restores_its_moment(model, talk, tmp_path):
    talk.logits(TEXT[:12])
    talk.snapshot(tmp_path / "early")
    talk.logits(TEXT[12:15])
    talk.rewind(1)
    talk.snapshot(tmp_path / "rewound")
    other = model.llm.sequence()
    other.logits(TEXT[15:])
    for name in ("early", "rewound"):
        other.restore(tmp_path / name)
        model.check(other, 9)
        talk.restore(tmp_path / name)
        talk.rewind(2)
        model.check(talk, 9)


@pytest.mark.parametrize("at_once", [1, 4, 8])
def test_hybrid_tokens_after_end_leave_no_trace(model, talk, at_once):
    """Several are computed in a submit, and those after a stop were computed for nothing."""
    whole = model.answer(TEXT[:10], 9)
    end = whole[4]
    model.llm.stop_tokens = frozenset([end])
    try:
        said = talk.generate(tokens=TEXT[:10], max_new_tokens=9, tokens_per_submit=at_once)
        said.result()
        assert said.tokens == whole[: whole.index(end) + 1]
        further = [*TEXT[:10], *said.tokens, *TEXT[10:13]]
    finally:
        model.llm.stop_tokens = frozenset()
    assert difference(talk.logits([6]), model.logits([*TEXT[:10], *said.tokens[:-1], 6])) <= TOLERANCE
    then = talk.generate(tokens=further, max_new_tokens=4)
    then.result()
    assert then.tokens == model.answer(further, 4)


def test_hybrid_prefix_reused_only_with_exact_state(model, talk):
    talk.logits(TEXT[:12])
    on = talk.generate(tokens=TEXT[:16], max_new_tokens=4, tokens_per_submit=1)
    on.result()
    assert on.tokens == model.answer(TEXT[:16], 4) and on.usage.reused_tokens == 12
    back = talk.generate(tokens=[*TEXT[:8], 5, 6], max_new_tokens=4)
    back.result()
    assert back.tokens == model.answer([*TEXT[:8], 5, 6], 4)
    assert back.usage.reused_tokens == (8 if model.goes_back else 0)


def test_hybrid_checkpoint_serves_another_continuation(model):
    """After other slots were made: the prompt's end is where both continue."""
    model.llm.reset_prefix_cache()
    talks = [model.llm.sequence() for _ in range(3)]
    for talk in talks:
        talk.generate(tokens=TEXT[:20], max_new_tokens=6, tokens_per_submit=1).result()
    for number, talk in enumerate(talks):
        tokens = [*TEXT[:20], 5 + number, 6]
        answer = talk.generate(tokens=tokens, max_new_tokens=4)
        answer.result()
        # One less where the same prompt was there: its last token was computed again.
        assert answer.tokens == model.answer(tokens, 4) and answer.usage.reused_tokens >= 19
        talk.close()


def test_hybrid_answers_at_once_equal_each_alone(model):
    prompts = [TEXT[:5], TEXT[:9], TEXT[3:12], TEXT[:5]]
    values = model.llm.generate_many([{"tokens": tokens} for tokens in prompts], max_new_tokens=5, speculate=True)
    assert [answer.tokens for answer in values] == [model.answer(tokens, 5) for tokens in prompts]
    assert model.llm.batching_unsupported_reason is None


def test_hybrid_drafts_leave_no_trace(model):
    """The text repeats itself, so there are drafts. Those that are wrong have changed the state."""
    prompts = [TEXT[:6] * 3, [*TEXT[8:11] * 6, 5], [7] * 20]
    answers = list(
        model.llm.generate_many([{"tokens": tokens} for tokens in prompts], max_new_tokens=14, speculate=True)
    )
    assert [answer.tokens for answer in answers] == [model.answer(tokens, 14) for tokens in prompts]
    alone = model.llm.generate(tokens=prompts[0][:-1], max_new_tokens=16, speculate=True)
    alone.result()
    assert alone.tokens == model.answer(prompts[0][:-1], 16)


def test_hybrid_random_operations_equal_fresh_computations(model):
    """`python -m tests.support.harness.random_states 2000` runs more, in a longer context, and loses devices."""
    model.llm.reset_prefix_cache()
    counts = run_operations(RealModel(model.llm, model.real), range(3))
    assert counts["ask"] >= 4 and counts["rewind"] + counts["fork"] + counts["restore"] >= 2


def test_hybrid_failing_call_keeps_sequence(model, talk):
    talk.logits(TEXT[:12])
    with pytest.raises(webpte.Error):
        talk.logits(TEXT * 2)
    assert len(TEXT) * 2 > CONTEXT - 12 and talk.position == 12
    model.check(talk, 4)


@pytest.mark.parametrize("family", slow_but(["lfm2"], ["gemma3", "lfm2", "qwen3_5"]))
def test_program_that_runs_alone_answers_with_steps_in_flight(family, monkeypatch):
    """A ring, or states without slots: a stop discards steps in flight, and the next turn is that of transformers."""

    def refuse(*args):
        raise webpte.UnsupportedError("it runs alone")

    monkeypatch.setattr("webpte.llm.loading.BatchedRunner", refuse)
    real = first(family).make()
    with LLM.load(measured(first(family)).path) as llm:
        assert llm.batching_unsupported_reason == "it runs alone" and llm.engine.runner.cache_window is not None
        llm.stop_tokens, reference = frozenset(), RealModel(llm, real)
        settings: dict[str, Any] = {"max_new_tokens": 14, "tokens_per_submit": 2, "speculate": False, "temperature": 0}
        for start in range(20):  # some prompts lead to circles
            prompt = TEXT[start : start + 6]
            whole = llm.generate(tokens=prompt, **settings)
            whole.result()
            reference.check_answer(prompt, whole.tokens)
            end = max(at for at in range(14) if whole.tokens[at] not in whole.tokens[:at])
            if 5 <= end < 12:
                break
        assert 5 <= end < 12
        llm.reset_prefix_cache()
        llm.stop_tokens = frozenset([whole.tokens[end]])
        stopped = llm.generate(tokens=prompt, **settings)
        stopped.result()
        assert stopped.tokens == whole.tokens[: end + 1]
        llm.stop_tokens = frozenset()
        further = [*prompt, *stopped.tokens, 7, 8]
        then = llm.generate(tokens=further, **{**settings, "max_new_tokens": 5})
        then.result()
        reference.check_answer(further, then.tokens)
        reference.verify()


def test_hybrid_program_new_text_resets_state(model):
    """In any runtime: there is no one but us to clear a state."""
    with webpte.load(model.path) as program:
        method = program.method("forward")
        for tokens in (TEXT[:6], TEXT[6:9]):
            got = np.asarray(method(np.array([tokens]), np.array([0]))).reshape(1, -1)
            assert difference(got, model.logits(tokens)) <= TOLERANCE

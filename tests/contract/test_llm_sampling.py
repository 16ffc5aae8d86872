"""Settings reach the device: what an answer asks for is what NumPy makes of the program's own logits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.models.tiny_llm import CONTEXT, VOCAB, write_tiny_llm
from tests.unit.test_logits_processor import by_definition
from webpte.llm import LLM
from webpte.llm.settings import SamplingParams

PROMPT = list(b"hello")
# Random weights do not repeat themselves unless they are rewarded for it.
PENALTIES: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 0.4},
    "presence": {"presence_penalty": -1.5},
    "frequency": {"frequency_penalty": -1.0},
    "bias": {"logit_bias": {7: 1.5, 100: -100}},
    "all": {"repetition_penalty": 0.4, "presence_penalty": 0.3, "frequency_penalty": 0.2, "logit_bias": {9: 0.5}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_llm(tmp_path_factory.mktemp("llm"))


@pytest.fixture(scope="module")
def llm(folder):
    with LLM.load(folder / "tiny.pte") as model:
        model.stop_tokens = frozenset()
        model.engine.background = False  # passes are counted
        yield model


@pytest.fixture(scope="module")
def logits_behind(folder):
    """Yield the program's logits after tokens, computed one by one from the beginning."""
    with webpte.load(folder / "tiny.pte") as program:
        method = program.method()

        def behind(tokens):
            for position, token in enumerate(tokens):
                result = method(np.array([[token]]), np.array([position]))
            return result.reshape(-1)

        yield behind


def answer(llm, count=12, **settings):
    generation = llm.generate(tokens=PROMPT, max_new_tokens=count, **settings)
    generation.result()
    return generation.tokens


@pytest.mark.parametrize("settings", PENALTIES.values(), ids=PENALTIES)
def test_greedy_response_follows_adjusted_logits(llm, logits_behind, settings):
    result = answer(llm, **settings)
    for i, token in enumerate(result):
        logits = by_definition(logits_behind(PROMPT + result[:i]), SamplingParams(**settings), PROMPT, result[:i])
        assert token == logits.argmax(), f"token {i}"
    for count in (1, 4):
        assert answer(llm, tokens_per_submit=count, **settings) == result
    assert result != answer(llm)


def test_logit_bias_bans_and_forces_tokens(llm):
    usual = set(answer(llm, CONTEXT))
    assert not usual & set(answer(llm, CONTEXT, logit_bias=dict.fromkeys(usual, -100)))
    assert set(answer(llm, CONTEXT, temperature=1.0, logit_bias={17: 100})) == {17}


def test_min_p_keeps_tokens_near_most_probable(llm, logits_behind):
    result = answer(llm, 20, temperature=2.0, min_p=0.6, seed=3)
    few = 0
    for i, token in enumerate(result):
        scores = logits_behind(PROMPT + result[:i]).astype(np.float64) / 2
        allowed = scores >= scores.max() + np.log(0.6) - 1e-5
        few += allowed.sum() < VOCAB / 2
        assert allowed[token]
    assert few > 10 and result != answer(llm, 20)
    assert answer(llm, 20, temperature=2.0, min_p=0.6, seed=3, tokens_per_submit=5) == result


@pytest.mark.parametrize("count", [1, 4])
def test_top_logprobs_are_listed_per_piece(llm, logits_behind, count):
    settings = {"temperature": 1.5, "seed": 2, "tokens_per_submit": count}
    settings |= {"presence_penalty": 0.5} if count == 1 else {}  # for which one token is computed at a time
    pieces = list(llm.generate(tokens=PROMPT, max_new_tokens=6, top_logprobs=3, logprobs=True, **settings))
    for i, piece in enumerate(pieces):
        logits = logits_behind(PROMPT + [before.token for before in pieces[:i]]).astype(np.float64)
        sure = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        order = np.argsort(-sure, kind="stable")[:3]
        assert [token for token, _ in piece.top_logprobs] == order.tolist()
        assert np.allclose([value for _, value in piece.top_logprobs], sure[order], atol=1e-3)
        assert piece.logprob == pytest.approx(sure[piece.token], abs=1e-3)
    assert all(piece.top_logprobs == () for piece in llm.generate(tokens=PROMPT, max_new_tokens=2, logprobs=True))


def test_batched_answers_equal_single_answers(llm):
    """Each asks for something else, in the same passes."""
    seeded = {"temperature": 1.5, "seed": 4}
    asked = [
        *PENALTIES.values(),
        {**seeded, "min_p": 0.3},
        {**seeded, "top_k": 9, "logit_bias": {3: 2}},
        {"top_logprobs": 5},
    ]
    alone = [answer(llm, 10 + 3 * i, **settings) for i, settings in enumerate(asked)]
    together = [llm.generate(tokens=PROMPT, max_new_tokens=10 + 3 * i, **settings) for i, settings in enumerate(asked)]
    before = llm.engine.runner.method.counters.snapshot()
    for _ in itertools.zip_longest(*together):
        pass
    passes = llm.engine.runner.method.counters.since(before).passes
    assert [generation.tokens for generation in together] == alone
    assert passes < sum(map(len, alone)) / 3


def test_logit_bias_unknown_token_is_refused(llm):
    with raises(webpte.InputError, "logit_bias", VOCAB, VOCAB - 1):
        llm.generate("x", logit_bias={VOCAB: 1})

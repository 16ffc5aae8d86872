"""Models with sliding windows, far beyond them: whatever goes back answers as a sequence that begins anew."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.studies.batching import measures
from tests.studies.families.measuring import measured
from tests.support.harness.gate import slow_but
from tests.support.harness.random_states import RealModel, run_operations
from tests.support.models.families import CONTEXT, MAX_TOKENS, first, tokens
from webpte.llm import LLM

WINDOW = 4
ROWS = WINDOW + MAX_TOKENS - 2  # of the rings in the file
TEXT = tokens(CONTEXT - 2)  # ten tokens more than the rings hold
FAMILIES = slow_but(["gemma3"], ["gemma3", "gemma2", "mistral"])


@pytest.fixture(scope="module", params=FAMILIES)
def llm(request):
    with LLM.load(measured(first(request.param)).path) as model:
        model.stop_tokens = frozenset()
        yield model


@pytest.fixture
def fresh(llm):
    """Return the logits after tokens, of a sequence that has computed nothing else, and in other pieces."""

    def logits(text):
        llm.reset_prefix_cache()
        with llm.sequence() as sequence:
            for start in range(0, len(text), 7):
                result = sequence.logits(text[start : start + 7])
        llm.reset_prefix_cache()
        return result

    return logits


def same(got, expected):
    return np.allclose(got, expected, rtol=0, atol=1e-4 * np.abs(expected).max()) and np.isfinite(got).all()


def test_window_slots_keep_every_position(llm):
    assert llm.batching_unsupported_reason is None and llm.engine.runner.cache_window is None
    assert llm.engine.runner.max_draft_tokens > 0
    plan = llm.engine.runner.method.plan
    assert {plan.graph.tensor(v).dims[1] for v in plan.flow.state} == {CONTEXT}
    assert plan.cpu_calls == {}


def test_window_batch_tokens_equal_single(llm):
    assert measures.different(llm, 16, CONTEXT - 12, 8, (3, 9)) == []


def test_window_random_operations_equal_fresh_computations(request, llm):
    llm.reset_prefix_cache()
    counts = run_operations(RealModel(llm, first(request.node.callspec.params["llm"]).make()), range(3))
    assert counts["ask"] >= 4


@pytest.mark.parametrize("back", [1, 5, MAX_TOKENS - 1, MAX_TOKENS, 30])
def test_window_sequence_rewound_equals_fresh(llm, fresh, back):
    with llm.sequence() as talk:
        talk.logits(TEXT)
        talk.rewind(back)
        got = talk.logits([9])
    assert same(got, fresh([*TEXT[: len(TEXT) - back], 9]))


def test_window_prompts_with_shared_prefix_equal_fresh(llm, fresh):
    """After what is cached, after what the ring still reaches, and before it."""
    for length in (len(TEXT), len(TEXT) - 3, 8, 2, len(TEXT)):
        answer = llm.generate(tokens=TEXT[:length], max_new_tokens=2)
        answer.result()
        expected = [int(fresh(TEXT[:length]).argmax())]
        expected.append(int(fresh([*TEXT[:length], *expected]).argmax()))
        assert answer.tokens == expected


def test_window_fork_and_parent_equal_fresh(llm, fresh):
    talk = llm.sequence()
    talk.logits(TEXT[:-2])
    twin = talk.fork()
    assert same(twin.logits([5]), fresh([*TEXT[:-2], 5]))
    assert same(talk.logits([6]), fresh([*TEXT[:-2], 6]))


def test_window_snapshot_continues_and_rewinds(llm, fresh, tmp_path):
    with llm.sequence() as talk:
        talk.logits(TEXT[:-2])
        talk.rewind(3)
        talk.snapshot(tmp_path / "talk")
    fresh([1, 2, 3])  # another text in the cache
    with llm.sequence() as other:
        other.restore(tmp_path / "talk")
        assert other.tokens == tuple(TEXT[:-5])
        assert same(other.logits([7]), fresh([*TEXT[:-5], 7]))
        other.rewind(20)
        got = other.logits([8])
        assert same(got, fresh([*other.tokens[:-1], 8]))


@pytest.mark.parametrize("family", FAMILIES)
def test_window_logits_equal_transformers(family):
    """The logits after each of the last tokens, when they were read in pieces of any size: of slots and of rings."""
    import torch

    tiny = first(family)
    with torch.no_grad():
        expected = tiny.make()(torch.tensor([TEXT])).logits[0].numpy()
    with LLM.load(measured(tiny).path) as llm, webpte.load(measured(tiny).path) as program:
        ring = program.method()
        assert ROWS in {ring.plan.graph.tensor(v).dims[-2] for v in ring.plan.flow.state}
        for piece in (MAX_TOKENS - 1, 5, 1):
            talk = llm.sequence()
            ring.reset()
            for start in range(0, len(TEXT), piece):
                end = min(start + piece, len(TEXT))
                assert same(talk.logits(TEXT[start:end]), expected[end - 1 : end])
                got = ring(np.array([TEXT[start:end]]), np.array([start]))
                assert same(np.asarray(got).reshape(1, -1), expected[end - 1 : end])

"""Slots of requests with adapters: tokens that were computed with another adapter are not reused."""

from __future__ import annotations

from tests.support.harness.fake_runner import FakeRunner
from webpte.llm.engine.core import EngineCore
from webpte.llm.engine.request import PrefillRequest, SequenceState

TOKENS = list(range(40))


def prefill(engine: EngineCore, adapter: int) -> int | None:
    request = PrefillRequest(SequenceState(keeps_slot=False), TOKENS, adapter=adapter)
    engine.compute(request)
    return request.num_cached_tokens


def test_engine_prefix_of_another_adapter_is_computed_again():
    runner = FakeRunner()
    engine = EngineCore(runner, num_cache_slots=3, background=False)
    assert [prefill(engine, adapter) for adapter in (0, 1, 2, 1, 0)] == [0, 0, 0, 40, 40]
    assert {token.adapter for step in runner.passes for token in step} == {0, 1, 2}


def test_engine_same_prompt_with_another_adapter_does_not_wait():
    """Two prompts of one adapter share what the first computes; that of another is computed beside them."""
    runner = FakeRunner()
    engine = EngineCore(runner, background=False)
    requests = [PrefillRequest(SequenceState(keeps_slot=False), TOKENS, adapter=adapter) for adapter in (1, 1, 2)]
    for request in requests:
        engine.submit(request)
    engine.step()
    assert [request.num_cached_tokens for request in requests] == [0, None, 0]
    while not all(request.finished for request in requests):
        engine.step()
    assert [request.num_cached_tokens for request in requests] == [0, 40, 0]


def test_engine_prefix_of_another_domain_is_computed_again():
    runner = FakeRunner()
    engine = EngineCore(runner, num_cache_slots=3, background=False)
    cached = []
    for domain in ("", "a", "b", "a", ""):
        request = PrefillRequest(SequenceState(keeps_slot=False), TOKENS, domain=domain)
        engine.compute(request)
        cached.append(request.num_cached_tokens)
    assert cached == [0, 0, 0, 40, 40]

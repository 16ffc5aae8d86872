"""The supervisor's requests in flight, over a worker manager that only records: restarts, quarantine, counters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.harness.errors import raises
from webpte.llm.engine.output import Piece
from webpte.serve.backend import GenerateRequest
from webpte.serve.errors import WorkerUnavailable
from webpte.serve.messages import (
    Cancel,
    Generate,
    LoadOptions,
    ModelFile,
    ModelInfo,
    StepOutput,
    TokenDelta,
    ToWorker,
    WorkerStats,
)
from webpte.serve.supervisor import Limits, Supervisor

MODEL = ModelInfo("a", "a.pte", "language", 64, 128, 0, 4, "fingerprint", 0)


class RecordingManager:
    """A worker that is ready and computes nothing."""

    def __init__(self) -> None:
        self.sent: list[ToWorker] = []
        self.stats = WorkerStats()
        self.restarts, self.recovery_seconds = 0, 0.0

    def send(self, message: ToWorker) -> bool:
        self.sent.append(message)
        return True

    @property
    def generating(self) -> list[int]:
        return [message.id for message in self.sent if isinstance(message, Generate)]


def supervised(test: Callable[[Supervisor, RecordingManager], Awaitable[None]], **limits: Any) -> None:
    async def run() -> None:
        supervisor = Supervisor([ModelFile("a", "a.pte")], LoadOptions(), Limits(**limits))
        manager = RecordingManager()
        setattr(supervisor, "_manager", manager)  # noqa: B010
        supervisor.on_ready([MODEL])
        await test(supervisor, manager)

    asyncio.run(run())


def token(id: int, cached: int | None = None) -> StepOutput:
    return StepOutput((TokenDelta(id, cached, (Piece("x", 7),), None),))


def test_replaced_model_fails_requests_that_have_tokens():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        started, waiting = (supervisor.generate(GenerateRequest("a", (1,))) for _ in range(2))
        supervisor.on_message(token(started.id, 0))
        supervisor.on_exit("exited")
        manager.sent.clear()
        supervisor.on_ready([replace(MODEL, fingerprint="another")])
        assert manager.generating == [waiting.id]
        with raises(WorkerUnavailable, "a.pte", code="model_replaced"):
            async for _ in started:
                pass

    supervised(test)


def test_same_model_continues_requests_with_their_tokens():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        generation = supervisor.generate(GenerateRequest("a", (1,)))
        supervisor.on_message(token(generation.id, 0))
        supervisor.on_exit("exited")
        manager.sent.clear()
        supervisor.on_ready([MODEL])
        assert manager.sent == [Generate(generation.id, "a", (1,), "{}", (7,))]

    supervised(test)


def test_quarantined_requests_are_sent_one_at_a_time():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        first, second, third = (supervisor.generate(GenerateRequest("a", (1,))) for _ in range(3))
        supervisor.on_exit("exited")
        manager.sent.clear()
        supervisor.on_ready([MODEL])
        assert manager.generating == [first.id]
        supervisor.on_message(StepOutput(()))  # of other requests
        assert manager.generating == [first.id]
        supervisor.on_message(token(first.id, 0))  # it is not to blame: the next one
        assert manager.generating == [first.id, second.id]
        assert supervisor.on_exit("exited"), "the second has crashed two workers"
        with raises(WorkerUnavailable, "2 workers", code="request_crashes_workers"):
            async for _ in second:
                pass
        manager.sent.clear()
        supervisor.on_ready([MODEL])
        assert manager.generating == [first.id], "its crash count began again with its token"
        assert not first.done and not third.done

    supervised(test, max_crashes=2)


@pytest.mark.parametrize("exits", [1, 3])
def test_cached_tokens_are_counted_once_over_restarts(exits):
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        generation = supervisor.generate(GenerateRequest("a", (1, 2, 3, 4)))
        supervisor.on_message(token(generation.id, 3))
        for _ in range(exits):
            supervisor.on_exit("exited")
            supervisor.on_ready([MODEL])
            supervisor.on_message(token(generation.id, 4))
        stats = supervisor.stats()
        assert (stats.prompt_tokens, stats.cached_tokens, stats.cache_hits) == (4, 3, 1)
        assert stats.completion_tokens == 1 + exits == generation.usage.completion_tokens
        assert generation.usage.cached_tokens == 3

    supervised(test)


def test_cancelled_request_is_cancelled_in_the_worker():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        generation = supervisor.generate(GenerateRequest("a", (1,)))
        await generation.cancel()
        await generation.cancel()
        assert [message for message in manager.sent if isinstance(message, Cancel)] == [Cancel(generation.id)]
        assert supervisor.stats().busy == supervisor.stats().queued == 0
        supervisor.on_message(token(generation.id, 0))
        assert generation.usage.completion_tokens == 0

    supervised(test)

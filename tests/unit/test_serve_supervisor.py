"""The supervisor's requests in flight, over a worker manager that only records: restarts, quarantine, counters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.harness.errors import raises
from webpte.llm.engine.output import Piece
from webpte.llm.settings import SamplingParams
from webpte.serve.errors import QueueFull, WorkerUnavailable
from webpte.serve.messages import (
    Cancel,
    Embed,
    Generate,
    LimitMemory,
    ModelFile,
    ModelInfo,
    StepOutput,
    TextFiles,
    TokenDelta,
    ToWorker,
    WorkerOptions,
    WorkerStats,
)
from webpte.serve.supervisor import Limits, Supervisor

MODEL = ModelInfo("a", "a.pte", "language", 64, 128, 0, 4, "fingerprint", 0)
ENCODER = ModelInfo("e", "e.pte", "encoder", 64, 0, 4, 32, "fingerprint", 0)


PARAMS = SamplingParams()


class RecordingManager:
    """A worker that is ready and computes nothing."""

    def __init__(self) -> None:
        self.sent: list[ToWorker] = []
        self.memory: list[int] = []
        self.stats = WorkerStats()
        self.restarts, self.recovery_seconds, self.restart = 0, 0.0, None

    def set_memory(self, nbytes: int) -> None:
        self.memory.append(nbytes)

    def send(self, message: ToWorker) -> bool:
        self.sent.append(message)
        return True

    @property
    def generating(self) -> list[int]:
        return [message.id for message in self.sent if isinstance(message, Generate)]


def supervised(test: Callable[[Supervisor, RecordingManager], Awaitable[None]], **limits: Any) -> None:
    async def run() -> None:
        supervisor = Supervisor(ModelFile("a", "a.pte"), WorkerOptions(), Limits(**limits))
        manager = RecordingManager()
        setattr(supervisor, "_manager", manager)  # noqa: B010
        supervisor.on_ready(MODEL)
        await test(supervisor, manager)

    asyncio.run(run())


def token(id: int, cached: int | None = None) -> StepOutput:
    return StepOutput((TokenDelta(id, cached, (Piece("x", 7),), None),))


TEXT = TextFiles("tokenizer.json", None, None, (), None, (), digest="1")


@pytest.mark.parametrize("other", [{"fingerprint": "another"}, {"text": replace(TEXT, digest="2")}])
def test_replaced_model_computes_no_request_of_the_model_before(other):
    """Their tokens are those of another tokenizer: the text would be neither model's."""

    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        before = replace(MODEL, text=TEXT)
        supervisor.on_ready(before)
        requests = [supervisor.generate("a", (1,), PARAMS, version=before.version) for _ in range(6)]
        supervisor.on_message(token(requests[0].id, 0))
        supervisor.on_exit("exited")
        manager.sent.clear()
        after = replace(before, **other)
        supervisor.on_ready(after)
        assert manager.generating == [] and supervisor.stats().busy == supervisor.stats().queued == 0
        for request in requests:
            with raises(WorkerUnavailable, code="model_replaced"):
                async for _ in request:
                    pass
        with raises(WorkerUnavailable, code="model_replaced"):  # it was tokenized before, and comes now
            supervisor.generate("a", (1,), PARAMS, version=before.version)
        supervisor.generate("a", (1,), PARAMS, version=after.version)
        assert len(manager.generating) == 1

    supervised(test)


def test_replaced_encoder_computes_no_vectors_of_the_encoder_before():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        supervisor.on_ready(ENCODER)
        computing = asyncio.ensure_future(supervisor.embed("e", [[1]], version=ENCODER.version))
        await asyncio.sleep(0)
        supervisor.on_exit("exited")
        manager.sent.clear()
        supervisor.on_ready(replace(ENCODER, fingerprint="another"))
        with raises(WorkerUnavailable, code="model_replaced"):
            await computing
        assert not [message for message in manager.sent if isinstance(message, Embed)]

    supervised(test)


def test_same_model_continues_requests_with_their_tokens():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        generation = supervisor.generate("a", (1,), PARAMS)
        supervisor.on_message(token(generation.id, 0))
        supervisor.on_exit("exited")
        manager.sent.clear()
        supervisor.on_ready(MODEL)
        assert manager.sent == [Generate(generation.id, (1,), PARAMS, (7,))]

    supervised(test)


def test_quarantined_requests_are_sent_one_at_a_time():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        first, second, third = (supervisor.generate("a", (1,), PARAMS) for _ in range(3))
        supervisor.on_exit("exited")
        manager.sent.clear()
        supervisor.on_ready(MODEL)
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
        supervisor.on_ready(MODEL)
        assert manager.generating == [first.id], "its crash count began again with its token"
        assert not first.done and not third.done

    supervised(test, max_crashes=2)


@pytest.mark.parametrize("exits", [1, 3])
def test_cached_tokens_are_counted_once_over_restarts(exits):
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        generation = supervisor.generate("a", (1, 2, 3, 4), PARAMS)
        supervisor.on_message(token(generation.id, 3))
        for _ in range(exits):
            supervisor.on_exit("exited")
            supervisor.on_ready(MODEL)
            supervisor.on_message(token(generation.id, 4))
        stats = supervisor.stats()
        assert (stats.prompt_tokens, stats.cached_tokens, stats.cache_hits) == (4, 3, 1)
        assert stats.completion_tokens == 1 + exits == generation.usage.completion_tokens
        assert generation.usage.cached_tokens == 3

    supervised(test)


def test_cancelled_request_is_cancelled_in_the_worker():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        generation = supervisor.generate("a", (1,), PARAMS)
        await generation.cancel()
        await generation.cancel()
        assert [message for message in manager.sent if isinstance(message, Cancel)] == [Cancel(generation.id)]
        assert supervisor.stats().busy == supervisor.stats().queued == 0
        supervisor.on_message(token(generation.id, 0))
        assert generation.usage.completion_tokens == 0

    supervised(test)


def finished(id: int) -> StepOutput:
    return StepOutput((TokenDelta(id, 0, (), "length"),))


def requests(supervisor: Supervisor, client: str, count: int) -> list[int]:
    return [supervisor.generate("a", (1,), PARAMS, client=client).id for _ in range(count)]


def test_single_request_overtakes_those_of_a_client_with_many():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        many = requests(supervisor, "many", 60)
        (single,) = requests(supervisor, "single", 1)
        assert manager.generating == many[:4], "as many as there are slots"
        supervisor.on_message(finished(many[1]))
        assert manager.generating == [*many[:4], single]
        supervisor.on_message(finished(many[0]))
        assert manager.generating == [*many[:4], single, many[4]]

    supervised(test)


def test_clients_take_turns_and_share_the_slots():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        first, second, third = (requests(supervisor, name, count) for name, count in (("a", 9), ("b", 3), ("c", 3)))
        for id in first[:4]:
            supervisor.on_message(finished(id))
        assert manager.generating == [*first[:4], second[0], third[0], first[4], second[1]]

    supervised(test)


def test_supervisor_client_slots_leave_room_for_others():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        many = requests(supervisor, "many", 9)
        assert manager.generating == many[:3]
        (single,) = requests(supervisor, "single", 1)
        assert manager.generating == [*many[:3], single], "without a wait"

    supervised(test, max_client_slots=3)


def test_full_queue_displaces_the_newest_request_of_the_client_with_most():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        many = [supervisor.generate("a", (1,), PARAMS, client="many") for _ in range(4 + 3)]
        with raises(QueueFull, "3 requests", "4 are"):
            supervisor.generate("a", (1,), PARAMS, client="many")
        (single,) = requests(supervisor, "single", 1)
        with raises(QueueFull, "3 requests", "4 are"):
            await anext(many[-1])
        assert not any(each.done for each in many[:-1]) and supervisor.stats().queued == 4 + 3
        with raises(QueueFull):  # it has as many as the other would have left
            requests(supervisor, "single", 2)
        supervisor.on_message(finished(many[0].id))
        assert manager.generating[-1] == single

    supervised(test, max_queue=3)


def test_waiting_request_that_is_cancelled_is_unknown_to_the_worker():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        many = [supervisor.generate("a", (1,), PARAMS) for _ in range(6)]
        await many[4].cancel()
        await many[0].cancel()
        assert manager.sent[4:] == [Cancel(many[0].id), Generate(many[5].id, (1,), PARAMS)]
        assert supervisor.stats().queued == 4

    supervised(test)


def test_waiting_requests_are_not_sent_to_a_new_worker_before_their_turn():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        ids = requests(supervisor, "a", 6)
        supervisor.on_exit("exited")
        manager.sent.clear()
        supervisor.on_ready(replace(MODEL, max_batch=5))
        assert manager.generating == ids[:5]

    supervised(test)


def test_embeddings_of_a_client_with_many_are_overtaken():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        supervisor.on_ready(ENCODER)
        tasks = [asyncio.create_task(supervisor.embed("e", [[1]], client="many")) for _ in range(20)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(supervisor.embed("e", [[2]], client="single")))
        await asyncio.sleep(0)
        rows = [message.rows for message in manager.sent if isinstance(message, Embed)]
        assert rows == [((1,),)] * 7 + [((2,),)], "the client with many has 7 of 8 places"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert supervisor.stats().embedding == 0

    supervised(test)


def test_limit_of_memory_holds_for_later_workers_and_is_at_least_what_this_one_takes():
    async def test(supervisor: Supervisor, manager: RecordingManager) -> None:
        for limit, used, kept in ((0, 70, 70), (500, 80, 500)):
            limiting = asyncio.create_task(supervisor.limit_memory(limit))
            await asyncio.sleep(0)
            supervisor.on_memory(used)
            assert await limiting == used and manager.memory[-1] == kept
        limiting = asyncio.create_task(supervisor.limit_memory(0))
        await asyncio.sleep(0)
        supervisor.on_exit("exited")
        assert await limiting == 80 and manager.memory[-1] == 80, "its replacement takes as much again"
        supervisor.on_memory(5)  # a late answer, which is ignored
        assert manager.sent == [LimitMemory(0), LimitMemory(500), LimitMemory(0)]

    supervised(test)

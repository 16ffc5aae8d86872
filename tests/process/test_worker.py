"""The worker's reader of messages, with models that do not compute."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from webpte.llm.constraints import Constraint
from webpte.llm.settings import SamplingParams
from webpte.serve.messages import (
    Cancel,
    Computation,
    FromWorker,
    Generate,
    LimitMemory,
    MemoryUsed,
    ModelFile,
    ModelInfo,
    Ping,
    Pong,
    Ready,
    Start,
    ToWorker,
    WorkerOptions,
    WorkerStats,
)
from webpte.serve.worker import Pipe, Worker

INFO = ModelInfo("m", "m.pte", "language", 64, 128, 0, 4, "", 0)
WAIT = 10.0  # seconds


class SlowCompiler:
    """A model that waits in `submit` if the request has a constraint."""

    info, stats, last_progress = INFO, WorkerStats(), None

    def __init__(self) -> None:
        self.started: list[int] = []
        self.cancelled: list[int] = []
        self.compiling, self.compiled, self.changed = threading.Event(), threading.Event(), threading.Condition()

    def submit(self, request: Computation) -> None:
        if isinstance(request, Generate) and request.params.constraint is not None:
            self.compiling.set()
            assert self.compiled.wait(WAIT)
        with self.changed:
            self.started.append(request.id)
            self.changed.notify_all()

    def cancel(self, id: int) -> None:
        with self.changed:
            self.cancelled.append(id)
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, WAIT)


class Messages(Pipe):
    """A pipe whose input never ends: its end would be that of this process."""

    def __init__(self) -> None:
        self.to_worker: queue.SimpleQueue[ToWorker] = queue.SimpleQueue()
        self.from_worker: queue.SimpleQueue[FromWorker] = queue.SimpleQueue()

    def send(self, message: FromWorker) -> None:
        self.from_worker.put(message)

    def receive(self) -> ToWorker:
        return self.to_worker.get()


class Running:
    """A worker in a thread of this process."""

    def __init__(self) -> None:
        self.model, self.messages = SlowCompiler(), Messages()
        worker = Worker(self.messages, lambda *_: self.model)
        self.send(Start(ModelFile("m", "m.pte"), WorkerOptions(), 8))
        threading.Thread(target=worker.run, daemon=True).start()
        assert isinstance(self.receive(), Ready)

    def send(self, message: ToWorker) -> None:
        self.messages.to_worker.put(message)

    def receive(self) -> FromWorker:
        return self.messages.from_worker.get(timeout=WAIT)


@pytest.fixture
def worker() -> Iterator[Running]:
    running = Running()
    yield running
    running.model.compiled.set()


def request(id: int, constraint: Constraint | None = None) -> Generate:
    return Generate(id, (1, 2), SamplingParams(constraint=constraint))


SLOW = Constraint("regex", "a+")


def test_request_after_constraint_that_compiles_does_not_wait(worker):
    worker.send(request(1, SLOW))
    assert worker.model.compiling.wait(WAIT)
    worker.send(request(2))
    worker.model.wait_for(lambda: worker.model.started == [2])
    worker.send(Ping())
    reply = worker.receive()
    assert isinstance(reply, Pong) and reply.busy_seconds > 0
    worker.model.compiled.set()
    worker.model.wait_for(lambda: worker.model.started == [2, 1])


def test_cancelled_constraint_that_compiles_is_cancelled_afterwards(worker):
    worker.send(request(1, SLOW))
    assert worker.model.compiling.wait(WAIT)
    worker.send(Cancel(1))
    worker.model.wait_for(lambda: worker.model.cancelled == [1])
    worker.model.compiled.set()
    worker.model.wait_for(lambda: worker.model.cancelled == [1, 1])


def test_cancelled_constraint_that_waits_is_never_started(worker):
    worker.send(request(1, SLOW))
    assert worker.model.compiling.wait(WAIT)
    worker.send(request(2, SLOW))
    worker.send(Cancel(2))
    worker.model.wait_for(lambda: worker.model.cancelled == [2])
    worker.model.compiled.set()
    worker.model.wait_for(lambda: worker.model.cancelled == [2, 2])
    assert worker.model.started == [1]


def test_worker_reports_what_it_takes_and_its_limit_is_set(worker, monkeypatch):
    limits: list[int] = []

    def limit(nbytes: int) -> int:
        limits.append(nbytes)
        return 77

    monkeypatch.setattr("webpte.serve.worker.limit_allocations", limit)
    worker.send(LimitMemory(500))
    assert worker.receive() == MemoryUsed(77) and limits == [500]

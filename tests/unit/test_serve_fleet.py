"""Which models are loaded: over workers that only count bytes, with a clock that the tests turn."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.harness.errors import raises
from webpte.errors import Error, FormatError, InputError, OutOfMemory
from webpte.serve.backend import Stats
from webpte.serve.errors import (
    DeadlineExceeded,
    ModelNotServable,
    ModelUnavailable,
    QueueFull,
    WorkerUnavailable,
    api_error,
)
from webpte.serve.fleet import RECENT_SECONDS, Fleet, FleetLimits
from webpte.serve.messages import ModelFile, ModelInfo

SIZE = 100  # bytes on the device of a model, unless a test sets others


class Machine:
    """The workers of a test, and what they take together."""

    def __init__(self, clock: SimpleNamespace, sizes: Mapping[str, int]) -> None:
        self.clock = clock
        self.sizes = sizes
        self.device = 10**9  # bytes that the device has
        self.errors: dict[str, Exception] = {}
        self.workers: list[Worker] = []
        self.log: list[str] = []
        self.most = self.loading = self.most_loading = 0
        self.load_seconds = 0.0

    @property
    def used(self) -> int:
        return sum(worker.used for worker in self.workers)

    def worker(self, file: ModelFile, memory: int | None) -> Worker:
        self.workers.append(Worker(self, file, memory))
        return self.workers[-1]

    def current(self, name: str) -> Worker:
        return next(worker for worker in self.workers if worker.name == name and worker.used)


class Worker:
    """A worker that takes the bytes of its model when it starts."""

    worker_pid = None

    def __init__(self, machine: Machine, file: ModelFile, memory: int | None) -> None:
        self.machine, self.file, self.name, self.memory = machine, file, file.name, memory
        self.info: ModelInfo | None = None
        self.used = 0
        self.steps = 0
        self.crashed: asyncio.Future[Error] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        machine, size = self.machine, self.machine.sizes.get(self.name, SIZE)
        machine.loading += 1
        machine.most_loading = max(machine.most_loading, machine.loading)
        try:
            await asyncio.sleep(machine.load_seconds)
            if self.name in machine.errors:
                raise machine.errors[self.name]
            allowed = machine.device - machine.used
            if size > (allowed if self.memory is None else min(self.memory, allowed)):
                machine.log.append(f"no memory for {self.name}")
                raise OutOfMemory("too large", size, allowed)
        finally:
            machine.loading -= 1
        self.used = size
        machine.most = max(machine.most, machine.used)
        machine.log.append(f"load {self.name}")
        self.info = ModelInfo(self.name, "", "language", 64, 128, 0, 4, "f", 0)

    async def stop(self, grace: float) -> None:
        if self.used:
            self.machine.log.append(f"unload {self.name}")
        self.used = 0

    async def failed(self) -> Error:
        return await self.crashed

    async def limit_memory(self, nbytes: int) -> int:
        self.memory = max(nbytes, self.used)
        return self.used

    def stats(self) -> Stats:
        return Stats("ready", 0, 0, 0, 0, 0, self.steps, 0, 0, 0, 0, 0, 0, 0, 0.0, None, self.used)


async def settle() -> None:
    """Let all tasks run until each waits for something."""
    for _ in range(50):
        await asyncio.sleep(0)


def fleet_test(
    test: Callable[[Fleet, Machine], Awaitable[None]],
    tmp_path: Path,
    names: str = "abc",
    sizes: Mapping[str, int] | None = None,
    **limits: Any,
) -> None:
    files = []
    for name in names:
        (tmp_path / f"{name}.pte").write_bytes(b"12345678")
        files.append(ModelFile(name, str(tmp_path / f"{name}.pte")))

    async def run() -> None:
        loop = asyncio.get_running_loop()
        clock = SimpleNamespace(now=1000.0)
        setattr(loop, "time", lambda: clock.now)  # noqa: B010
        machine = Machine(clock, sizes or {})
        fleet = Fleet(files, machine.worker, FleetLimits(**limits))  # type: ignore[arg-type]
        await fleet.start()
        try:
            await test(fleet, machine)
        finally:
            await fleet.stop(0)
        assert machine.used == 0 and machine.most_loading <= 1

    asyncio.run(run())


def states(fleet: Fleet) -> dict[str, str]:
    return {name: status.state for name, status in fleet.statuses.items()}


async def use(fleet: Fleet, name: str, keep_alive: float | None = None) -> None:
    info = await fleet.hold(name, keep_alive)
    assert info.name == name
    fleet.release(name)


def test_only_model_is_loaded_at_the_start_and_kept(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        assert machine.log == ["load a"] and states(fleet) == {"a": "loaded"} and fleet.stats().state == "ready"
        await use(fleet, "a", keep_alive=0)
        assert not fleet.unload("a")
        machine.clock.now += 1e6
        await settle()
        assert machine.log == ["load a"] and fleet.statuses["a"].expires is None

    fleet_test(test, tmp_path, "a")


def test_files_say_which_models_read_images_before_their_first_load(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        assert [status.reads_images for status in fleet.statuses.values()] == [False, True, False]
        await use(fleet, "b")  # whose program has no encoder
        assert not any(status.reads_images for status in fleet.statuses.values())

    (tmp_path / "b.preprocessor_config.json").write_text("{}")
    fleet_test(test, tmp_path)


def test_models_are_loaded_for_their_first_request(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        assert states(fleet) == {"a": "unloaded", "b": "unloaded", "c": "unloaded"}
        assert [status.info for status in fleet.statuses.values()] == [None] * 3
        await use(fleet, "b")
        await use(fleet, "b")
        assert machine.log == ["load b"] and fleet.statuses["b"].memory == SIZE

    fleet_test(test, tmp_path)


def test_least_recently_used_model_makes_room(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        for name in "abab":
            machine.clock.now += 1
            await use(fleet, name)
        machine.clock.now += 1
        await use(fleet, "a")
        await use(fleet, "c")
        assert machine.log == ["load a", "load b", "no memory for c", "unload b", "load c"]
        assert machine.most == 2 * SIZE and fleet.statuses["b"].info is not None
        machine.clock.now += 1
        await use(fleet, "b")  # its size is known now, so no load is tried in vain
        assert machine.log[5:] == ["unload a", "load b"]

    fleet_test(test, tmp_path, memory=2 * SIZE + 50)


def test_memory_of_the_device_is_found_by_loading(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        machine.device = 2 * SIZE
        for name in "abc":
            machine.clock.now += 1
            await use(fleet, name)
        assert machine.log == ["load a", "load b", "no memory for c", "unload a", "load c"]

    fleet_test(test, tmp_path)


def test_model_that_answers_is_not_unloaded_and_gets_no_others_meanwhile(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        await fleet.hold("a")
        other = asyncio.create_task(use(fleet, "b"))
        await settle()
        again = asyncio.create_task(use(fleet, "a"))
        await settle()
        assert machine.log == ["load a", "no memory for b"] and not other.done() and not again.done()
        fleet.release("a")
        await asyncio.gather(other, again)
        assert machine.log[2:] == ["unload a", "load b", "unload b", "load a"]

    fleet_test(test, tmp_path, memory=SIZE + 50)


def test_model_goes_on_if_no_request_waits_for_its_memory_any_more(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        await fleet.hold("a")
        other = asyncio.create_task(use(fleet, "b"))
        await settle()
        again = asyncio.create_task(use(fleet, "a"))
        await settle()
        other.cancel()
        await again
        assert machine.log == ["load a", "no memory for b"] and states(fleet)["b"] == "unloaded"
        fleet.release("a")

    fleet_test(test, tmp_path, memory=SIZE + 50)


def test_memory_that_no_model_takes_is_shared(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        await use(fleet, "a")
        assert machine.current("a").memory == 400
        await use(fleet, "b")
        assert (machine.current("a").memory, machine.current("b").memory) == (200, 200)
        await use(fleet, "c")
        assert [machine.current(name).memory for name in "abc"] == [133, 133, 133]

    fleet_test(test, tmp_path, memory=400)


@pytest.mark.parametrize("memory", [50, None])
def test_model_larger_than_memory_fails_alone_and_others_make_room(tmp_path, memory):
    async def test(fleet: Fleet, machine: Machine) -> None:
        machine.device = 50
        await use(fleet, "b")
        with raises(ModelUnavailable, "out_of_memory"):
            await use(fleet, "a")
        assert fleet.statuses["a"].reason == "out_of_memory" and states(fleet)["a"] == "failed"
        await use(fleet, "b")

    fleet_test(test, tmp_path, sizes={"a": 60, "b": 10}, memory=memory)


def test_failed_load_concerns_its_requests_only_and_is_tried_again_after_a_pause(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        machine.errors["a"] = WorkerUnavailable("/path/of/a.pte cannot be read now", code="busy")
        results = await asyncio.gather(use(fleet, "a"), use(fleet, "b"), use(fleet, "a"), return_exceptions=True)
        assert [type(result) for result in results] == [ModelUnavailable, type(None), ModelUnavailable]
        assert "/path" not in str(results[0]) and "worker_unavailable.busy" in str(results[0])
        pauses = []
        for _ in range(6):
            with raises(ModelUnavailable) as caught:
                await use(fleet, "a")
            pauses.append(caught.value.retry_after)
            machine.clock.now += caught.value.retry_after
            with raises(ModelUnavailable):
                await use(fleet, "a")
        assert pauses == [1, 2, 4, 8, 10, 10]
        machine.errors.clear()
        machine.clock.now += 10
        await use(fleet, "a")
        assert states(fleet) == {"a": "loaded", "b": "loaded", "c": "unloaded"}

    fleet_test(test, tmp_path, max_backoff=10.0)


def test_model_with_a_wrong_file_is_refused_without_advice_to_wait(tmp_path):
    """Clients retry after an error of the server, and a page offers to try again in a second."""

    async def test(fleet: Fleet, machine: Machine) -> None:
        machine.errors["a"] = FormatError("/path/of/a.pte is cut", code="truncated")
        for _ in range(2):
            with raises(ModelNotServable, "format.truncated") as caught:
                await use(fleet, "a")
            assert "/path" not in str(caught.value) and "Try again" not in str(caught.value)
        response = api_error(caught.value)
        assert (response.status, response.code, response.param) == (400, "model_not_servable", "model")
        machine.errors.clear()
        machine.clock.now += 60  # the whole file has been copied
        await use(fleet, "a")

    fleet_test(test, tmp_path)


def test_load_that_fails_unexpectedly_does_not_stop_other_loads(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        machine.errors["a"] = RuntimeError("a bug")
        with raises(ModelUnavailable, "load_failed"):
            await use(fleet, "a")
        await use(fleet, "b")

    fleet_test(test, tmp_path)


def test_idle_model_is_unloaded(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        await use(fleet, "a")
        machine.clock.now += 6
        await fleet.hold("b")
        assert fleet.statuses["a"].expires == 4
        machine.clock.now += 4
        await settle()
        await use(fleet, "c")
        assert machine.log == ["load a", "load b", "unload a", "load c"]
        machine.clock.now += 100
        await use(fleet, "c", keep_alive=0)
        await settle()
        assert states(fleet) == {"a": "unloaded", "b": "loaded", "c": "unloaded"}, "b answers still"
        fleet.release("b")

    fleet_test(test, tmp_path, idle_timeout=10.0)


def test_keep_alive_of_the_last_request_holds(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        await use(fleet, "a", keep_alive=5)
        await use(fleet, "a")
        await use(fleet, "b", keep_alive=5)
        machine.clock.now += 5
        await use(fleet, "a")
        await settle()
        assert states(fleet) == {"a": "loaded", "b": "unloaded", "c": "unloaded"}
        assert fleet.unload("a")
        await settle()
        assert states(fleet)["a"] == "unloaded"

    fleet_test(test, tmp_path)


def test_keep_alive_of_one_client_does_not_unload_what_another_uses(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        for client in ("b", "a"):
            await fleet.hold("a", 0.0 if client == "a" else None, client)
            fleet.release("a")
        await settle()
        assert states(fleet)["a"] == "loaded" and not fleet.unload("a", "a")
        await settle()
        assert states(fleet)["a"] == "loaded"
        machine.clock.now += RECENT_SECONDS + 1
        assert fleet.unload("a", "a")
        await settle()
        assert states(fleet)["a"] == "unloaded"
        await fleet.hold("a", 0.0, "a")  # no other uses it now
        fleet.release("a")
        await settle()
        assert states(fleet)["a"] == "unloaded"

    fleet_test(test, tmp_path)


def test_loads_of_one_client_displace_its_own_models_first(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        for name, client in (("a", "b"), ("b", "a"), ("c", "a"), ("b", "a")):
            machine.clock.now += 1
            await fleet.hold(name, None, client)
            fleet.release(name)
        assert "unload a" not in machine.log and machine.log.count("unload b") == 1

    fleet_test(test, tmp_path, memory=2 * SIZE)


def test_replacement_that_cannot_load_fails_the_only_model_until_a_request_loads_it(tmp_path):
    """Its file is gone for a while: requests get 503 at once, and the server continues."""

    async def test(fleet: Fleet, machine: Machine) -> None:
        machine.errors["a"] = InputError("a.pte does not exist", code="missing")
        worker = fleet._models["a"].worker
        worker.crashed.set_result(machine.errors["a"])  # type: ignore[union-attr]
        await settle()
        assert states(fleet) == {"a": "failed"} and fleet.stats().state == "restarting"
        with raises(ModelUnavailable, "missing"):
            await use(fleet, "a")
        del machine.errors["a"]
        machine.clock.now += 60
        await use(fleet, "a")
        assert states(fleet) == {"a": "loaded"} and fleet.stats().state == "ready"

    fleet_test(test, tmp_path, "a")


def test_requests_beyond_the_queue_and_the_timeout_are_refused(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        await fleet.hold("a")
        waiting = [asyncio.create_task(use(fleet, "b")) for _ in range(2)]
        await settle()
        with raises(QueueFull, "2 requests"):
            await use(fleet, "b")
        assert fleet.stats().queued == 2
        machine.clock.now += 30
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, DeadlineExceeded) and result.wait == "load"
        fleet.release("a")
        await use(fleet, "b")

    fleet_test(test, tmp_path, memory=SIZE, max_queue=2, load_timeout=30.0)


def test_worker_that_cannot_be_kept_running_fails_its_model_only(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        await use(fleet, "a")
        await use(fleet, "b")
        machine.current("a").steps = 7
        machine.current("a").crashed.set_result(WorkerUnavailable("exited", code="worker_failed"))
        await settle()
        assert states(fleet) == {"a": "failed", "b": "loaded", "c": "unloaded"} and fleet.stats().state == "ready"
        assert fleet.stats().steps == 7, "counters of stopped workers count"
        machine.clock.now += 1
        await use(fleet, "a")

    fleet_test(test, tmp_path)


def test_only_worker_that_cannot_be_kept_running_fails_the_server(tmp_path):
    async def test(fleet: Fleet, machine: Machine) -> None:
        machine.current("a").crashed.set_result(WorkerUnavailable("exited", code="worker_failed"))
        assert (await fleet.failed()).reason == "worker_failed" and fleet.stats().state == "failed"
        with raises(WorkerUnavailable, "exited", code="no_worker"):
            await fleet.hold("a")

    fleet_test(test, tmp_path, "a")


def test_random_requests_get_their_models_within_the_memory(tmp_path):
    chance = random.Random(5)
    sizes = {name: chance.randint(20, 100) for name in "abcdef"}

    async def test(fleet: Fleet, machine: Machine) -> None:
        machine.errors["f"] = FormatError("cut", code="truncated")
        outcomes: list[str] = []

        async def ask(name: str) -> None:
            try:
                info = await fleet.hold(name)
            except ModelNotServable:
                outcomes.append("failed" if name == "f" else "wrong")
                return
            assert info.name == name and machine.current(name).used
            for _ in range(chance.randint(0, 30)):
                await asyncio.sleep(0)
                assert machine.current(name).used, "unloaded while a request holds it"
            fleet.release(name)
            outcomes.append("right")

        tasks = []
        for _ in range(300):
            tasks.append(asyncio.create_task(ask(chance.choice("abcdef"))))
            for _ in range(chance.randint(0, 20)):
                await asyncio.sleep(0)
            machine.clock.now += chance.random()
            if chance.random() < 0.1:
                tasks.pop(chance.randrange(len(tasks))).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert outcomes.count("right") > 150 and outcomes.count("failed") > 10 and "wrong" not in outcomes
        assert machine.most <= 180 and sum(entry.startswith("load") for entry in machine.log) > 20

    fleet_test(test, tmp_path, "abcdef", sizes, memory=180)

"""A server's worker, over a fake model: it is killed, hurt, hung and asked for too much."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.fake_runner import FakeLLM, FakeRunner
from tests.support.harness.fake_worker import COMMAND, HUNGRY, POISON
from webpte.errors import FormatError, InputError, OutOfMemory
from webpte.llm.engine.output import Admitted, Piece
from webpte.llm.settings import SamplingParams, sampling_params_from
from webpte.serve.backend import RequestUsage, Stream, StreamEnd, Timeouts
from webpte.serve.errors import DeadlineExceeded, QueueFull, WorkerUnavailable
from webpte.serve.messages import ModelFile, WorkerOptions
from webpte.serve.supervisor import Limits, Supervisor
from webpte.serve.worker_process import RestartPolicy

QUICK = RestartPolicy(ping_interval=0.05, heartbeat_timeout=60.0, stuck_timeout=60.0, backoff=0.01)
ENDLESS = SamplingParams(max_new_tokens=90_000)  # of a slow model: more than an hour
PLAIN = Limits(restarts=QUICK)


def serving(
    test: Callable[[Supervisor], Awaitable[Any]],
    file: str = "a",
    *,
    limits: Limits = PLAIN,
    sequences: int = 4,
    warmup: bool = False,
    command: tuple[str, ...] = COMMAND,
    seconds: float = 240,
) -> Any:
    """Run the body of a test with the supervisor of a file."""

    async def run() -> Any:
        options = WorkerOptions(max_sequences=sequences, warmup=warmup)
        server = Supervisor(ModelFile(file, file), options, limits, command)
        async with asyncio.timeout(seconds):
            try:
                await server.start()
                return await test(server)
            finally:
                await server.stop(0.0)
                assert server.worker_pid is None

    return asyncio.run(run())


async def until(true: Callable[[], bool]) -> None:
    """Wait for what a worker shows with its answer to a ping; `serving` limits the time."""
    while not true():
        await asyncio.sleep(0.01)


async def read(stream: Stream) -> tuple[str, list[int], StreamEnd]:
    text, tokens = "", []
    async for event in stream:
        if isinstance(event, Piece):
            text += event.text
            tokens.append(event.token)
        elif isinstance(event, StreamEnd):
            return text, tokens, event
    raise AssertionError("no end")


def solo(prompt: tuple[int, ...], **settings: Any) -> tuple[str, list[int]]:
    answer = FakeLLM(FakeRunner(capacity=256)).generate(tokens=prompt, **settings)
    return answer.result(), answer.tokens


SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "seed": 5},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "logit_bias": {3: 2.0}},
    {"stop": ["\u4e05\u4e06", "\u4e2a"], "temperature": 1.0, "seed": 2},
]
PROMPTS = [(1, 2, 3), (9,), tuple(range(20, 60)), (7, 7)]


class Ask(NamedTuple):
    """Arguments of `Supervisor.generate`."""

    model: str
    tokens: tuple[int, ...]
    params: SamplingParams


def asks(most: int = 60) -> list[Ask]:
    params = [sampling_params_from({**settings, "max_new_tokens": most}) for settings in SETTINGS]
    return [Ask("a", prompt, each) for prompt, each in zip(PROMPTS, params, strict=True)]


def expected(ask: Ask) -> tuple[str, list[int]]:
    settings = {name: value for name, value in vars(ask.params).items() if name not in ("constraint", "thought")}
    return solo(ask.tokens, **settings)


def check(ask: Ask, actual: tuple[str, list[int], StreamEnd]) -> None:
    text, tokens, end = actual
    assert (text, tokens) == expected(ask)
    assert end.reason == ("length" if len(tokens) == ask.params.max_new_tokens else "stop")
    assert end.usage.prompt_tokens == len(ask.tokens) and end.usage.completion_tokens == len(tokens)


def test_supervisor_answers_equal_model_answers():
    async def test(server: Supervisor) -> None:
        asked = asks()
        result = await asyncio.gather(*(read(server.generate(*ask)) for ask in asked))
        for ask, one in zip(asked, result, strict=True):
            check(ask, one)
        await until(lambda: server.stats().steps > 0)
        stats = server.stats()
        assert (stats.state, stats.queued, stats.busy, stats.restarts) == ("ready", 0, 0, 0)
        assert stats.completion_tokens == sum(len(tokens) for _, tokens, _ in result)
        assert stats.tokens >= stats.steps > 0
        ask = Ask("a", tuple(range(40)), SamplingParams(max_new_tokens=3))
        for cached in (0, 39):
            events = [event async for event in server.generate(*ask)]
            assert events[0] == Admitted(cached)
            assert isinstance(events[-1], StreamEnd) and events[-1].usage == RequestUsage(40, cached, 3)
        assert server.stats().cached_tokens == stats.cached_tokens + 39
        assert server.stats().cache_hits == stats.cache_hits + 1
        await errors_keep_their_kind(server)

    serving(test)


def test_worker_crash_or_device_loss_resumes_responses():
    """Killed, its device lost, hung, each at random moments of four answers."""

    async def hurt(server: Supervisor, how: int, moments: random.Random) -> None:
        before = server.stats()
        await asyncio.sleep(moments.uniform(0.02, 0.1))
        assert server.worker_pid is not None
        os.kill(server.worker_pid, how)
        check(late := asks(5)[0], await read(server.generate(*late)))  # a pass follows, also if all others are over
        if how != signal.SIGUSR1:
            await until(lambda: server.stats().restarts > before.restarts and server.stats().state == "ready")

    async def test(server: Supervisor) -> None:
        moments = random.Random(1)
        for how in (signal.SIGUSR1, signal.SIGKILL, signal.SIGUSR2):
            asked = asks(150)
            streams = [asyncio.create_task(read(server.generate(*ask))) for ask in asked]
            await hurt(server, how, moments)
            for ask, one in zip(asked, await asyncio.gather(*streams), strict=True):
                check(ask, one)
            if how == signal.SIGUSR1:
                await until(lambda: server.stats().device_losses > 0)
                assert (server.stats().restarts, server.stats().device_losses) == (0, 1)
        assert (server.stats().restarts, server.stats().device_losses) == (2, 1)
        assert server.stats().recovery_seconds > 0

    serving(test)


def test_worker_first_start_warms_up_replacement_does_not():
    async def passes_at(server: Supervisor, slots: int) -> int:
        await until(lambda: server.stats().state == "ready" and server.stats().slots == slots)
        return server.stats().steps

    async def test(server: Supervisor) -> None:
        passes = await passes_at(server, slots=4)
        assert passes > 4  # no one has asked
        assert server.worker_pid is not None
        os.kill(server.worker_pid, signal.SIGKILL)
        assert await passes_at(server, slots=1) == passes and server.stats().restarts == 1
        for ask, one in zip(asks(), await asyncio.gather(*(read(server.generate(*a)) for a in asks())), strict=True):
            check(ask, one)

    serving(test, warmup=True)


def test_queue_full_refuses_with_retry_after():
    async def test(server: Supervisor) -> None:
        ask = Ask("slow", (1,), SamplingParams(max_new_tokens=5))
        streams = [server.generate(*ask) for _ in range(4)]
        with raises(QueueFull, "queue of slow ", "3 requests", "1 are") as refused:
            server.generate(*ask)
        assert refused.value.retry_after >= 1
        for stream in streams:
            assert (await read(stream))[1] == expected(ask)[1]
        await a_cancelled_answer_frees_its_slot(server)
        await deadlines(server)
        assert server.stats().busy == server.stats().queued == 0

    serving(test, "slow", limits=Limits(max_queue=3, restarts=QUICK), sequences=1)


async def a_cancelled_answer_frees_its_slot(server: Supervisor) -> None:
    first = server.generate("slow", (1,), ENDLESS)
    second = server.generate("slow", (2,), SamplingParams(max_new_tokens=3))
    async for event in first:
        if isinstance(event, Piece):
            await first.cancel()
        elif isinstance(event, StreamEnd):
            assert event.reason == "cancelled" and event.usage.completion_tokens >= 1
    assert (await read(second))[2].reason == "length"


async def deadlines(server: Supervisor) -> None:
    busy = server.generate("slow", (1,), ENDLESS)
    with raises(DeadlineExceeded, "0.1 seconds") as late:
        await read(server.generate("slow", (2,), SamplingParams(), timeouts=Timeouts(queue=0.1)))
    assert late.value.wait == "queue"
    with pytest.raises(DeadlineExceeded) as late:
        await read(server.generate("slow", (2,), SamplingParams(), timeouts=Timeouts(first_token=0.1)))
    assert late.value.wait == "first token"
    await busy.cancel()
    for total in (1, 4, 16, 64):  # the first that is long enough for a token
        with contextlib.suppress(DeadlineExceeded):
            _, tokens, end = await read(server.generate("slow", (2,), ENDLESS, timeouts=Timeouts(total=total)))
            break
    assert end.reason == "deadline" and end.usage.completion_tokens == len(tokens) > 0


def test_request_crashing_workers_refused_others_continue():
    async def test(server: Supervisor) -> None:
        ask = asks(100)[1]
        other = asyncio.create_task(read(server.generate(*ask)))
        await asyncio.sleep(0.05)
        with raises(WorkerUnavailable, "2 workers", "status 7;", "poison", code="request_crashes_workers"):
            await read(server.generate("a", (POISON, 1), SamplingParams()))
        check(ask, await other)
        check(ask, await read(server.generate(*ask)))  # the other may have ended before the second crash
        assert server.stats().restarts == 2

    serving(test, limits=Limits(max_crashes=2, restarts=QUICK))


async def errors_keep_their_kind(server: Supervisor) -> None:
    with raises(InputError, "kind language", "kind encoder", code="wrong_model_kind"):
        await server.embed("a", [[1]])
    with raises(InputError, "AttributeError: 'FakeTokenizer'", code="request_failed"):  # as a library may fail
        await read(server.generate("a", (1,), sampling_params_from({"regex": "a"})))
    with raises(OutOfMemory, "'step'"):
        await read(server.generate("a", (HUNGRY, 1), SamplingParams()))
    check(ask := asks()[0], await read(server.generate(*ask)))
    assert server.stats().busy == server.stats().queued == server.stats().restarts == 0


DYING = (sys.executable, "-c", "import sys; print('cannot go on', file=sys.stderr); sys.exit(3)")
REFUSING = (
    sys.executable,
    "-c",
    "import sys; from webpte.serve.worker import Pipe; from webpte.serve.messages import LoadFailed\n"
    "pipe = Pipe(sys.stdin.buffer, sys.stdout.buffer); pipe.receive(); "
    "pipe.send(LoadFailed('FormatError', 'a is torn', 'truncated'))",
)
BABBLING = (sys.executable, "-c", "print('what is this?' * 20, flush=True); import time; time.sleep(60)")
ABSENT = ("/no/such/worker",)
DEAF = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.mark.parametrize(
    ("command", "kind", "code", "expected"),
    [
        (REFUSING, FormatError, "truncated", ["a is torn"]),
        (DYING, WorkerUnavailable, "worker_failed", ["3 workers", "status 3;", "\ncannot go on"]),
        (BABBLING, WorkerUnavailable, "worker_failed", ["261 bytes"]),
        (ABSENT, WorkerUnavailable, "worker_failed", [os.strerror(errno.ENOENT), ABSENT[0]]),
        (DEAF, WorkerUnavailable, "worker_failed", ["0.5 seconds"]),
    ],
    ids=["refused", "dies", "babbles", "absent", "deaf"],
)
def test_worker_failing_at_start_reported_after_limited_restarts(command, kind, code, expected):
    async def test(server: Supervisor) -> None:
        raise AssertionError("it started")

    timeout = 0.5 if command is DEAF else 120
    policy = RestartPolicy(ping_interval=0.05, start_timeout=timeout, max_start_failures=3, backoff=0.01)
    with raises(kind, *expected, code=code):
        serving(test, limits=Limits(restarts=policy), command=command)


def kill_worker(server: Supervisor) -> int | None:
    """Kill the current worker, if there is one. Return its process id."""
    pid = server.worker_pid
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):  # it may have ended just now
            os.kill(pid, signal.SIGKILL)
    return pid


def test_supervisor_after_many_early_exits_restarts_and_answers():
    """Requests that came before and during the restarts wait."""

    async def test(server: Supervisor) -> None:
        early = server.generate(*(ask := asks(5)[0]))
        await anext(early)
        killed: set[int | None] = {None}
        while len(killed) <= 7:
            killed.add(kill_worker(server))
            await asyncio.sleep(0)
        late = server.generate(*ask)
        await until(lambda: server.stats().restart is not None)
        stats = server.stats()
        assert stats.state == "restarting" and stats.restart is not None
        assert stats.restart.attempts >= 6 and stats.restart.next_attempt_seconds <= QUICK.max_backoff
        assert stats.restart.last_error == "exited by SIGKILL"
        check(ask, await read(late))
        assert [event async for event in early][-1] == StreamEnd("length", RequestUsage(3, 0, 5))
        assert (server.stats().state, server.stats().restart) == ("ready", None)

    serving(test, limits=Limits(restarts=replace(QUICK, max_backoff=0.05)))


def test_worker_stopped_replaced_after_heartbeat_timeout():
    async def test(server: Supervisor) -> None:
        stream = server.generate(*(ask := asks(150)[1]))
        await anext(stream)
        stopped = server.worker_pid
        assert stopped is not None
        os.kill(stopped, signal.SIGSTOP)
        assert [event async for event in stream][-1] == StreamEnd("length", RequestUsage(1, 0, 150))
        assert server.stats().restarts >= 1 and server.worker_pid != stopped
        check(ask, await read(server.generate(*ask)))

    serving(test, limits=Limits(restarts=replace(QUICK, heartbeat_timeout=2.0)))


def test_supervisor_whose_workers_exit_until_the_timeout_fails():
    async def test(server: Supervisor) -> None:
        waiting = server.generate("slow", (1,), ENDLESS)
        failing = asyncio.create_task(server.failed())
        while server.stats().state != "failed":
            kill_worker(server)
            await asyncio.sleep(0.01)
        with raises(WorkerUnavailable, "SIGKILL", code="worker_failed"):
            await read(waiting)
        assert (await failing).reason == "worker_failed"
        with raises(WorkerUnavailable, "SIGKILL", code="no_worker"):
            server.generate("slow", (1,), SamplingParams())

    serving(test, "slow", limits=Limits(restarts=replace(QUICK, restart_timeout=0.5)))


def test_shutdown_lets_responses_finish():
    async def test(server: Supervisor) -> None:
        answers = [server.generate("a", (number,), SamplingParams(max_new_tokens=60)) for number in (1, 2)]
        await anext(answers[1])
        ending = asyncio.create_task(server.stop(200))
        await asyncio.sleep(0)
        with raises(WorkerUnavailable, code="stopping"):
            server.generate("a", (3,), SamplingParams())
        assert [(await read(answer))[2].reason for answer in answers] == ["length", "length"]
        await ending
        assert server.stats().state == "stopped"

    serving(test)


def test_shutdown_timeout_cuts_long_responses():
    async def test(server: Supervisor) -> None:
        long = server.generate("slow", (1,), ENDLESS)
        await anext(long)
        await server.stop(0.1)
        _, tokens, end = await read(long)
        assert end.reason == "cancelled" and end.usage.completion_tokens >= len(tokens)
        assert server.stats().state == "stopped"

    serving(test, "slow")


def test_shutdown_forced_during_shutdown_kills_worker():
    async def test(server: Supervisor) -> None:
        long = server.generate("slow", (1,), ENDLESS)
        await anext(long)
        pid = server.worker_pid
        assert pid is not None
        patient = asyncio.create_task(server.stop(200))
        await asyncio.sleep(0)
        await asyncio.gather(patient, *(server.stop(0.0) for _ in range(3)))
        assert (await read(long))[2].reason == "cancelled" and server.worker_pid is None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    serving(test, "slow")


@pytest.mark.parametrize("shared", [False, True])
def test_prefix_cached_for_one_client_does_not_show_in_requests_of_another(shared):
    """A client could otherwise guess the prompts of others, token by token."""
    prompt = tuple(range(1, 81))

    async def test(server: Supervisor) -> list[int]:
        cached = []
        for client in ("bob", "bob", "mallory", "mallory"):
            stream = server.generate("a", prompt, SamplingParams(max_new_tokens=1), client=client)
            cached.append((await read(stream))[2].usage.cached_tokens)
        return cached

    most = len(prompt) - 1
    results = serving(test, limits=Limits(restarts=QUICK, share_prefixes=shared))
    assert results == [0, most, most if shared else 0, most]

"""The engine's thread: its life, its readers, and failures in it."""

from __future__ import annotations

import _thread
import asyncio
import gc
import random
import statistics
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.fake_runner import FakeLLM, FakeRunner, alone
from webpte import CancelToken
from webpte.errors import ClosedError, DeviceLost
from webpte.llm import Generation
from webpte.llm.engine.request import MAX_UNREAD_OUTPUTS, RequestStatus

A, B = list(range(1, 20)), list(range(30, 50))


def threaded(runner: FakeRunner | None = None, **options) -> FakeLLM:
    return FakeLLM(runner, background=True, **options)


def until(condition: Callable[[], object]) -> None:
    """The test's time limit ends it otherwise."""
    while not condition():
        time.sleep(0.001)


def interrupt_when(condition: Callable[[], object]) -> None:
    until(condition)
    _thread.interrupt_main()


class Gate:
    """Holds every call of the runner until it is opened."""

    def __init__(self, runner: FakeRunner) -> None:
        self.reached, self._open = threading.Event(), threading.Event()
        runner.before = self.pass_through

    def pass_through(self) -> None:
        self.reached.set()
        self._open.wait()

    def open(self) -> None:
        self._open.set()


def test_thread_starts_with_the_first_request_and_ends_with_the_model():
    llm = threaded()
    answer = llm.generate(tokens=A, max_new_tokens=5)
    assert llm.engine._thread is None
    answer.result()
    thread = llm.engine._thread
    assert thread is not None and thread.is_alive()
    llm.close()
    assert not thread.is_alive()
    with raises(ClosedError):
        llm.generate(tokens=A).result()


def test_idle_engine_is_collected_and_its_thread_ends():
    llm = threaded()
    llm.generate(tokens=A, max_new_tokens=5).result()
    thread, engine = llm.engine._thread, weakref.ref(llm.engine)
    assert thread is not None
    warm = llm.engine
    while warm.is_cold:
        time.sleep(0.01)
    del llm, warm
    until(lambda: gc.collect() >= 0 and engine() is None)
    until(lambda: not thread.is_alive())


def test_dropped_handle_frees_its_slot():
    llm = threaded(FakeRunner(max_slots=1, capacity=512))
    answer = llm.generate(tokens=A, max_new_tokens=400)
    next(answer)
    request = answer._request
    del answer
    assert llm.generate(tokens=B, max_new_tokens=5).result()
    assert request is not None and request.status is RequestStatus.CANCELLED


def test_reader_that_stops_costs_the_others_nothing():
    llm = threaded(FakeRunner(max_slots=2, capacity=2048))
    stopped = llm.generate(tokens=A, max_new_tokens=2000, speculate=False)
    next(stopped)
    other = llm.generate(tokens=B, max_new_tokens=300, speculate=False)
    other.result()
    assert other.tokens == alone(B, 300, 2048)
    computed = llm.engine.stats.tokens - len(A) - len(B) - 299
    assert computed <= MAX_UNREAD_OUTPUTS + 10 and llm.engine.stats.evictions == 0
    assert llm.runner.num_slots == 2 and len(llm.engine.scheduler.running) == 1
    assert next(stopped).token == alone(A, 2, 2048)[1]


def test_error_in_a_step_ends_its_requests_and_no_others():
    llm = threaded(FakeRunner(capacity=512))
    first = llm.generate(tokens=A, max_new_tokens=400)  # it pauses, for no one reads
    next(first)

    def fail() -> None:
        llm.runner.before = lambda: None
        raise RuntimeError("broken")

    llm.runner.before = fail
    with pytest.raises(RuntimeError, match="broken"):
        first.result()
    assert first.finished and llm.generate(tokens=B, max_new_tokens=20).result()
    assert first.tokens == alone(A, 400, 512)[: len(first.tokens)]


def test_lost_device_fails_waiting_requests_too_and_recover_mends():
    llm = threaded(FakeRunner(max_slots=1))
    gate = Gate(llm.runner)
    answers = [llm.generate(tokens=[n], max_new_tokens=5) for n in range(3)]
    for answer in answers:
        answer.start()
    gate.reached.wait()
    llm.runner.lose()
    gate.open()
    for answer in answers:
        with raises(DeviceLost):
            answer.result()
    assert llm.recover()
    again = llm.generate(tokens=[1], max_new_tokens=5)
    again.result()
    assert again.tokens == alone([1], 5)


def test_cancelled_reader_does_not_wait_for_the_step():
    llm, cancel = threaded(), CancelToken()
    gate = Gate(llm.runner)
    answer = llm.generate(tokens=A, max_new_tokens=20, cancel=cancel)
    reader = threading.Thread(target=answer.result)
    reader.start()
    gate.reached.wait()
    cancel.cancel()
    reader.join()  # the step is still held
    assert answer.usage.finish_reason == "cancelled" and answer.text == ""
    gate.open()
    assert llm.generate(tokens=B, max_new_tokens=3).result()


def test_interrupt_cancels_the_answer_that_waits():
    llm = threaded()
    gate = Gate(llm.runner)
    answer, other = llm.generate(tokens=A, max_new_tokens=20), llm.generate(tokens=B, max_new_tokens=20)
    other.start()
    gate.reached.wait()
    threading.Thread(target=interrupt_when, args=(lambda: answer._submitted,)).start()
    with pytest.raises(KeyboardInterrupt):
        answer.result()
    gate.open()
    assert answer.usage.finish_reason == "cancelled" and answer.error is None
    other.result()
    assert other.tokens == alone(B, 20)


def test_close_ends_answers_in_progress():
    llm = threaded(FakeRunner(max_slots=1))
    gate = Gate(llm.runner)
    running, waiting = llm.generate(tokens=A, max_new_tokens=40), llm.generate(tokens=B)
    running.start()
    waiting.start()
    gate.reached.wait()
    closing = threading.Thread(target=llm.close)
    closing.start()
    until(lambda: llm.engine._ending)
    gate.open()
    closing.join()
    for answer in (running, waiting):
        with raises(ClosedError):
            answer.result()


def test_cancelled_task_frees_its_slot_and_the_loop_is_never_blocked():
    llm = threaded(FakeRunner(max_slots=1))
    gate = Gate(llm.runner)

    async def main() -> None:
        task = asyncio.create_task(anext(llm.generate(tokens=A)))
        while not gate.reached.is_set():
            await asyncio.sleep(0.001)  # the step is held, and the loop runs
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        answer = llm.generate(tokens=B, max_new_tokens=4)
        assert [piece.token async for piece in answer] == alone(B, 4)

    asyncio.run(main())


def test_sequence_methods_wait_for_one_step_only(tmp_path):
    """The thread that runs the loop lets others in between two steps."""
    llm = threaded(FakeRunner(capacity=4096))
    talk = llm.sequence()
    talk.logits(A)
    endless = llm.generate(tokens=B, max_new_tokens=4000, tokens_per_submit=1)
    reader = threading.Thread(target=endless.result)
    reader.start()
    until(lambda: endless.tokens)
    llm.runner.before = lambda: time.sleep(0.002)  # which lets other threads run
    waited = []
    for _ in range(10):
        before = llm.engine.stats.steps
        with llm.engine.exclusive():
            waited.append(llm.engine.stats.steps - before)
        talk.snapshot(tmp_path / "state")
        talk.restore(tmp_path / "state")
        assert talk.tokens == tuple(A)
    assert statistics.median(waited) <= 2
    talk.reset()
    assert not endless.finished
    endless.close()
    reader.join()


def test_idle_engine_warms_up_and_a_request_interrupts_it(monkeypatch):
    llm = threaded(FakeRunner(max_slots=4, max_batch_tokens=16))
    held, reached = threading.Event(), threading.Event()
    warm_up = llm.runner.warm_up

    def slowly(*step) -> None:
        warm_up(*step)
        reached.set()
        held.wait()

    monkeypatch.setattr(llm.runner, "warm_up", slowly)
    llm.generate(tokens=A, max_new_tokens=3).result()
    reached.wait()
    answer = llm.generate(tokens=B, max_new_tokens=3)
    answer.start()
    llm.runner.after = lambda: order.append(len(llm.runner.warmed))
    order: list[int] = []
    held.set()
    assert answer.result() and order[0] == 1  # it waited for one step of the warm-up
    until(lambda: len(llm.runner.warmed) >= 5)
    assert llm.runner.warmed[:5] == [(1, 1, False), (8, 1, False), (12, 1, False), (16, 1, False), (1, 1, True)]
    assert llm.runner.num_slots == 1  # memory is taken when it is needed


def test_prompts_of_any_length_get_slots_in_the_order_of_arrival():
    """In simulated time: the decode gap is bounded while a prompt of 900 tokens is computed."""
    runner = FakeRunner(max_slots=8, capacity=1024, max_batch_tokens=256)
    runner.max_samples = 32
    runner.cost = lambda tokens: 0.02 + 0.005 * tokens
    llm = FakeLLM(runner, max_num_seqs=8)
    rng = random.Random(29)
    prompts = [[rng.randrange(97) for _ in range(rng.choice((1, 5, 40, 300, 900)))] for _ in range(40)]
    answers = [llm.generate(tokens=p, max_new_tokens=40, tokens_per_submit=1, speculate=False) for p in prompts]
    waiting, live, admitted = list(enumerate(answers)), list[tuple[int, Generation]](), list[int]()
    last, gaps = dict[int, float](), list[float]()
    while waiting or live:
        while waiting and (not live or rng.random() < 0.2):
            waiting[0][1].start()
            live.append(waiting.pop(0))
        llm.engine.step()
        running = {id(request) for request in llm.engine.scheduler.running}
        admitted += [n for n, answer in live if n not in admitted and (id(answer._request) in running or answer.ready)]
        for number, answer in list(live):
            while answer.ready and next(answer, None) is not None:
                if number in last:
                    gaps.append(runner.now - last[number])
                last[number] = runner.now
            if answer.finished:
                live.remove((number, answer))
    assert admitted == sorted(admitted) and len(admitted) == 40
    assert [answer.tokens for answer in answers] == [alone(prompt, 40, 1024) for prompt in prompts]
    assert max(gaps) <= 2.5 * statistics.median(gaps)
    least = sum(len(prompt) + 39 for prompt in prompts)
    assert llm.engine.stats.tokens <= least and llm.engine.stats.preemptions == 0

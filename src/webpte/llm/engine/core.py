"""The engine's loop: admit requests, build a batch, run the model, deliver outputs.

One thread per model runs the loop. It starts with the first request and ends with the model. Without the thread
(`background=False`), a reader that waits for an output runs the next step itself.

What a request has to compute is always its tokens beyond those that its slot caches: one for a request that decodes,
many for a prompt, all of them after a device was lost. A step writes after what is recorded as cached, and its tokens
are recorded when it is done. So a failed step needs no rollback.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ...errors import ClosedError, DeviceLost
from ...progress import OnProgress, Progress
from ...runtime.checks import ProcessGuard
from ..sampling import SampledToken
from .embeddings import EmbeddingPool
from .execution import BatchExecutor, DecodeFlight
from .kv_slots import KvSlots
from .output import OutputQueue, wait_for_any
from .request import Request, SamplingRequest
from .runner import ModelRunner
from .scheduler import STEP_SIZES, ScheduledTokens, Scheduler
from .speculation import StepCosts

Result = TypeVar("Result")
POLL_SECONDS = 0.1  # after which a waiting thread looks again: an interrupt may have consumed its wake-up
IDLE_SECONDS = 0.25  # without work, before a step of the warm-up: a program that ends now need not wait for one
EXIT_SECONDS = 10.0  # that the end of the interpreter waits for a step
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineStats:
    """Counts since the engine was made."""

    steps: int  # passes over the weights
    tokens: int  # computed, of all steps
    evictions: int  # sequences that lost their cache to another one
    preemptions: int  # requests that lost their cache while they ran
    slots: int
    recoveries: int  # from the loss of a device


class EngineCore:
    """The scheduler, the slots and the runner of one model. Every method may be called from any thread."""

    def __init__(
        self,
        runner: ModelRunner,
        *,
        max_num_seqs: int = 16,
        num_cache_slots: int = 0,
        max_queue_size: int = 1024,
        recover: Callable[[], object] | None = None,
        background: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Prepare to compute `max_num_seqs` sequences at once; `num_cache_slots` more slots cache prompt prefixes."""
        self.runner = runner
        self.kv_slots = KvSlots(
            runner, min(max_num_seqs + num_cache_slots, runner.max_slots), keep_prefixes=num_cache_slots > 0
        )
        self.embeddings = EmbeddingPool(runner)
        self.scheduler = Scheduler(
            runner, self.kv_slots, self.embeddings, min(max_num_seqs, runner.max_slots), max_queue_size
        )
        self.costs = StepCosts()
        self.process = ProcessGuard("the language model")
        self.background = background
        self.after_step: Callable[[], object] = lambda: None  # called when the outputs of a step are delivered
        self.recover = recover
        self._clock = clock
        self._recoveries = runner.recoveries
        self.executor = BatchExecutor(runner, self.kv_slots, self.embeddings, self.scheduler.policy, self.costs, clock)
        self._flight: DecodeFlight | None = None  # what the device computes between two steps
        self._closed = False
        self._ending = False  # the loop is to end
        self._warmed: set[tuple[int, WarmupStep]] = set()  # with the number of slots
        self._lock = threading.RLock()  # held for a step, and by `exclusive`
        self._visitors = _Visitors()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()  # an item: there may be work
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def max_num_seqs(self) -> int:
        return self.scheduler.max_num_seqs

    @property
    def stats(self) -> EngineStats:
        return EngineStats(
            steps=self.executor.steps,
            tokens=self.executor.tokens,
            evictions=self.kv_slots.evictions,
            preemptions=self.scheduler.preemptions,
            slots=len(self.kv_slots),
            recoveries=self.runner.recoveries,
        )

    def check_process(self) -> None:
        """Raise ForkedError in any process but the one that loaded the model. Call it before taking a lock."""
        self.process.check()

    # -- requests ------------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Queue a request. It gets a slot in the order of arrival."""
        self.check_process()
        self._check_open()
        if request.finished:  # by its constraint, which left no choice
            request.sequence.claim(request)
            request.flush()
            self.after_step()
            return
        self.scheduler.add(request)
        if self.background:
            self._start_thread()
            self.wake()

    def abort(self, request: Request) -> None:
        """Cancel a request before its next step."""
        request.abort()
        self.wake()

    def wake(self) -> None:
        """Make the loop look for work. Safe in a finalizer."""
        if self._thread is not None:
            self._bell.put(None)

    def wait(self, *queues: OutputQueue) -> None:
        """Wait a moment for an output in any of the queues. Without a thread, run a step instead."""
        self.check_process()
        if self._steps_here:
            with self._lock:
                if not any(queues):  # another reader may have run the step
                    self._check_open()
                    self.step()
        else:
            wait_for_any(queues, POLL_SECONDS)

    def compute(self, request: Request) -> None:
        """Submit a request and wait for its end. Raise its error."""
        self.submit(request)
        outputs = request.sink
        assert isinstance(outputs, OutputQueue)
        try:
            while not request.finished:
                outputs.take()
                self.wait(outputs)
        except BaseException:
            self.abort(request)
            raise
        if request.error is not None:
            raise request.error

    # -- the device ----------------------------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Use the device and the slots between two steps."""
        self.check_process()
        with self._visitors.visit(), self._lock:
            if self._flight is not None:
                self._step(ahead=False)
            yield

    def on_device(self, work: Callable[[], Result]) -> Result:
        """Do work that needs the caches as they are recorded. Repeat it if the device was lost meanwhile."""
        with self.exclusive():
            while True:
                self._check_caches()
                try:
                    result = work()
                except DeviceLost:
                    if self.recover is None:
                        raise
                    self.recover()
                    continue
                if self.runner.recoveries == self._recoveries:
                    return result

    @property
    def _steps_here(self) -> bool:
        """Return whether the calling thread runs the steps it waits for."""
        return not self.background or self._visitors.is_here

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the language model was closed; load it again")

    def _check_caches(self) -> None:
        """Restart requests whose caches were lost with a device."""
        if self.runner.recoveries != self._recoveries:
            self._recoveries = self.runner.recoveries
            self._flight = None
            self.kv_slots.invalidate()
            self.embeddings.invalidate()
            self.scheduler.preempt_all()

    # -- one step ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Admit requests, run the model once for all that are scheduled, and deliver their outputs.

        If the same requests decode on, the next step is submitted before the outputs are read.
        """
        with self._lock:
            self._step(ahead=True)

    @property
    def has_work(self) -> bool:
        """Return whether the next step would do anything."""
        return self._flight is not None or self.scheduler.has_work

    def _step(self, ahead: bool) -> None:
        batch: list[ScheduledTokens] = []
        try:
            self._check_caches()
            flight, self._flight = self._flight, None  # gone if the step fails
            started, recoveries = self._clock(), self.runner.recoveries
            if flight is None:
                self.scheduler.update_queues()
                batch = self.scheduler.schedule()
                for part in batch:
                    part.request.flush()  # a request that got its slot is no longer queued while its prompt is read
                flight = self.executor.start(batch)
            if flight is not None:
                batch = flight.parts
                self._land(flight, recoveries, ahead)
            else:
                sampled = self.executor.run(batch)
                if self.runner.recoveries == recoveries:  # otherwise it is unknown which caches the step has seen
                    self._process(batch, sampled, self._clock() - started)
        except DeviceLost as error:
            self._recover_or_fail(error)
        except BaseException as error:
            if not isinstance(error, Exception) and threading.current_thread() is not self._thread:
                raise  # an interrupt of the reader that runs this step
            logger.debug("a step failed", exc_info=True)  # readers get the error
            self._fail([part.request for part in batch] or self.scheduler.running, error)
        finally:
            self._retire()
            self.after_step()

    def _land(self, flight: DecodeFlight, recoveries: int, ahead: bool) -> None:
        """Let the next steps follow those in flight, if they can, and deliver the tokens of those."""
        following = self.executor.follow(flight) if ahead and self.scheduler.is_steady(flight.rows) else None
        sampled, seconds = self.executor.land(flight)
        if self.runner.recoveries != recoveries:
            return
        self._process([part for part in flight.parts if not part.request.is_abandoned], sampled, seconds)
        if following is not None:
            following.keep_valid(sampled)
            if following.parts:
                self._flight = following
            else:
                following.steps.discard()
        if self._flight is None:
            self.scheduler.update_queues()

    def _recover_or_fail(self, error: Exception) -> None:
        """Open another device after the loss of one, or fail every request."""
        try:
            if self.recover is None:
                raise error
            self.recover()
        except Exception as failure:
            self._fail([*self.scheduler.running, *self.scheduler.drain()], failure)

    def _fail(self, requests: Sequence[Request], error: BaseException) -> None:
        for request in requests:
            request.fail(error)
            if request not in self.scheduler.running:  # those free their slot first: see `_retire`
                request.flush()

    def _retire(self) -> None:
        """Free the slots of finished requests, and deliver what they end with."""
        for request in [request for request in self.scheduler.running if request.finished]:
            self.scheduler.remove(request)
            request.flush()

    def _process(
        self, batch: list[ScheduledTokens], sampled: dict[Request, list[SampledToken]], seconds: float
    ) -> None:
        """Record what is cached now, and deliver the outputs."""
        for request, slot, tokens, num_drafts, _, is_complete in batch:
            chosen = sampled.get(request, [])
            finite = list(itertools.takewhile(lambda token: token.token >= 0, chosen))
            if finite or not chosen:
                slot.tokens += [*tokens[: len(tokens) - num_drafts], *(token.token for token in finite[:-1])]
            self.kv_slots.touch(slot)
            if len(slot.tokens) in (slot.branch, *slot.image_ends, request.num_prompt_tokens):
                self.kv_slots.save(slot)
            request.sequence.note_prefilled(request, len(slot.tokens))
            if request.has_output:
                request.decode_seconds += seconds
            else:
                request.prefill_seconds += seconds
                request.note_prefilled(len(slot.tokens))
            if isinstance(request, SamplingRequest):
                request.append_tokens(chosen)
            elif is_complete:
                request.prefilled()
            if not request.finished:  # a finished one frees its slot first
                request.flush()

    # -- warm-up -------------------------------------------------------------------------------------------------------

    def warm_up(self, progress: OnProgress) -> None:
        """Make all slots and compile for every number of requests now. Only a single slot loses what it caches."""
        self.on_device(self.kv_slots.grow_to_max)
        steps = list(warmup_steps(self.runner, self.max_num_seqs))
        for number, step in enumerate(steps):
            progress(Progress("prepare", number, len(steps), "steps"))
            self.on_device(lambda step=step: self._warm(step))  # type: ignore[misc]

    @property
    def is_cold(self) -> bool:
        """Return whether a step of the warm-up is left, for the slots that exist."""
        return self._next_warmup() is not None

    def warm_up_idle(self) -> bool:
        """Run the next step of the warm-up. Return whether another is left."""
        with self._lock:
            step = self._next_warmup()
            if step is None:
                return False
            try:
                self._warm(step)
            except Exception:  # no caller has asked for it: the next request reports the problem
                logger.debug("a step of the warm-up failed", exc_info=True)
                return False
            return self.is_cold

    def _next_warmup(self) -> WarmupStep | None:
        if self.runner.max_slots == 1 and not self.kv_slots.is_empty:
            return None  # it would overwrite the one cache
        steps = warmup_steps(self.runner, self.max_num_seqs)
        return next((step for step in steps if self._warm_key(step) not in self._warmed), None)

    def _warm(self, step: WarmupStep) -> None:
        if self.runner.max_slots == 1:
            self.kv_slots.invalidate()  # its one cache is used
        self._warmed.add(self._warm_key(step))
        self.executor.steps += 1
        self.runner.warm_up(*step)

    def _warm_key(self, step: WarmupStep) -> tuple[int, WarmupStep]:
        return self.runner.num_slots, step

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    bell = self._bell
                    reference = weakref.ref(self, lambda _: bell.put(None))  # a dropped engine ends its thread
                    arguments = (reference, bell, self._visitors)
                    # A daemon, because the interpreter waits for other threads before it calls `_end_all`.
                    thread = threading.Thread(target=_loop, args=arguments, name="webpte engine", daemon=True)
                    thread.start()
                    self._thread = thread
                    _running.add(self)

    def close(self) -> None:
        """End the loop after the current step. Requests that are not finished fail."""
        self._closed = True
        self.end_thread()
        with self._lock:
            error = ClosedError("the language model was closed; load it again")
            self._flight = None
            self._fail([*self.scheduler.running, *self.scheduler.drain()], error)
            self._retire()

    def end_thread(self, seconds: float | None = None) -> None:
        """End the loop after its current step, and wait for that."""
        self._ending = True
        self.wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)


_running: weakref.WeakSet[EngineCore] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End all threads: one that is inside the driver when the interpreter ends could crash the process."""
    for engine in list(_running):
        if engine.process.is_current:
            engine.end_thread(EXIT_SECONDS)


def _loop(reference: weakref.ref[EngineCore], bell: queue.SimpleQueue[None], visitors: _Visitors) -> None:
    """Run steps while there is work, and steps of the warm-up while there is none. Waiting does not keep the engine."""
    idle = False
    while (engine := reference()) is not None and not engine._ending:
        visitors.let_in()
        if engine.has_work:
            engine.step()
            continue
        cold = engine.warm_up_idle() if idle else engine.is_cold
        del engine
        try:
            bell.get(timeout=IDLE_SECONDS if cold else None)
            idle = False
        except queue.Empty:
            idle = True


class _Visitors:
    """Threads that want the lock between two steps. The loop, which takes it again and again, lets them go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._none = threading.Event()
        self._none.set()
        self._depths: dict[int, int] = {}  # of nested visits, by thread

    @property
    def is_here(self) -> bool:
        return threading.get_ident() in self._depths

    @contextmanager
    def visit(self) -> Iterator[None]:
        thread = threading.get_ident()
        with self._lock:
            self._depths[thread] = self._depths.get(thread, 0) + 1
            self._none.clear()
        try:
            yield
        finally:
            with self._lock:
                self._depths[thread] -= 1
                if not self._depths[thread]:
                    del self._depths[thread]
                if not self._depths:
                    self._none.set()

    def let_in(self) -> None:
        self._none.wait()


# -- warm-up ----------------------------------------------------------------------------------------------------------


MAX_PREFILL_TOKENS = 64  # larger steps use the kernels that these have compiled


class WarmupStep(NamedTuple):
    num_tokens: int
    num_samples: int
    constrained: bool  # sampling with a mask


def warmup_steps(runner: ModelRunner, max_num_seqs: int) -> Iterator[WarmupStep]:
    """Yield the steps for the slots that exist: each number of decoding requests, then prompts, then a constraint."""
    for count in range(1, min(max_num_seqs, runner.num_slots, runner.max_samples) + 1):
        yield WarmupStep(count, count, False)
    longest = min(MAX_PREFILL_TOKENS, runner.max_batch_tokens, runner.capacity - 1)
    for size in STEP_SIZES:
        if size <= longest:
            yield WarmupStep(size, 1, False)
    yield WarmupStep(1, 1, True)

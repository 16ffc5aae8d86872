"""The scheduler: which requests have a slot, and which of their tokens the next step computes."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...errors import DeviceLost, QueueFullError
from ..sampling import RowSamplingParams
from .embeddings import EmbeddingPool, rows_after, whole_inputs
from .kv_slots import KvSlots, Slot, SlotOwner, common_prefix
from .request import Request, SamplingRequest
from .speculation import MIN_SAMPLES, StepCosts

STREAM_SECONDS = 0.05  # between two updates that a reader takes for a stream
MAX_SUBMITS_IN_FLIGHT = 2
MAX_STEPS_PER_SUBMIT = 4
MAX_SLOWDOWN = 2.0  # of a decode step, by the prompt tokens that are computed beside it
MIN_CHUNK_TOKENS = 4  # of a prompt, however long the step takes
STEP_SIZES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # few, so that shapes repeat
MAX_ENCODED = 64  # encoder inputs of a step without decoding requests; beside those, one: it may take as long as a step
MAX_DECODE_TOKENS = 16  # of one request: the last token, and those that a constraint forces
MIN_SHARED_TOKENS = (
    32  # a prompt waits for one with the same beginning that is being computed; fewer are computed twice
)


class PrefillPolicy:
    """Learns what steps cost. Decides how many prompt tokens a step computes, and how many steps one submit has."""

    def __init__(self) -> None:
        self._fastest = StepCosts(min)  # a busy machine must not make chunks look more expensive than they are
        self._steps: dict[int, int] = {}
        self._counts: Counter[int] = Counter()  # of steps, by number of tokens

    def record(self, num_tokens: int, steps: int, seconds: float) -> None:
        """Record a submit of several steps of `num_tokens` tokens each."""
        self._fastest.record(num_tokens, seconds / steps)
        self._counts[num_tokens] += 1
        limit = STREAM_SECONDS / MAX_SUBMITS_IN_FLIGHT
        fitting = int(limit * steps / seconds) if seconds > 0 else MAX_STEPS_PER_SUBMIT
        self._steps[num_tokens] = max(1, min(fitting, 2 * steps, MAX_STEPS_PER_SUBMIT))

    def steps_per_submit(self, num_tokens: int) -> int:
        """Return several where a step is short, one where a reader would notice."""
        return self._steps.get(num_tokens, 1)

    def prefill_tokens(self, num_decode: int, max_tokens: int) -> int:
        """Return how many prompt tokens a step computes beside `num_decode` others, of `max_tokens` in all."""
        if num_decode == 0:
            return max_tokens
        plain = self._fastest.seconds(num_decode) or 0.0
        measured = max((size for size, count in self._counts.items() if count >= MIN_SAMPLES), default=0)
        chunk = max(MIN_CHUNK_TOKENS, num_decode)  # twice the tokens take at most twice as long
        for size in STEP_SIZES:
            seconds = self._fastest.seconds(size)
            # The cost of a step far larger than any before is not extrapolated: sizes grow step by step.
            if seconds is None or seconds > MAX_SLOWDOWN * plain or size > 2 * max(measured, num_decode):
                break
            chunk = max(chunk, size - num_decode)
        return min(chunk, max_tokens - num_decode)


class BatchLimits(Protocol):
    """The part of a model runner that limits a step."""

    @property
    def max_batch_tokens(self) -> int: ...

    @property
    def max_samples(self) -> int: ...


class ScheduledTokens(NamedTuple):
    """The tokens of one request that a step computes."""

    request: Request
    slot: Slot
    tokens: list[int]  # from the first that is not cached
    num_drafts: int  # the last of them
    sampling: list[RowSamplingParams]  # of the tokens after the last of them
    is_complete: bool  # nothing is left to compute afterwards

    @property
    def end(self) -> int:
        """Return the position after the last token."""
        return len(self.slot.tokens) + len(self.tokens)


@dataclass
class Budget:
    """What a step can still take."""

    tokens: int  # fewer than it could, so that it is short
    samples: int
    max_tokens: int

    def take(self, part: ScheduledTokens) -> ScheduledTokens:
        self.tokens -= len(part.tokens)
        self.max_tokens -= len(part.tokens)
        self.samples -= len(part.sampling)
        return part


class Scheduler:
    """Queues of requests. Slots are given first come, first served, and kept until a request is finished."""

    def __init__(
        self,
        limits: BatchLimits,
        kv_slots: KvSlots,
        embeddings: EmbeddingPool,
        max_num_seqs: int,
        max_queue_size: int,
    ) -> None:
        self._limits = limits
        self._kv_slots = kv_slots
        self._embeddings = embeddings
        self._max_num_seqs = max_num_seqs
        self._max_queue_size = max_queue_size
        self._arriving: deque[Request] = deque()  # since the last step, from any thread
        self._arrivals = itertools.count()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # whose turn it is comes first
        self.policy = PrefillPolicy()
        self.preemptions = 0

    @property
    def max_num_seqs(self) -> int:
        """Return the maximum sequences that are computed at once. It is below the requested one if memory is short."""
        return min(self._max_num_seqs, self._kv_slots.max_slots)

    @property
    def has_work(self) -> bool:
        """Return whether the next step would do anything."""
        return bool(self._arriving or self.waiting) or any(
            request.is_abandoned or not request.backpressured for request in self.running
        )

    def is_steady(self, decoding: Collection[Request]) -> bool:
        """Return whether the next step is for the same requests as the one that decodes these, whatever is sampled."""
        if self._arriving or (self.waiting and len(self.running) < self.max_num_seqs):
            return False
        ready = [request for request in self.running if self.waiting or not request.backpressured]
        abandoned = any(request.is_abandoned for request in (*self.running, *self.waiting))
        return not abandoned and len(ready) == len(decoding) and all(request in decoding for request in ready)

    def add(self, request: Request) -> None:
        """Queue a request. May be called by any thread."""
        waiting = len(self.waiting) + len(self._arriving)
        if waiting >= self._max_queue_size:
            raise QueueFullError(
                f"{waiting} requests wait for {self.max_num_seqs} slots, which is the limit. Read or close some "
                "answers first, or load the model with a larger max_queue_size."
            )
        request.arrival = next(self._arrivals)
        request.sequence.claim(request)
        self._arriving.append(request)

    def preempt_all(self) -> None:
        """Return every running request to the front of the queue. Their caches are lost."""
        for request in reversed(self.running):
            request.preempt()
            self.waiting.appendleft(request)
        self.preemptions += len(self.running)
        self.running.clear()

    def drain(self) -> list[Request]:
        """Remove and return the requests that have no slot."""
        waiting = [*self.waiting, *self._arriving]
        self.waiting.clear()
        self._arriving.clear()
        return waiting

    def update_queues(self) -> None:
        """Take in new requests, cancel abandoned ones, and admit those that get a slot."""
        while self._arriving:
            self.waiting.append(self._arriving.popleft())
        for request in [request for request in (*self.running, *self.waiting) if request.is_abandoned]:
            request.finish("cancelled")
            self.remove(request)
            request.flush()
        for request in list(itertools.islice(self.waiting, self.max_num_seqs)):
            if len(self.running) >= self.max_num_seqs:
                break
            if self._waits_for_prefix(request):
                continue
            try:
                num_cached = self._kv_slots.allocate(
                    request.sequence, request.reusable_tokens, self._is_idle, request.prefix_key, request.image_ends
                )
            except DeviceLost:
                raise
            except Exception as error:
                self.waiting.remove(request)
                request.fail(error)
                request.flush()
                continue
            if num_cached is None:
                break
            self.waiting.remove(request)
            self._admit(request, num_cached)

    def _admit(self, request: Request, num_cached: int) -> None:
        request.admit(num_cached)
        request.sequence.note_prefilled(request, num_cached)
        if num_cached == len(request.tokens):
            request.prefilled()
        else:
            self.running.append(request)
        request.flush()

    def remove(self, request: Request) -> None:
        """Forget a finished request. Its slot becomes free, unless its sequence keeps it."""
        if request in self.running:
            self.running.remove(request)
            slot = request.sequence.slot
            if slot is not None and not request.sequence.keeps_slot:
                slot.release()
        elif request in self.waiting:
            self.waiting.remove(request)

    def _is_idle(self, owner: SlotOwner) -> bool:
        return all(request.sequence is not owner for request in self.running)

    def _waits_for_prefix(self, request: Request) -> bool:
        """Return whether a prompt with the same beginning is being computed. It is copied once it is cached."""
        tokens = request.reusable_tokens
        same = [other for other in self.running if other.prefix_key == request.prefix_key]
        readers = [other for other in same if len(other.tokens) - other.num_computed > 1]
        shared_by = {other: common_prefix(other.tokens, tokens) for other in readers}
        reader = max(readers, key=shared_by.__getitem__, default=None)
        if reader is None or shared_by[reader] < MIN_SHARED_TOKENS:
            return False
        shared, slot = shared_by[reader], reader.sequence.slot
        if shared <= self._kv_slots.lookup_prefix(tokens, request.prefix_key)[1]:
            return False
        return self._kv_slots.window is None or (slot is not None and slot.branch_at(shared))

    def schedule(self) -> list[ScheduledTokens]:
        """Return the next batch: tokens of every decoding request, then chunks of prompts."""
        ready = [
            (request, slot)
            for request in self.running
            if (slot := request.sequence.slot) is not None and (self.waiting or not request.backpressured)
        ]
        for _, slot in ready:
            self._kv_slots.drop_unusable(slot)
        limit = min(MAX_DECODE_TOKENS, self._limits.max_batch_tokens)
        decoding, prefilling = [], []
        for request, slot in ready:
            if isinstance(request, SamplingRequest) and request.is_decoding(limit):
                decoding.append((request, slot))
            else:
                prefilling.append((request, slot))
        max_tokens = self._limits.max_batch_tokens
        together = max((_rows_together(request, slot) for request, slot in prefilling), default=0)
        budget = Budget(max_tokens - together, self._limits.max_samples, max_tokens)
        batch = list(self._schedule_decode(decoding, budget, drafting=not prefilling))
        num_decode = sum(len(part.tokens) for part in batch)
        budget.tokens = self.policy.prefill_tokens(num_decode, max_tokens)
        self._embeddings.begin_step(1 if decoding else MAX_ENCODED)
        batch += self._schedule_prefill(prefilling, budget, num_decode)
        scheduled = [part.request for part in batch]
        self.running = [request for request in self.running if request not in scheduled] + scheduled
        return batch

    def _schedule_decode(
        self, decoding: list[tuple[SamplingRequest, Slot]], budget: Budget, drafting: bool
    ) -> Iterable[ScheduledTokens]:
        """Return the requests that fit. The others come first in the next step. None drafts while a prompt waits."""
        fitting: list[tuple[SamplingRequest, Slot]] = []
        num_tokens = 0
        for request, slot in decoding[: budget.samples]:
            uncached = len(request.tokens) - len(slot.tokens)
            if num_tokens + uncached > budget.tokens:
                break
            num_tokens += uncached
            fitting.append((request, slot))
        spare = min(budget.samples - len(fitting), budget.tokens - num_tokens) if drafting else 0
        for request, slot in fitting:
            decode = request.decode_input(num_tokens, spare if self._kv_slots.can_draft(slot) else 0)
            if decode is not None:
                num_drafts = len(decode.tokens) - 1
                tokens = request.tokens[len(slot.tokens) : -1] + decode.tokens
                spare -= num_drafts
                num_tokens += num_drafts
                yield budget.take(ScheduledTokens(request, slot, tokens, num_drafts, decode.sampling, True))

    def _schedule_prefill(
        self, prefilling: list[tuple[Request, Slot]], budget: Budget, num_decode: int
    ) -> Iterable[ScheduledTokens]:
        """Compute prompts in the order of arrival, but first those that fit into an equal share of the budget: a long
        prompt does not delay them, and they hardly delay it."""
        if not prefilling:
            return
        share = budget.tokens // len(prefilling)

        def order(pair: tuple[Request, Slot]) -> tuple[bool, int]:
            request, slot = pair
            return len(request.tokens) - len(slot.tokens) > share, request.arrival

        for request, slot in sorted(prefilling, key=order):
            part = self._prefill_chunk(request, slot, budget, num_decode)
            if part is not None:
                yield budget.take(part)

    def _prefill_chunk(self, request: Request, slot: Slot, budget: Budget, num_decode: int) -> ScheduledTokens | None:
        uncached = request.tokens[len(slot.tokens) :]
        limit = max(0, budget.tokens)
        if slot.next_stop is not None:
            limit = min(limit, slot.next_stop - len(slot.tokens))
        count = whole_inputs(uncached, limit)
        if limit and not count:  # rows that see each other take a step that is as long as they need
            together = _rows_together(request, slot)
            count = together if together <= budget.max_tokens else 0
        try:
            chunk = uncached[:count]
            chunk = chunk[: self._embeddings.encode(chunk, request.encoder_inputs)]
        except DeviceLost:
            raise
        except Exception as error:
            request.fail(error)
            return None
        sampling: list[RowSamplingParams] = []
        if isinstance(request, SamplingRequest) and len(chunk) == len(uncached):
            if not budget.samples:
                chunk = uncached[: whole_inputs(uncached, len(uncached) - 1)]  # the rest when a sample is free
            elif (decode := request.decode_input(num_decode, 0)) is not None:
                sampling = decode.sampling
            else:
                return None
        return ScheduledTokens(request, slot, chunk, 0, sampling, len(chunk) == len(uncached)) if chunk else None


def _rows_together(request: Request, slot: Slot) -> int:
    """Return how many of the next tokens of a request one step has to compute, because they see each other."""
    first = request.tokens[len(slot.tokens)] if len(slot.tokens) < len(request.tokens) else 0
    after = rows_after(first, request.encoder_inputs)
    return 1 + after if after else 0

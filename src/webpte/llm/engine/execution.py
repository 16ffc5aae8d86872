"""Execution of scheduled batches: what the model runner is asked, and decode steps that run ahead of the host.

While the device computes decode steps, the next ones are recorded and submitted after them: a token that is sampled
becomes the input of the next step on the device, and the host reads it one submit later. Stop strings, stop tokens and
aborts take effect then, and tokens that were computed too much are discarded. `steps_ahead` is the rule for when steps
may run ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..sampling import SampledToken
from .decode_steps import DecodeSteps
from .embeddings import EmbeddingPool, rows_after
from .kv_slots import KvSlots
from .request import LogitsRequest, Request, SamplingRequest
from .runner import BatchToken, ModelRunner, SampleRow
from .scheduler import PrefillPolicy, ScheduledTokens
from .speculation import StepCosts

NO_OFFSETS = (0, 0, 0)
Sampled = dict[Request, list[SampledToken]]


@dataclass
class DecodeFlight:
    """Decode steps whose tokens the host has not read."""

    rows: Sequence[Request]
    parts: list[ScheduledTokens]  # of the requests whose tokens will be used
    steps: DecodeSteps
    count: int  # of the steps
    started: float

    def keep_valid(self, sampled: Sampled) -> None:
        """Keep the requests that continue after the tokens of the steps before these as the device was fed."""
        parts, self.parts = self.parts, []
        for part in parts:
            request, fed = part.request, sampled[part.request][-1].token
            if not request.finished and request.tokens[len(part.slot.tokens) :] == [fed]:
                self.parts.append(part._replace(tokens=[fed]))


def steps_ahead(parts: Sequence[ScheduledTokens], unread: int, max_drafts: int) -> int:
    """Return how many steps may follow `unread` steps of the same requests before the host reads those.

    There are none if the host has to know a token of any request first: for the mask of a constraint, for penalties, at
    the end of the answer, the cache or the thought; or if its text suggests drafts. Whether the state could go back
    before tokens that were computed too much is another question: see `KvSlots.can_drop`.
    """
    limits = []
    for part in parts:
        request = part.request
        if not isinstance(request, SamplingRequest) or len(part.tokens) != 1 or not part.sampling:
            return 0
        if unread and request.has_drafts(len(parts), max_drafts):
            return 0
        limits.append(request.max_unread_tokens - unread)
    return max(0, min(limits, default=0))


class BatchExecutor:
    """Runs batches, counts them and measures what they cost."""

    def __init__(
        self,
        runner: ModelRunner,
        kv_slots: KvSlots,
        embeddings: EmbeddingPool,
        policy: PrefillPolicy,
        costs: StepCosts,
        clock: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._kv_slots = kv_slots
        self._embeddings = embeddings
        self._policy = policy
        self._costs = costs
        self._clock = clock
        self._landed = 0.0  # when the latest tokens in flight were read
        self.steps = 0  # passes over the weights
        self.tokens = 0  # computed, of all steps

    def run(self, batch: list[ScheduledTokens]) -> Sampled:
        """Run the model; return the tokens that were sampled for each request."""
        with_logits = [part for part in batch if part.request.num_logits_before(part.end)]
        together = [part for part in batch if part not in with_logits]
        together.sort(key=lambda part: len(part.tokens) > 1)  # attention has a kernel for tokens that share keys
        sampled = self._run_together(together) if together else {}
        for part in with_logits:
            part.slot.before_write(len(part.tokens))
            request, end = part.request, part.end
            assert isinstance(request, LogitsRequest)
            count = request.num_logits_before(end) - request.num_logits_before(len(part.slot.tokens))
            request.keep_logits(end, self._runner.logits(self._batch_tokens(part), count))
            self.steps += 1
            self.tokens += len(part.tokens)
        return sampled

    def _run_together(self, parts: list[ScheduledTokens]) -> Sampled:
        tokens, samples = self._inputs(parts)
        for part in parts:
            if part.num_drafts:  # tokens that differ from a draft are dropped
                self._kv_slots.save_before(part.slot, len(part.tokens))
            part.slot.before_write(len(part.tokens))
        started = self._clock()
        chosen = iter(self._runner.run(tokens, samples))
        seconds = self._clock() - started
        self._record(len(tokens), 1, seconds)
        sampled: Sampled = {}
        for part in parts:
            request, each = part.request, [next(chosen) for _ in part.sampling]
            if isinstance(request, SamplingRequest) and each:
                drafts = part.tokens[len(part.tokens) - part.num_drafts :]
                plain = len(tokens) - part.num_drafts
                sampled[request] = verified = request.verify_draft(drafts, each, plain, seconds)
                kept = len(part.slot.tokens) + len(part.tokens) - part.num_drafts + len(verified) - 1
                if (usable := part.slot.usable(kept)) < kept:
                    request.recompute(plain, kept - usable)
        return sampled

    def _inputs(self, parts: Sequence[ScheduledTokens]) -> tuple[list[BatchToken], list[SampleRow]]:
        tokens: list[BatchToken] = []
        samples: list[SampleRow] = []
        for part in parts:
            tokens += self._batch_tokens(part)
            first = len(tokens) - len(part.sampling)
            samples += [SampleRow(first + number, choice) for number, choice in enumerate(part.sampling)]
        return tokens, samples

    def _batch_tokens(self, part: ScheduledTokens) -> list[BatchToken]:
        slot, number_of, adapter = part.slot, self._embeddings.token, part.request.adapter
        offsets, inputs = part.request.axis_offsets, part.request.encoder_inputs
        tokens = []
        for n, t in enumerate(part.tokens, len(slot.tokens)):
            turns = NO_OFFSETS if offsets is None else offsets.at(n)
            tokens.append(BatchToken(number_of(t), slot.number, n, adapter, *turns, rows_after(t, inputs)))
        return tokens

    def _record(self, num_tokens: int, steps: int, seconds: float) -> None:
        self.steps += steps
        self.tokens += steps * num_tokens
        self._policy.record(num_tokens, steps, seconds)
        self._costs.record(num_tokens, seconds / steps)

    # -- ahead of the host ---------------------------------------------------------------------------------------------

    def start(self, parts: list[ScheduledTokens]) -> DecodeFlight | None:
        """Start decode steps; None if the batch is to `run`, because others cannot share its submit or follow it."""
        limit = steps_ahead(parts, 0, 0)
        if limit <= 1:
            return None
        usual = self._usual_steps(parts)
        can_follow = all(self._kv_slots.can_drop(part.slot, 2 * usual) for part in parts)
        count = min(usual, -(-limit // 2) if can_follow else limit)
        if count == 1 and not can_follow:
            return None
        for part in parts:  # tokens that follow a stop are dropped
            self._kv_slots.save_before(part.slot, 2 * count if can_follow else count)
            part.slot.before_write(count)
        tokens, samples = self._inputs(parts)
        started = self._clock()
        steps = self._runner.start_steps(tokens, samples, count)
        return DecodeFlight([part.request for part in parts], parts, steps, count, started)

    def follow(self, flight: DecodeFlight) -> DecodeFlight | None:
        """Start further steps of all requests in flight, if they may run ahead."""
        num_rows = len(flight.rows)
        if len(flight.parts) < num_rows:
            return None
        spare = min(self._runner.max_samples, self._runner.max_batch_tokens) - num_rows
        count = min(self._usual_steps(flight.parts), steps_ahead(flight.parts, flight.count, spare))
        if not count or not all(part.slot.can_lose(flight.count + count) for part in flight.parts):
            return None
        for part in flight.parts:
            part.slot.before_write(flight.count + count)
        started = self._clock()
        steps = flight.steps.follow(count)
        return None if steps is None else DecodeFlight(flight.rows, flight.parts, steps, count, started)

    def land(self, flight: DecodeFlight) -> tuple[Sampled, float]:
        """Wait for steps in flight; return the tokens of each request in it, and the seconds that the steps took."""
        outputs = flight.steps.take()
        now, num_rows = self._clock(), len(flight.rows)
        seconds = now - max(flight.started, self._landed)
        self._landed = now
        self._record(num_rows, flight.count, seconds)
        sampled: Sampled = {}
        for number, request in enumerate(flight.rows):
            assert isinstance(request, SamplingRequest)
            sampled[request] = [step[number] for step in outputs]
            if flight.count == 1:
                request.verify_draft((), sampled[request], num_rows, seconds)
        return sampled, seconds

    def _usual_steps(self, parts: Sequence[ScheduledTokens]) -> int:
        """Return how many tokens to compute for each request in one submit, as far as they may."""
        usual = self._policy.steps_per_submit(len(parts))
        requested = [
            part.request.params.tokens_per_submit for part in parts if isinstance(part.request, SamplingRequest)
        ]
        return min(count or usual for count in requested)

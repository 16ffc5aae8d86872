"""Requests to the engine: generate tokens, compute logits, or fill the cache. And the sequences they work on."""

from __future__ import annotations

import enum
import math
import threading
import weakref
from collections.abc import Collection, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ...errors import Error, InputError
from ...fusion.llm_rewrites import MAX_LOGIT_ADJUSTMENTS
from ...progress import CancelToken
from ..sampling import LogitsProcessor, RowSamplingParams, SampledToken, logits_error
from ..settings import SamplingParams
from .embeddings import AxisOffsets, EncoderInputs, image_ends, is_token, whole_inputs
from .kv_slots import Slot, common_prefix
from .output import Admitted, Finished, FinishReason, Output, OutputProcessor, OutputQueue, OutputSink, Piece, Prefilled
from .reasoning import SplitText
from .speculation import DecodeState

NO_INPUTS: EncoderInputs = MappingProxyType({})
MAX_UNREAD_OUTPUTS = 32  # after which a request is paused, if no other request waits for a slot


class RequestStatus(enum.Enum):
    WAITING = "waiting"  # in the queue for a slot
    RUNNING = "running"  # has a slot
    PREEMPTED = "preempted"  # has lost its cache, and is first in the queue
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in (RequestStatus.FINISHED, RequestStatus.CANCELLED, RequestStatus.FAILED)


class SequenceState:
    """The tokens of a conversation, its slot while it has one, and the request that may extend it."""

    slot: Slot | None = None  # set by KvSlots

    def __init__(
        self, tokens: Sequence[int] = (), encoder_inputs: EncoderInputs = NO_INPUTS, *, keeps_slot: bool = True
    ) -> None:
        self.encoder_inputs = encoder_inputs  # of the rows of embeddings among the tokens
        self.adapter = 0  # of the latest request
        self.keeps_slot = keeps_slot  # from one request to the next
        self._tokens = list(tokens)  # those that a reader has seen, without the last that was sampled
        self._owner: weakref.ref[Request] | None = None
        self._lock = threading.Lock()  # never held during a call

    @property
    def tokens(self) -> tuple[int, ...]:
        with self._lock:
            return tuple(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def claim(self, request: Request) -> None:
        """Make `request` the only one that may extend the sequence. Tokens that differ from its prompt are dropped."""
        with self._lock:
            self._owner = weakref.ref(request)
            self.encoder_inputs, self.adapter = request.encoder_inputs, request.adapter
            same = common_prefix(self._tokens, request.reusable_tokens)
            del self._tokens[whole_inputs(self._tokens, same) :]

    def is_owned_by(self, request: Request) -> bool:
        return self._owner is not None and self._owner() is request

    def assign(self, tokens: Sequence[int]) -> None:
        """Replace the tokens; a request that was extending the sequence may not continue."""
        with self._lock:
            self._owner = None
            self._tokens[:] = tokens

    def disown(self) -> None:
        with self._lock:
            self._owner = None

    def note_prefilled(self, request: Request, count: int) -> None:
        """Record that the first `count` tokens of the request's prompt are computed."""
        with self._lock:
            if self.is_owned_by(request) and len(self._tokens) < request.num_prompt_tokens:
                self._tokens += request.tokens[len(self._tokens) : min(count, request.num_prompt_tokens)]

    def note_read(self, request: Request, token: int) -> None:
        """Record that the reader has gone past a sampled token."""
        with self._lock:
            if self.is_owned_by(request):
                self._tokens.append(token)


class Request:
    """Tokens of a sequence that are to be computed.

    The engine alone changes it. Other threads read it, call `abort`, and take from its sink.
    """

    def __init__(
        self,
        sequence: SequenceState,
        prompt: Sequence[int],
        *,
        encoder_inputs: EncoderInputs | None = None,
        adapter: int | None = None,
        domain: str = "",
        cancel: CancelToken | None = None,
        sink: OutputSink | None = None,
    ) -> None:
        """Create a request for a prompt of tokens and rows of embeddings. The adapter is that of the sequence if it is
        None, and so are the embeddings. Only requests of one domain share cached prefixes.
        """
        self.sequence = sequence
        self.tokens = list(prompt)  # and those that were generated
        self.encoder_inputs = sequence.encoder_inputs if encoder_inputs is None else encoder_inputs
        self.adapter = sequence.adapter if adapter is None else adapter  # its number, 0 for none
        self.prefix_key = (self.adapter, domain)
        self.num_prompt_tokens = len(self.tokens)
        grids = any(each.columns for each in self.encoder_inputs.values())
        self.axis_offsets = AxisOffsets(self.tokens, self.encoder_inputs) if grids else None
        self.image_ends = image_ends(self.tokens, self.encoder_inputs) if self.encoder_inputs else []
        self.sink = sink if sink is not None else OutputQueue()
        self.arrival = 0  # number in the order of arrival
        self.status = RequestStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.error: BaseException | None = None
        self.num_cached_tokens: int | None = None  # of the prompt, in the prefix cache; None before it has a slot
        self.reports_prefill = False  # after each step until the first token
        self.prefill_seconds = 0.0  # of the steps up to the first token
        self.decode_seconds = 0.0  # of the steps after it
        self._cancel = cancel or CancelToken()
        self._aborted = False
        self._outputs: list[Output] = []  # of the current step

    # -- for any thread ----------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Ask for the end. The engine cancels the request before its next step."""
        self._aborted = True

    @property
    def is_abandoned(self) -> bool:
        """Return whether the rest is unused."""
        return self._aborted or self._cancel.cancelled or not self.sequence.is_owned_by(self)

    @property
    def finished(self) -> bool:
        return self.status.is_final

    @property
    def backpressured(self) -> bool:
        """Return whether the reader has many unread tokens."""
        return len(self.sink) >= MAX_UNREAD_OUTPUTS

    # -- for the engine ------------------------------------------------------------------------------------------------

    @property
    def num_computed(self) -> int:
        """Return the number of tokens in the cache: the position of the next one."""
        slot = self.sequence.slot
        return len(slot.tokens) if slot is not None else 0

    @property
    def reusable_tokens(self) -> list[int]:
        """Return the tokens that are not computed if they are cached."""
        return self.tokens

    @property
    def has_output(self) -> bool:
        """Return whether a token came after the prompt: later steps are decode steps."""
        return False

    def num_logits_before(self, end: int) -> int:
        """Return the number of tokens before a position whose logits are requested."""
        return 0

    def admit(self, num_cached: int) -> None:
        self.status = RequestStatus.RUNNING
        if self.num_cached_tokens is None:
            self.num_cached_tokens = num_cached
            self._outputs.append(Admitted(num_cached))

    def preempt(self) -> None:
        self.status = RequestStatus.PREEMPTED

    def note_prefilled(self, count: int) -> None:
        """Record that the first `count` tokens are computed, by a step before the first token."""
        if self.reports_prefill:
            self._outputs.append(Prefilled(min(count, self.num_prompt_tokens)))

    def prefilled(self) -> None:
        """Finish the request: all tokens are computed, and none is sampled."""
        self.finish("length")

    def finish(self, reason: FinishReason, stop_string: str | None = None) -> None:
        if not self.finished:
            self.status = RequestStatus.CANCELLED if reason == "cancelled" else RequestStatus.FINISHED
            self.finish_reason = reason
            self._outputs.append(Finished(reason, stop_string=stop_string))

    def fail(self, error: BaseException) -> None:
        if not self.finished:
            self.status, self.finish_reason, self.error = RequestStatus.FAILED, "cancelled", error
            self._outputs.append(Finished("cancelled", error))

    def flush(self) -> None:
        """Hand over the outputs of a step."""
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            self.sink.put(outputs)


class PrefillRequest(Request):
    """Fills the cache with the tokens of a sequence."""


class LogitsRequest(Request):
    """Computes the logits after each of the last `count` tokens."""

    def __init__(self, sequence: SequenceState, prompt: Sequence[int], count: int) -> None:
        super().__init__(sequence, prompt)
        self._count = count
        self.logits: np.ndarray[Any, Any] | None = None  # (count, V)

    @property
    def reusable_tokens(self) -> list[int]:
        return self.tokens[: len(self.tokens) - self._count]

    def num_logits_before(self, end: int) -> int:
        return max(0, end - (len(self.tokens) - self._count))

    def keep_logits(self, end: int, logits: np.ndarray[Any, Any]) -> None:
        """Keep logits (N, V) after the last N tokens before a position. Those computed again replace the first."""
        if self.logits is None:
            self.logits = np.empty((self._count, logits.shape[1]), logits.dtype)
        last = self.num_logits_before(end)
        self.logits[last - len(logits) : last] = logits


class DecodeInput(NamedTuple):
    """The last token with drafts after it, and how the token after each is sampled."""

    tokens: list[int]
    sampling: list[RowSamplingParams]


class SamplingRequest(Request):
    """Generates tokens after a prompt until a stop token, a stop string or a limit."""

    def __init__(
        self,
        sequence: SequenceState,
        prompt: Sequence[int],
        params: SamplingParams,
        output: OutputProcessor,
        *,
        stop_tokens: Collection[int] = (),
        capacity: int,
        max_logit_adjustments: int = MAX_LOGIT_ADJUSTMENTS,
        decode_state: DecodeState | None = None,
        encoder_inputs: EncoderInputs | None = None,
        adapter: int | None = None,
        domain: str = "",
        cancel: CancelToken | None = None,
        sink: OutputSink | None = None,
        generated: Sequence[int] = (),
    ) -> None:
        """Create a request that continues after `generated`: answer tokens that another process has delivered."""
        super().__init__(
            sequence, prompt, encoder_inputs=encoder_inputs, adapter=adapter, domain=domain, cancel=cancel, sink=sink
        )
        self.params = params
        self._output = output
        self._stop_tokens = stop_tokens
        self._capacity = capacity  # of the cache, which need not hold the last token
        self._logits_processor = LogitsProcessor(params, filter(is_token, prompt), max_logit_adjustments)
        self._decode_state = decode_state
        self.initial_tokens = tuple(generated)
        self.initial_text = self.initial_reasoning = ""
        self.initial_reasoning_tokens = 0
        for token in generated:
            self._resume(token, len(generated))
        self._append_forced()
        self._num_unsampled = self.num_generated

    def _resume(self, token: int, total: int) -> None:
        output = self._append(token)
        ended = "stop string" if self._output.stopped else self._finish_reason(token)
        if ended is not None:
            raise InputError(
                f"generated: expected an incomplete answer, got {total} tokens that end ({ended}) at token "
                f"{self.num_generated}",
                code="already_ended",
            )
        self.initial_text += output.text
        self.initial_reasoning += output.reasoning
        if output.kind == "reasoning":
            self.initial_reasoning_tokens = self.num_generated

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def reusable_tokens(self) -> list[int]:
        return self.tokens[:-1]  # the logits after the last one are needed

    def is_decoding(self, max_tokens: int) -> bool:
        """Return whether at most `max_tokens` tokens are left, all after the prompt. Otherwise they are prefilled."""
        uncached = len(self.tokens) - self.num_computed
        return (uncached == 1 and is_token(self.tokens[-1])) or (
            uncached <= max_tokens and self.num_computed >= self.num_prompt_tokens
        )

    @property
    def has_output(self) -> bool:
        return self.num_generated > self._num_unsampled

    @property
    def max_unread_tokens(self) -> int:
        """Return how many tokens the device may compute before the host reads them."""
        guided = self._decode_state is not None and self._decode_state.guided
        static = 1 if guided else self._logits_processor.num_static
        return self.max_steps if static is None else min(static, self.max_steps)

    @property
    def max_steps(self) -> int:
        """Return the number of tokens that still fit into the answer, into the cache and into the thought."""
        steps = min(self.params.max_new_tokens - self.num_generated, self._capacity - len(self.tokens) + 1)
        splitter = self._output.splitter
        thought = splitter.max_tokens if splitter is not None else None
        return steps if thought is None else min(steps, thought)

    def has_drafts(self, num_tokens: int, max_drafts: int) -> bool:
        """Return whether a step of `num_tokens` tokens would verify drafts after the last token."""
        state, limit = self._decode_state, min(max_drafts, self.max_steps - 1)
        return state is not None and bool(state.draft(num_tokens, limit).tokens)

    def decode_input(self, num_tokens: int, max_drafts: int) -> DecodeInput | None:
        """Return the last token and drafts for a step of `num_tokens` tokens; None if the constraint fails."""
        if self._decode_state is None:
            return DecodeInput(self.tokens[-1:], [self._logits_processor.params(self.num_generated)])
        try:
            drafts, masks = self._decode_state.draft(num_tokens, min(max_drafts, self.max_steps - 1))
            sampling = self._logits_processor.draft_params(self.num_generated, drafts, masks)
        except Error as error:
            self.fail(error)
            return None
        return DecodeInput([self.tokens[-1], *drafts], sampling)

    def verify_draft(
        self, drafts: Sequence[int], sampled: Sequence[SampledToken], num_tokens: int, seconds: float
    ) -> list[SampledToken]:
        """Return the sampled tokens up to the first that differs from its draft, that one included."""
        accepted = 0
        while accepted < len(drafts) and sampled[accepted].token == drafts[accepted]:
            accepted += 1
        if self._decode_state is not None:
            self._decode_state.verified(num_tokens, len(drafts), accepted, seconds)
        return list(sampled[: accepted + 1])

    def recompute(self, num_tokens: int, count: int) -> None:
        """Record that `count` tokens are computed again beside `num_tokens`, because the state has gone too far."""
        if self._decode_state is not None:
            self._decode_state.recompute(num_tokens, count)

    def append_tokens(self, sampled: Sequence[SampledToken]) -> None:
        """Extend the answer. Tokens after its end, or after one that is not finite, are ignored."""
        for number, token in enumerate(sampled):
            if token.token < 0:
                if number == 0:  # otherwise the next step samples it again, first
                    self.fail(logits_error(token.token, len(self.tokens) - 1))
                return
            if self._ends_thought(token.token):
                break
            self._deliver(token)
            if self.finished:
                return
        if sampled:
            self._append_forced()

    def _ends_thought(self, token: int) -> bool:
        """Return whether a token would end the response before a constrained answer. The thought ends instead."""
        splitter = self._output.splitter
        if splitter is None or splitter.state != "thought" or self.params.constraint is None:
            return False
        if token not in self._stop_tokens:
            return False
        splitter.close()
        return True

    def _append_forced(self) -> None:
        """Append tokens without an alternative. Of a constraint, only if their probabilities are not requested."""
        splitter = self._output.splitter
        while splitter is not None and splitter.due is not None and not self.finished:
            self._deliver(SampledToken(splitter.due, math.nan))
        forced: tuple[int, ...] = ()
        try:
            if self._decode_state is not None and not self.params.logprobs and not self.params.top_logprobs:
                forced = self._decode_state.forced()
        except Error as error:
            self.fail(error)
        for token in forced:
            if not self.finished:
                self._deliver(SampledToken(token, math.nan))

    def _deliver(self, sampled: SampledToken) -> None:
        token, params = sampled.token, self.params
        try:
            output = self._append(token)
            reason = self._finish_reason(token)
            if reason is not None:
                output = self._output.flush(output, silent=token in self._stop_tokens)
        except Error as error:
            self.fail(error)
            return
        logprob = sampled.logprob if params.logprobs and not math.isnan(sampled.logprob) else None
        top = sampled.top_logprobs[: params.top_logprobs]
        self._outputs.append(Piece(output.text, token, logprob, top, output.reasoning, output.kind))
        if self._output.stopped:
            reason = "stop"
        if reason is not None:
            self.finish(reason, self._output.stop_string)

    def _append(self, token: int) -> SplitText:
        """Add a token, and return what it completes."""
        output = self._output.push(token, silent=token in self._stop_tokens)
        self.tokens.append(token)
        self._logits_processor.add(token)
        if self._decode_state is not None:
            self._decode_state.append(token, in_answer=output.kind != "reasoning")
        return output

    def _finish_reason(self, token: int) -> FinishReason | None:
        if token in self._stop_tokens or (self._decode_state is not None and self._decode_state.ended):
            return "stop"
        full = self.num_generated >= self.params.max_new_tokens or len(self.tokens) > self._capacity
        return "length" if full else None

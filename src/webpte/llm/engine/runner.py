"""Model runners: run one batch of tokens over the slots, and return the sampled tokens.

`BatchedRunner` runs a program whose graph was rewritten for many sequences. `SingleRunner` and `BundledRunner` have
modules of their own.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...errors import InputError
from ...fusion.batching import (
    AS_STORED,
    LOGITS_INDICES,
    TOKENS,
    CacheDtypes,
    embedding_pool,
    with_sampled_slots,
)
from ...fusion.bidirectional_rows import with_bidirectional_rows
from ...fusion.llm_rewrites import LOGITS, MAX_LOGIT_ADJUSTMENTS, mask_words
from ...fusion.recurrences import state_reach
from ...fusion.rope_axes import with_rope_axes
from ...graph import Graph
from ...progress import OnProgress, ignore
from ...runtime import Extent, Method, MethodSource, Program
from ...typing import Array
from ..metadata import context, vocabulary
from ..sampling import RowSamplingParams, SampledToken, pack, sampler_outputs, unpack
from .decode_steps import DecodeSteps, StepInputs, start_steps
from .encoder import FORWARD, EncoderPart, LanguageMethods
from .kv_slots import CacheWindow

MAX_EXACT_TOKENS = 8  # up to which every number of tokens in a step has a schedule of its own
TOKENS_STEP = 4  # between numbers of tokens beyond it, where prompts are computed


class BatchToken(NamedTuple):
    """A token at a position of a slot's cache."""

    token: int  # below 0: a row of embeddings that was encoded, -1 the first of the first block
    slot: int
    position: int
    adapter: int = 0  # its number, 0 for none
    # Added to the position for the rotation, by axis: see `axis_offsets`.
    time_offset: int = 0
    row_offset: int = 0
    column_offset: int = 0
    later: int = 0  # tokens of the slot after it that it sees, all of the same step


class SampleRow(NamedTuple):
    """A token of the batch, by its number, after which one is sampled, and how."""

    row: int
    params: RowSamplingParams


IDLE = BatchToken(0, -1, 0)  # a negative slot: nothing is written
NO_SAMPLE = SampleRow(0, RowSamplingParams())  # a step computes the logits of at least one token


class ModelRunner(Protocol):
    """A language model's caches as slots, and steps over them.

    A step writes at the positions of its tokens. Nothing before the first of them changes in a slot.
    """

    @property
    def method(self) -> Method:
        """Return the method that runs on the device."""

    @property
    def num_slots(self) -> int:
        """Return the number of slots that exist now."""

    @property
    def max_slots(self) -> int:
        """Return the maximum number of slots: 1 if the program cannot be batched."""

    @property
    def batching_unsupported_reason(self) -> str | None: ...

    @property
    def capacity(self) -> int:
        """Return the maximum tokens of a slot."""

    @property
    def cache_window(self) -> CacheWindow | None:
        """Return how far back a cache reaches; None if it keeps every position."""

    @property
    def max_batch_tokens(self) -> int:
        """Return the maximum tokens of one step."""

    @property
    def max_samples(self) -> int:
        """Return the maximum tokens that one step samples."""

    @property
    def max_draft_tokens(self) -> int:
        """Return the maximum draft tokens of a slot in one step; 0 if each would be a separate step."""

    @property
    def max_logit_adjustments(self) -> int:
        """Return the maximum tokens of a row whose logits can be changed before sampling."""

    @property
    def embedding_blocks(self) -> int:
        """Return how many encoder outputs the device holds; 0 without an encoder."""

    @property
    def embedding_rows(self) -> int:
        """Return the most rows of one encoder output."""

    @property
    def recoveries(self) -> int:
        """Return how often the caches were lost with a device. A change means that every slot is empty."""

    def encode(self, arguments: tuple[Any, ...], block: int) -> None:
        """Run the encoder, and keep its output on the device as a block of embeddings."""

    def run(self, tokens: Sequence[BatchToken], samples: Sequence[SampleRow]) -> list[SampledToken]:
        """Run one step. Tokens of a slot are adjacent, at ascending positions."""

    def start_steps(self, tokens: Sequence[BatchToken], samples: Sequence[SampleRow], count: int) -> DecodeSteps:
        """Start `count` steps in one submit. One token per slot, all sampled.

        Sampled tokens are fed to the next step on the device; positions and steps advance by one. There are no masks,
        and logit adjustments stay those of the first step.
        """

    def logits(self, tokens: Sequence[BatchToken], count: int = 1) -> np.ndarray[Any, Any]:
        """Run tokens of one slot; return the logits after the last `count` of them, (count, V)."""

    def warm_up(self, num_tokens: int, num_samples: int, constrained: bool) -> None:
        """Run a step that writes to no slot; to the slot itself, if there can be only one.

        As many samples as tokens: tokens of that many slots. One sample: tokens of a prompt.
        """

    @property
    def num_checkpoints(self) -> int:
        """Return how many copies of states there is room for; 0 if the cache keeps every position."""

    def save(self, slot: int, checkpoint: int) -> None:
        """Copy the state of a slot, without its caches."""

    def restore(self, slot: int, checkpoint: int) -> None:
        """Replace the state of a slot by a copy."""

    def copy(self, source: int, target: int, count: int, checkpoint: int | None = None) -> None:
        """Copy the cache of the first `count` tokens of a slot into another, and its state or a copy of that."""

    def grow(self, num_slots: int) -> None:
        """Make more slots. The contents of the others stay."""

    def sizes(self, count: int) -> list[int]:
        """Return the bytes of each piece that `read` returns."""

    def read(self, slot: int, count: int) -> list[memoryview]:
        """Return the cache of the first `count` tokens."""

    def write(self, slot: int, count: int, pieces: Sequence[memoryview]) -> None:
        """Replace the cache by what `read` returned."""


class SlotPool(EncoderPart, ABC):
    """A method whose slots follow each other in every buffer of its state."""

    batching_unsupported_reason = None
    capacity: int
    rope_axes = False  # the method takes three positions of each row
    bidirectional = False  # it takes how many later rows each row sees

    def __init__(self, program: MethodSource, max_slots: int, progress: OnProgress) -> None:
        self.program = program
        self.max_slots = max_slots
        self.num_slots = 1
        self.method = self.make(self.num_slots, progress)
        reach = self.state_reach()
        self.cache_window = None if reach is None else CacheWindow(*reach)
        rows = [buffer.rows for buffer in self._buffers() if not buffer.position]
        self.num_checkpoints = rows[0] - self.num_slots if rows else 0
        self._recoveries = 0  # of methods that were replaced

    @abstractmethod
    def make(self, num_slots: int, progress: OnProgress) -> Method:
        """Return the method with this number of slots."""

    @abstractmethod
    def state_reach(self) -> tuple[int, int] | None:
        """Return how many positions before a token are needed, and how many are held; None if all are."""

    def available_slots(self, count: int) -> int:
        """Return the number of slots to make if `count` are needed."""
        return count

    @property
    def recoveries(self) -> int:
        return self._recoveries + self.method.recoveries

    def check_positions(self, tokens: Sequence[BatchToken], steps: int = 1) -> None:
        """Refuse tokens outside their slot, now or after further steps."""
        places = np.array(tokens, np.int64)[:, 1:3]  # (R, 2)
        if (places < 0).any() or (places >= (self.num_slots, self.capacity - steps + 1)).any():
            raise InputError(
                f"batch: expected positions in {self.num_slots} slots of {self.capacity} tokens, got {places.tolist()}"
            )

    def max_steps(self, tokens: Sequence[BatchToken]) -> int:
        """Return the number of steps that fit into the slots of these tokens."""
        return self.capacity - max(token.position for token in tokens)

    def copy(self, source: int, target: int, count: int, checkpoint: int | None = None) -> None:
        saved = self._state_row(source) if checkpoint is None else checkpoint
        self._copy([*self._cache_extents(source, target, count), *self._state_extents(saved, self._state_row(target))])

    def save(self, slot: int, checkpoint: int) -> None:
        self._copy(self._state_extents(self._state_row(slot), checkpoint))

    def restore(self, slot: int, checkpoint: int) -> None:
        self._copy(self._state_extents(checkpoint, self._state_row(slot)))

    def inputs(self, table: Array, num_decode: int, picked: Array, packed: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the inputs of a step. `table` has the tokens (R, 8)."""
        columns = [1, 2, 7, 7] if self.bidirectional else [1, 2]  # the fourth has no effect
        inputs = (table[None, :, 0], table[:, columns].astype(np.int32), num_decode, picked, 0, *packed)
        if not self.rope_axes:
            return inputs
        return (*inputs, (table[:, 2:3] + table[:, 4:7]).astype(np.int32))

    def _copy(self, extents: Iterable[Extent]) -> None:
        with self.method.exclusive() as state:
            state.copy_extents(state, list(extents))

    def _state_row(self, slot: int) -> int:
        return self.num_checkpoints + slot

    def grow(self, num_slots: int) -> None:
        """Allocate more slots. The old state becomes the beginning of the new one."""
        old, num_slots = self.method, self.available_slots(num_slots)
        new = self.make(num_slots, ignore)
        sizes = (buffer.nbytes for buffer in old.plan.buffers if buffer.kind == "state")
        extents = [Extent(number, 0, 0, nbytes) for number, nbytes in enumerate(sizes)]
        with old.exclusive() as old_state, new.exclusive() as new_state:
            new_state.copy_extents(old_state, extents)
        self._recoveries += old.recoveries - new.recoveries
        self.method, self.num_slots = new, num_slots
        old.close()

    def sizes(self, count: int) -> list[int]:
        return [extent.nbytes for extent in self._extents(0, count)]

    def read(self, slot: int, count: int) -> list[memoryview]:
        with self.method.exclusive() as state:
            return state.read_extents(self._extents(slot, count))

    def write(self, slot: int, count: int, pieces: Sequence[memoryview]) -> None:
        with self.method.exclusive() as state:
            state.write_extents(self._extents(slot, count), pieces)

    def _extents(self, slot: int, count: int) -> list[Extent]:
        """Return the first `count` rows of a slot in every cache, and its other states."""
        return [
            *self._cache_extents(slot, slot, count),
            *self._state_extents(self._state_row(slot), self._state_row(slot)),
        ]

    def _cache_extents(self, source: int, target: int, count: int) -> list[Extent]:
        return [
            Extent(buffer.place, source * buffer.row, target * buffer.row, count * buffer.position)
            for buffer in self._buffers()
            if buffer.position
        ]

    def _state_extents(self, source: int, target: int) -> list[Extent]:
        """Return rows of the other states: those of the checkpoints come first, those of the slots follow."""
        return [
            Extent(buffer.place, source * buffer.row, target * buffer.row, buffer.row)
            for buffer in self._buffers()
            if not buffer.position
        ]

    def _buffers(self) -> Iterator[_StateBuffer]:
        plan = self.method.plan
        state = plan.flow.state - {self.pool()}
        caches = {plan.buffer_of[value_id]: value_id for value_id in state if value_id in plan.buffer_of}
        states = (number for number, buffer in enumerate(plan.buffers) if buffer.kind == "state")
        for place, number in enumerate(states):
            if number in caches:
                rows, positions, *width = plan.graph.tensor(caches[number]).dims
                row = plan.stored_bytes(caches[number]) // rows
                yield _StateBuffer(place, rows, row, row // positions if len(width) == 2 else 0)


class _StateBuffer(NamedTuple):
    place: int  # among the buffers of the state
    rows: int
    row: int  # bytes of a slot
    position: int  # bytes of a position of a cache, (slots, C, H, D); 0 for another state, (rows, M, N)


class BatchedRunner(SlotPool):
    """Runs tokens of any slots side by side. Raises UnsupportedError for a program that cannot be rewritten."""

    def __init__(
        self,
        program: Program,
        max_slots: int,
        caches: CacheDtypes = AS_STORED,
        progress: OnProgress = ignore,
        model: LanguageMethods = FORWARD,
    ) -> None:
        self._caches, self._model = caches, model
        self.rope_axes, self.bidirectional = model.sections is not None, model.bidirectional
        self.load_encoder(program, model, progress)
        super().__init__(program, max_slots, progress)
        self.capacity = context(program, self.method.plan)
        self.max_batch_tokens = _bound(self.method, TOKENS)[1]
        self.max_samples = _bound(self.method, LOGITS_INDICES)[0]
        self.max_draft_tokens = self.max_samples - 1
        self.max_logit_adjustments = MAX_LOGIT_ADJUSTMENTS

    def make(self, num_slots: int, progress: OnProgress) -> Method:
        def rewrite(graph: Graph) -> Graph:
            return self.rewritten(self._model.joined(graph, self.pool_rows), num_slots)

        return self.program.method(self._model.name, rewrite, progress, lazy=True)

    def rewritten(self, graph: Graph, num_slots: int) -> Graph:
        rows = self.pool_rows if embedding_pool(graph) is None else 0
        slotted = with_sampled_slots(graph, num_slots, self._caches, rows)
        if self.bidirectional:
            slotted = with_bidirectional_rows(slotted)
        return slotted if self._model.sections is None else with_rope_axes(slotted, self._model.sections)

    def state_reach(self) -> tuple[int, int] | None:
        return state_reach(self.method.plan.graph)

    def run(self, tokens: Sequence[BatchToken], samples: Sequence[SampleRow]) -> list[SampledToken]:
        if not samples:
            self.method.run(self._arguments(tokens, (NO_SAMPLE,)), outputs=())
            return []
        params_by_row = [sample.params for sample in samples]
        return unpack(self.method.run(self._arguments(tokens, samples), outputs=sampler_outputs(params_by_row)))

    def start_steps(self, tokens: Sequence[BatchToken], samples: Sequence[SampleRow], count: int) -> DecodeSteps:
        check_all_sampled(tokens, samples)
        numbers, places, num_decode, picked, _, *packed = self._arguments(tokens, samples, count)
        return start_steps(
            self.method,
            StepInputs(
                lambda advance: (numbers, places, num_decode, picked, advance, *packed),
                [sample.params for sample in samples],
                len(tokens),
                self.max_steps(tokens),
            ),
            count,
        )

    def _arguments(self, tokens: Sequence[BatchToken], samples: Sequence[SampleRow], steps: int = 1) -> tuple[Any, ...]:
        if len(tokens) > self.max_batch_tokens or len(samples) > self.max_samples:
            raise InputError(
                f"batch: expected at most {self.max_batch_tokens} tokens and {self.max_samples} samples, got "
                f"{len(tokens)} and {len(samples)}"
            )
        self.check_positions(tokens, steps)
        table = np.array(tokens, np.int64)  # (R, 8)
        num_decode = _num_decode(tokens)
        if idle := self._num_idle(len(tokens), num_decode):
            table = np.concatenate([table, np.tile(IDLE, (idle, 1))])
        picked = np.array([sample.row for sample in samples], np.int32)
        return self.inputs(table, num_decode, picked, pack([sample.params for sample in samples]))

    def warm_up(self, num_tokens: int, num_samples: int, constrained: bool) -> None:
        table = np.tile(IDLE, (num_tokens, 1))
        num_decode = num_tokens if num_samples == num_tokens else 0
        params_by_row = [warm_up_params(self.method, constrained)] * num_samples
        picked = np.arange(num_samples, dtype=np.int32)
        # A GPU may attend in another way to a token far from the beginning.
        for position in (0, self.capacity - 1) if num_decode else (0,):
            table[:, 2] = position
            arguments = self.inputs(table, num_decode, picked, pack(params_by_row))
            self.method.run(arguments, outputs=sampler_outputs(params_by_row))

    def _num_idle(self, num_tokens: int, num_decode: int) -> int:
        """Return the padding of a prompt's step: few sizes, because the first step of each takes longer."""
        fitting = min(-num_tokens % TOKENS_STEP, self.max_batch_tokens - num_tokens)
        return fitting if num_decode < num_tokens and num_tokens > MAX_EXACT_TOKENS else 0

    def logits(self, tokens: Sequence[BatchToken], count: int = 1) -> np.ndarray[Any, Any]:
        pieces, start = [], 0
        for first in range(len(tokens) - count, len(tokens), self.max_samples):
            end = min(first + self.max_samples, len(tokens))
            samples = [NO_SAMPLE._replace(row=row - start) for row in range(first, end)]
            (piece,) = self.method.run(self._arguments(tokens[start:end], samples), outputs=(LOGITS,))  # (P, V)
            pieces.append(np.asarray(piece))
            start = end
        return np.concatenate(pieces)


def warm_up_params(method: Method, constrained: bool) -> RowSamplingParams:
    """Return the sampling of a step of the warm-up: with a mask if `constrained`."""
    return (
        RowSamplingParams(mask=np.full(mask_words(vocabulary(method)), -1, np.int32))
        if constrained
        else RowSamplingParams()
    )


def _num_decode(tokens: Sequence[BatchToken]) -> int:
    """Return how many of the first tokens are the only ones of their slot."""
    pairs = itertools.pairwise(tokens)
    return next((index for index, (token, after) in enumerate(pairs) if token.slot == after.slot), len(tokens))


def check_all_sampled(tokens: Sequence[BatchToken], samples: Sequence[SampleRow]) -> None:
    """Raise InputError unless each token is sampled, in order."""
    if [sample.row for sample in samples] != list(range(len(tokens))):
        raise InputError("samples: expected one for each token, in order, if one submit has several steps")


def _bound(method: Method, number: int) -> tuple[int, ...]:
    bound = method.inputs[number].bound
    assert bound is not None  # with_sampled_slots accepts no other program
    return bound

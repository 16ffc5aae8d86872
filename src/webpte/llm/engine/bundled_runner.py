"""The model runner of a bundle: it runs the batch sizes that were planned for it."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import FormatError
from ...fusion.llm_rewrites import LOGITS, MAX_LOGIT_ADJUSTMENTS, SAMPLING_WORDS, mask_words
from ...progress import OnProgress, ignore
from ...runtime import Bundle, Method
from ...runtime.manifest import VISION_ENCODER, Language
from ...typing import Array
from ..metadata import vocabulary
from ..sampling import RowSamplingParams, SampledToken, pack, sampler_outputs, unpack
from .decode_steps import DecodeSteps, StepInputs, start_steps
from .runner import IDLE, BatchToken, SampleRow, SlotPool, check_all_sampled, warm_up_params

STEP_COST_TOKENS = 8  # what a step of a bundle costs besides its tokens, as a number of tokens


class BundledRunner(SlotPool):
    """Runs a bundle with the schedules that it has: some compute prompts, others sample after each of their tokens,
    which are of different slots then. One step of the engine becomes several of these."""

    max_draft_tokens = 0  # each would be a step of its own

    def __init__(self, bundle: Bundle, language: Language, max_slots: int, progress: OnProgress = ignore) -> None:
        self._bundle = bundle
        self._language = language
        self.rope_axes, self.bidirectional = language.rope_axes, language.bidirectional
        self._slot_counts = sorted(
            {v.cache_slots for v in bundle.manifest.methods["forward"] if v.cache_slots is not None}
        )
        if language.image_processor is not None:
            self.use_encoder(bundle.method(VISION_ENCODER, progress=progress, lazy=True))
        super().__init__(bundle, min(max_slots, self._slot_counts[-1]), progress)
        self._check_encoder()
        self.capacity = language.context_length
        self.max_batch_tokens = language.prefill_rows[-1]
        self.max_samples = language.decode_rows[-1]
        masks = mask_words(vocabulary(self.method))
        spare = [words // rows - len(SAMPLING_WORDS) - masks for rows, words in language.sampling_words.items()]
        self.max_logit_adjustments = min(MAX_LOGIT_ADJUSTMENTS, *(words // 4 for words in spare))

    def make(self, num_slots: int, progress: OnProgress) -> Method:
        return self._bundle.method("forward", progress=progress, slots=num_slots, lazy=True)

    def _check_encoder(self) -> None:
        """Raise FormatError if the outputs of the encoder do not fit the state that holds them."""
        pool = self.pool()
        got = None if pool is None else self.method.plan.graph.tensor(pool).dims
        bounds = [] if self._encoder is None else [output.bound or () for output in self._encoder.outputs]
        expected = (self.pool_rows, bounds[0][-1]) if len(bounds) == 1 and len(bounds[0]) == 3 else None
        if got != expected:
            raise FormatError(
                argument=f"{self._bundle.path}: the state of forward", expected=f"embeddings of {expected}", got=got,
                code="other_export",
            )  # fmt: skip

    def pool(self) -> int | None:
        """Return the state that is a table. A plan has no calls that would show it."""
        plan = self.method.plan
        return next((value for value in plan.flow.state if len(plan.graph.tensor(value).dims) == 2), None)

    def state_reach(self) -> tuple[int, int] | None:
        return self._language.state_reach

    def available_slots(self, count: int) -> int:
        return next(slots for slots in self._slot_counts if slots >= count)

    def run(self, tokens: Sequence[BatchToken], samples: Sequence[SampleRow]) -> list[SampledToken]:
        self.check_positions(tokens)
        params_by_row = {sample.row: sample.params for sample in samples}
        sampled_by_row: dict[int, SampledToken] = {}
        left: dict[int, deque[int]] = {}  # by slot, in their order
        for number, token in enumerate(tokens):
            left.setdefault(token.slot, deque()).append(number)
        while any(left.values()):
            taken = [_taken_until(numbers, params_by_row, tokens) for numbers in left.values()]
            self._prefill([tokens[n] for numbers in taken for n in numbers])
            heads = [numbers.popleft() for numbers in left.values() if numbers]
            for first in range(0, len(heads), self._max_decode):
                piece = heads[first : first + self._max_decode]
                sampled = self._decode([tokens[n] for n in piece], [params_by_row[n] for n in piece])
                sampled_by_row.update(zip(piece, sampled, strict=False))  # those of idle tokens follow
        return [sampled_by_row[sample.row] for sample in samples]

    def start_steps(self, tokens: Sequence[BatchToken], samples: Sequence[SampleRow], count: int) -> DecodeSteps:
        check_all_sampled(tokens, samples)
        self.check_positions(tokens, count)
        params_by_row = [sample.params for sample in samples]
        numbers, places, num_decode, picked, _, *packed = self._decode_arguments(tokens, params_by_row)
        of_step = lambda advance: (numbers, places, num_decode, picked, advance, *packed)  # noqa: E731
        inputs = StepInputs(of_step, params_by_row, len(tokens), self.max_steps(tokens))
        return start_steps(self.method, inputs, count)

    def logits(self, tokens: Sequence[BatchToken], count: int = 1) -> np.ndarray[Any, Any]:
        self.check_positions(tokens)
        self._prefill(tokens[:-count])
        rows = []
        for token in tokens[len(tokens) - count :]:  # a step that samples has one token per slot
            (logits,) = self.method.run(self._decode_arguments([token], [RowSamplingParams()]), outputs=(LOGITS,))
            rows.append(np.asarray(logits)[0])
        return np.stack(rows)  # (count, V)

    def warm_up(self, num_tokens: int, num_samples: int, constrained: bool) -> None:
        if num_samples < num_tokens:
            self._prefill([IDLE] * num_tokens)
        else:
            for first in range(0, num_tokens, self._max_decode):
                count = min(self._max_decode, num_tokens - first)
                self._decode([IDLE] * count, [warm_up_params(self.method, constrained)] * count)

    @property
    def _max_decode(self) -> int:
        """Return the maximum tokens of a step that samples: a method of fewer slots has no schedule for more."""
        return max(rows for rows in self._language.decode_rows if rows <= self.num_slots)

    def _prefill(self, tokens: Sequence[BatchToken]) -> None:
        while tokens:
            count, size = piece(tokens, self._language.prefill_rows)
            table = _table(_padded(tokens[:count], size))
            picked = np.zeros(1, np.int32)  # a step computes the logits of at least one token
            self.method.run(self.inputs(table, 0, picked, pack([RowSamplingParams()])), outputs=())
            tokens = tokens[count:]

    def _decode(self, tokens: Sequence[BatchToken], params_by_row: Sequence[RowSamplingParams]) -> list[SampledToken]:
        return unpack(
            self.method.run(self._decode_arguments(tokens, params_by_row), outputs=sampler_outputs(params_by_row))
        )

    def _decode_arguments(
        self, tokens: Sequence[BatchToken], params_by_row: Sequence[RowSamplingParams]
    ) -> tuple[Any, ...]:
        size = next(size for size in self._language.decode_rows if size >= len(tokens))
        packed = pack(
            [*params_by_row, *[RowSamplingParams()] * (size - len(tokens))], self._language.sampling_words[size]
        )
        return self.inputs(_table(_padded(tokens, size)), size, np.arange(size, dtype=np.int32), packed)


def _taken_until(numbers: deque[int], sampled: Iterable[int], tokens: Sequence[BatchToken]) -> list[int]:
    """Take the numbers before the first that is sampled. Return that one as well if tokens before it see it."""
    taken = []
    while numbers and numbers[0] not in sampled:
        taken.append(numbers.popleft())
    return [*taken, numbers[0]] if taken and numbers and tokens[taken[-1]].later else taken


def _padded(tokens: Sequence[BatchToken], size: int) -> list[BatchToken]:
    return [*tokens, *[IDLE] * (size - len(tokens))]


def _table(tokens: Sequence[BatchToken]) -> Array:
    return np.array(tokens, np.int64)  # (R, 8)


def piece(tokens: Sequence[BatchToken], sizes: tuple[int, ...]) -> tuple[int, int]:
    """Return how many of the first tokens one step computes, and its size. Tokens that see each other are in one."""
    size = split(len(tokens), sizes)[0]
    count = min(size, len(tokens))
    while count and tokens[count - 1].later:
        count -= 1
    count = count or 1 + tokens[0].later
    return count, next(each for each in sizes if each >= count)


@functools.cache
def split(count: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of steps that compute `count` tokens at the least cost; the last has idle tokens."""
    largest = sizes[-1]
    whole = max(0, count // largest - 1)  # so that few numbers are looked at
    best: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for rest in range(1, count - whole * largest + 1):
        options = [(size + STEP_COST_TOKENS + best[max(0, rest - size)][0], size) for size in reversed(sizes)]
        cost, size = min(options, key=lambda option: option[0])
        best.append((cost, (size, *best[max(0, rest - size)][1])))
    return (*[largest] * whole, *best[-1][1])

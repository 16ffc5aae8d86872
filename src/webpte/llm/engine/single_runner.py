"""The model runner of a program that allows no more than one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...fusion.batching import embedding_pool
from ...fusion.llm_rewrites import LOGITS, MAX_LOGIT_ADJUSTMENTS
from ...runtime import Method
from ..sampling import RowSamplingParams, SampledToken, pack, sampler_outputs, unpack
from .decode_steps import DecodeSteps, StepInputs, start_steps
from .encoder import EncoderPart
from .kv_slots import CacheWindow
from .runner import BatchToken, SampleRow, warm_up_params


class SingleRunner(EncoderPart):
    """A program for one sequence: one slot, whose cache is the method's state. Sequences take turns."""

    num_slots = 1
    max_slots = 1
    num_checkpoints = 0
    max_samples = 1
    max_draft_tokens = 0
    max_logit_adjustments = MAX_LOGIT_ADJUSTMENTS

    def __init__(
        self,
        method: Method,
        capacity: int,
        cache_window: CacheWindow | None = None,
        batching_unsupported_reason: str | None = None,
        encoder: EncoderPart | None = None,
    ) -> None:
        self.method = method
        if encoder is not None:
            self.share_encoder(encoder)
        self.capacity = capacity
        self.cache_window = cache_window
        self.batching_unsupported_reason = batching_unsupported_reason
        self.max_batch_tokens = method.inputs[0].bound[1] if method.inputs[0].bound else 1
        self._takes_all_positions = method.inputs[1].bound != (1,)  # not only that of the first token

    @property
    def recoveries(self) -> int:
        return self.method.recoveries

    def run(self, tokens: Sequence[BatchToken], samples: Sequence[SampleRow]) -> list[SampledToken]:
        self._begin(tokens)
        sampled, start = [], 0
        for row, params in samples:  # the sampler works on the last token of a call
            piece = tokens[start : row + 1]
            sampled += unpack(self.method.run(self._arguments(piece, params), outputs=sampler_outputs([params])))
            start = row + 1
        if start < len(tokens):
            self.method.run(self._arguments(tokens[start:], RowSamplingParams()), outputs=())
        return sampled

    def start_steps(self, tokens: Sequence[BatchToken], samples: Sequence[SampleRow], count: int) -> DecodeSteps:
        self._begin(tokens)
        params, max_steps = samples[0].params, self.capacity - tokens[0].position
        of_step = lambda advance: self._arguments(tokens, params, advance)  # noqa: E731
        return start_steps(self.method, StepInputs(of_step, [params], 1, max_steps), count)

    def logits(self, tokens: Sequence[BatchToken], count: int = 1) -> np.ndarray[Any, Any]:
        self._begin(tokens)
        rows, start = [], 0
        for last in range(len(tokens) - count, len(tokens)):  # a call returns those after its last token
            (logits,) = self.method.run(
                self._arguments(tokens[start : last + 1], RowSamplingParams()), outputs=(LOGITS,)
            )
            rows.append(np.asarray(logits).reshape(-1))
            start = last + 1
        return np.stack(rows)  # (count, V)

    def _begin(self, tokens: Sequence[BatchToken]) -> None:
        """Reset a state without positions before a new text: it would still be that of another text."""
        if self.cache_window is not None and tokens[0].position == 0:
            with self.method.exclusive() as state:
                state.reset(embedding_pool(self.method.plan.graph))

    def _arguments(self, tokens: Sequence[BatchToken], params: RowSamplingParams, advance: int = 0) -> tuple[Any, ...]:
        numbers = np.array([[token.token for token in tokens]], np.int64)
        first = tokens[0].position + advance
        positions = np.arange(first, first + (len(tokens) if self._takes_all_positions else 1), dtype=np.int64)
        return (numbers, positions, advance, *pack([params]))

    def warm_up(self, num_tokens: int, num_samples: int, constrained: bool) -> None:
        tokens = [BatchToken(0, 0, position) for position in range(num_tokens)]
        params = warm_up_params(self.method, constrained)
        self.method.run(self._arguments(tokens, params), outputs=sampler_outputs([params]))
        self.method.reset()

    def save(self, slot: int, checkpoint: int) -> None:
        raise AssertionError("there are no checkpoints")

    def restore(self, slot: int, checkpoint: int) -> None:
        raise AssertionError("there are no checkpoints")

    def copy(self, source: int, target: int, count: int, checkpoint: int | None = None) -> None:
        raise AssertionError("there is one slot")

    def grow(self, num_slots: int) -> None:
        raise AssertionError("there is one slot")

    def sizes(self, count: int) -> list[int]:
        with self.method.exclusive() as state:
            return state.sizes()

    def read(self, slot: int, count: int) -> list[memoryview]:
        with self.method.exclusive() as state:
            return state.read()

    def write(self, slot: int, count: int, pieces: Sequence[memoryview]) -> None:
        with self.method.exclusive() as state:
            state.write(pieces)

"""Warm-up: the steps that compile what requests would otherwise wait for. None of them changes a cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .runner import ModelRunner
from .scheduler import STEP_SIZES

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

"""Decode steps in flight: one token for each slot and step, which the device feeds to the next step itself.

Further steps can follow those in flight before the host has read a token of them. So the device need not wait while the
host turns tokens into text and records the next steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ...fusion.llm_rewrites import TOKEN
from ...runtime import Method
from ...runtime.steps import StepsInFlight
from ..sampling import RowSamplingParams, SampledToken, sampler_outputs, unpack


class DecodeSteps(Protocol):
    """Steps that a runner has started, each over all their slots."""

    def follow(self, count: int) -> DecodeSteps | None:
        """Start `count` further steps; None if they can start only after the tokens of these were read."""

    def take(self) -> list[list[SampledToken]]:
        """Wait for the steps, and return the sampled tokens by step and row. Take steps in the order of their start."""

    def discard(self) -> None:
        """Leave the tokens unread."""


class StepInputs(NamedTuple):
    """The inputs of consecutive steps of a method. Their rows are sampled as the parameters of the first step say."""

    of_step: Callable[[int], tuple[Any, ...]]  # by the number of the step; only those of the first need tokens
    params_by_row: Sequence[RowSamplingParams]
    num_rows: int  # without those for padding
    max_steps: int


def start_steps(method: Method, inputs: StepInputs, count: int) -> DecodeSteps:
    """Start the first `count` steps."""
    steps = [inputs.of_step(number) for number in range(count)]
    started = method.start_steps(steps, {TOKEN: 0}, sampler_outputs(inputs.params_by_row))
    return _MethodSteps(method, inputs, count, started)


class _MethodSteps:
    def __init__(self, method: Method, inputs: StepInputs, end: int, started: StepsInFlight) -> None:
        self._method = method
        self._inputs = inputs
        self._end = end  # the number of the next step
        self._started = started

    def follow(self, count: int) -> DecodeSteps | None:
        end = self._end + count
        if end > self._inputs.max_steps:
            return None
        steps = [self._inputs.of_step(number) for number in range(self._end, end)]
        started = self._method.follow_steps(self._started, steps)
        return None if started is None else _MethodSteps(self._method, self._inputs, end, started)

    def take(self) -> list[list[SampledToken]]:
        return [unpack(outputs)[: self._inputs.num_rows] for outputs in self._started.results()]

    def discard(self) -> None:
        self._started.discard()

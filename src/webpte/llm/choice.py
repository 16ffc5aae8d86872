"""How a token is to be chosen, and the one that was: what goes to the sampler, and what comes back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .errors import LogitsError
from .sampled import LOG_PROBABILITY, SETTINGS, TOKEN
from .settings import Settings

ALL_HIDDEN = -2  # in a token's place: every logit is minus infinity; any other negative number: NaN or infinity
_FLOATS = [SETTINGS.index(name) for name in ("temperature", "top_p", "min_p")]
_INTEGERS = [SETTINGS.index(name) for name in ("top_k", "seed", "step", "mask")]
NO_MASK = -1


@dataclass(frozen=True)
class Choice:
    """How the next token of one sequence is chosen. The device cannot refuse any of it: `Settings` checks it before."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    step: int = 0  # tokens that the sequence has chosen before
    logprob: bool = False  # whether anybody asks for it


class Chosen(NamedTuple):
    """A token and its log probability, at temperature 1 and before any filter; NaN where nobody has asked for it.

    A negative token is no choice at all: see `impossible`.
    """

    token: int
    logprob: float


def choice_of(settings: Settings, step: int) -> Choice:
    """How an answer's token number `step` is chosen."""
    return Choice(
        settings.temperature,
        settings.top_k,
        settings.top_p,
        seed=settings.seed,
        step=step,
        logprob=settings.logprobs,
    )


def pack(choices: Sequence[Choice]) -> tuple[Any, ...]:
    """The sampler's inputs, for rows in the order of the choices."""
    settings = np.empty((len(choices), len(SETTINGS)), np.int32)
    settings.view(np.float32)[:, _FLOATS] = [(c.temperature, c.top_p, c.min_p) for c in choices]
    settings[:, _INTEGERS] = [(c.top_k, c.seed, c.step, NO_MASK) for c in choices]
    return (settings,)


def wanted(choices: Sequence[Choice]) -> tuple[int, ...]:
    """The outputs that tell what was chosen: those that `unpack` takes."""
    return (TOKEN, LOG_PROBABILITY) if any(choice.logprob for choice in choices) else (TOKEN,)


def unpack(outputs: Sequence[Any]) -> list[Chosen]:
    """What was chosen for each row."""
    tokens = outputs[0].tolist()
    log_probabilities = outputs[1].tolist() if len(outputs) > 1 else [math.nan] * len(tokens)
    return list(map(Chosen, tokens, log_probabilities))


def impossible(mark: int, position: int) -> LogitsError:
    """What a negative number in a token's place means."""
    why = "are all minus infinity" if mark == ALL_HIDDEN else "hold NaN or infinity"
    return LogitsError(
        f"no token can be chosen: the logits behind position {position} {why}. Weights or inputs beyond the range of "
        "the program's dtype do that; `webpte compare` finds the first call whose result is not finite."
    )

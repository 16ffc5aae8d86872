"""What a caller may ask of a generation, checked before anything is touched."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..errors import InputError

LARGEST = 2**31 - 1  # integers travel to the device in 32 bits
TEMPERATURES = (1e-6, 1e6)  # beyond which logits divided by one leave the range of f32
MOST_PER_SUBMIT = 4096


@dataclass(frozen=True)
class Settings:
    """How tokens are chosen and when to end."""

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: Sequence[str] = ()
    logprobs: bool = False
    tokens_per_submit: int | None = None  # as many as a reader takes for a stream, unless given

    def __post_init__(self) -> None:
        checked = {
            "max_new_tokens": integer("max_new_tokens", self.max_new_tokens, 1, LARGEST),
            "temperature": _temperature(self.temperature),
            "top_k": integer("top_k", self.top_k, 0, LARGEST),
            "top_p": _top_p(self.top_p),
            "seed": integer("seed", self.seed, 0, LARGEST),
            "stop": _stop(self.stop),
        }
        if self.tokens_per_submit is not None:
            checked["tokens_per_submit"] = integer("tokens_per_submit", self.tokens_per_submit, 1, MOST_PER_SUBMIT)
        if not isinstance(self.logprobs, bool):
            raise InputError(f"logprobs is True or False, not {self.logprobs!r}")
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def settings_from(given: Mapping[str, Any]) -> Settings:
    """Settings by keyword; one that does not exist is refused by name."""
    known = [field.name for field in fields(Settings)]
    for name in given:
        if name not in known:
            raise InputError(f"generate has no setting {name!r}; there are {', '.join(known)}")
    return Settings(**given)


def integer(name: str, value: Any, low: int, high: int) -> int:
    """A whole number in a range; NumPy's integers are ones too, True and 1.0 are not."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise InputError(f"{name} is a whole number, not {_shown(value)}")
    if not low <= number <= high:
        raise InputError(f"{name} is between {low} and {high}, not {_shown(number)}")
    return number


def tokens_from(given: Any, vocabulary: int) -> tuple[int, ...]:
    """Token ids, each of them in the vocabulary."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InputError(f"tokens are a sequence of whole numbers, not {_shown(given)}")
    found = []
    for position, token in enumerate(given):
        try:
            number = None if isinstance(token, bool) else operator.index(token)
        except TypeError:
            number = None
        if number is None:
            raise InputError(f"token {position} is {_shown(token)}; a token is a whole number")
        if not 0 <= number < vocabulary:
            raise InputError(f"token {position} is {_shown(number)}; the vocabulary has 0 to {vocabulary - 1}")
        found.append(number)
    return tuple(found)


def _temperature(value: Any) -> float:
    number = _real("temperature", value)
    low, high = TEMPERATURES
    if number != 0 and not low <= number <= high:
        raise InputError(f"temperature is 0, or between {low:g} and {high:g}, not {number:g}")
    return number


def _top_p(value: Any) -> float:
    number = _real("top_p", value)
    if not 0 < number <= 1:
        raise InputError(f"top_p is above 0 and at most 1, not {number:g}")
    return number


def _real(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} is a finite number, not {_shown(value)}")
    return number


def _stop(value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise InputError(f"stop is a text or a list of texts, not {_shown(value)}")
    listed = tuple(texts)
    for text in listed:
        if not isinstance(text, str) or not text:
            raise InputError(f"stop holds {_shown(text)}; each must be a text of at least one character")
    return listed


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}... ({type(value).__name__})"

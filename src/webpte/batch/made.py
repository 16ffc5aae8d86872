"""What was made of some rows, how a value of a row becomes a text or tokens, and what a lost device means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..errors import DeviceLost, InputError
from ..runtime import Program
from ..runtime.checks import described

T = TypeVar("T")


@dataclass
class Made:
    """Columns of as many rows as were given, and a message for each row that failed."""

    columns: dict[str, Any]
    errors: list[str | None]
    tokens: int = 0  # of all rows, padding left out
    computed_tokens: int = 0  # with padding
    seconds: float = 0.0  # in which the device was at work or waited for

    @property
    def failed(self) -> int:
        return sum(error is not None for error in self.errors)


def text_or_tokens(value: Any) -> str | list[int]:
    """A row's value; what is neither a text nor tokens is refused with the reason, which becomes the row's error."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError as error:
            raise InputError(f"the text is no UTF-8: {error}", code="invalid_utf8") from error
    if is_null(value):
        raise InputError("the value is null", code="null")
    if isinstance(value, (Sequence, np.ndarray)):
        found = list(value)
        if found and all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) for one in found):
            return [int(one) for one in found]
    raise InputError(f"the value is a text, or a list of tokens, not {described(value)}", code="wrong_type")


def is_null(value: Any) -> bool:
    """None, or what pandas writes for it."""
    nan = isinstance(value, float) and math.isnan(value)
    return value is None or nan or type(value).__name__ in ("NAType", "NaTType")


def surely(program: Program, call: Callable[[], T]) -> T:
    """What a model without state gives: what a lost device took is computed again on another."""
    try:
        return call()
    except DeviceLost:
        program.recover()
        return call()

"""What the gate has no time for: parameters of a test that are marked slow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

Value = TypeVar("Value")


def slow(value: Value) -> ParameterSet:
    """A parameter that runs with `pytest -m slow` only."""
    return pytest.param(value, marks=pytest.mark.slow)


def slow_but(kept: Collection[Value], values: Iterable[Value]) -> list[Value | ParameterSet]:
    """`values` as parameters of a test; all but those in `kept` are slow."""
    every = list(values)
    if unknown := [value for value in kept if value not in every]:
        raise ValueError(f"{unknown} are not among {every}")
    return [value if value in kept else slow(value) for value in every]

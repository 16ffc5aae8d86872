"""Mark parameters of a test as slow: the gate has no time for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import pytest
from _pytest.mark import ParameterSet

Value = TypeVar("Value")
Row = TypeVar("Row", bound=tuple[Any, ...])


def slow(value: Value) -> ParameterSet:
    """Return a parameter that runs with `pytest -m slow` only."""
    return pytest.param(value, marks=pytest.mark.slow)


def slow_rows_but(kept: Collection[Row], rows: Iterable[Row]) -> list[Row | ParameterSet]:
    """`slow_but` for a test of several arguments: a row holds one value of each."""
    every = list(rows)
    slow_but(kept, every)  # refuses what is not among them
    return [row if row in kept else pytest.param(*row, marks=pytest.mark.slow) for row in every]


def slow_but(kept: Collection[Value], values: Iterable[Value]) -> list[Value | ParameterSet]:
    """`values` as parameters of a test; all but those in `kept` are slow."""
    every = list(values)
    if unknown := [value for value in kept if value not in every]:
        raise ValueError(f"{unknown} are not among {every}")
    return [value if value in kept else slow(value) for value in every]

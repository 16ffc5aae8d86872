"""The columns that a model computes for the rows of a batch, as parts that are finished one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class BatchResult:
    """The computed columns, one value per row, and a message for each row that failed."""

    columns: dict[str, Any]
    errors: list[str | None]
    tokens: int = 0  # of all rows, without padding
    computed_tokens: int = 0  # with padding
    seconds: float = 0.0  # in which the device was busy or waited for

    @property
    def failed(self) -> int:
        return sum(error is not None for error in self.errors)


@dataclass
class FinishedRows(BatchResult):
    """The results of some rows of a batch. Each column has a value per row, in the order of `rows`."""

    rows: Sequence[int] = ()  # indices in the batch


def in_order(parts: Sequence[FinishedRows]) -> BatchResult:
    """Return the result of a batch from parts that hold each of its rows. Of a row in several parts, take the first."""
    _, order = np.unique([row for part in parts for row in part.rows], return_index=True)
    errors = [error for part in parts for error in part.errors]
    return BatchResult(
        {name: _column([part.columns[name] for part in parts], order) for name in parts[0].columns},
        [errors[index] for index in order],
        sum(part.tokens for part in parts),
        sum(part.computed_tokens for part in parts),
        sum(part.seconds for part in parts),
    )


def _column(pieces: Sequence[Any], order: Any) -> Any:
    """Join the pieces of a column, which are lists or arrays, and put its rows in order."""
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)[order]
    values = [value for piece in pieces for value in piece]
    return [values[index] for index in order]

"""Rows to vectors. Texts of like lengths are computed together, so that few shapes are planned and little is padded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..embed import Embedder
from ..errors import Error, InputError
from ..progress import OnProgress, Progress
from .made import Made, surely, text_or_tokens
from .wanted import Wanted


class Embedding:
    """An encoder that is told which rows fail instead of failing with them."""

    def __init__(self, path: Path, wanted: Wanted, progress: OnProgress) -> None:
        self._output, self._column, self._truncate = wanted.output_column, wanted.column, wanted.truncate
        self.model = Embedder.load(path, progress=progress)
        try:
            self._before = self.model.texts.before(wanted.prompt, wanted.prefix)
        except BaseException:
            self.model.close()
            raise

    def __call__(self, columns: Mapping[str, Sequence[Any]], progress: OnProgress) -> Made:
        values = columns[self._column]
        rows: list[list[int]] = []
        places: list[int] = []
        errors: list[str | None] = [None] * len(values)
        for place, value in enumerate(values):
            try:
                rows.append(self._tokens(value))
                places.append(place)
            except Error as error:
                errors[place] = f"{type(error).__name__}: {error}"
        # NaN where there is no vector: it is like nothing, and cannot be taken for one by mistake.
        vectors = np.full((len(values), self.model.dimensions), np.nan, np.float32)
        started = time.perf_counter()
        done = computed = 0
        for numbers, padded in self.model.batches(rows):
            some = [rows[number] for number in numbers]
            found = surely(self.model.program, lambda: self.model.vectors(some, padded))  # noqa: B023 - called at once
            vectors[[places[number] for number in numbers]] = found
            done, computed = done + len(numbers), computed + len(numbers) * padded
            progress(Progress("embed", done, len(rows), "texts"))
        seconds = time.perf_counter() - started
        return Made({self._output: vectors}, errors, sum(map(len, rows)), computed, seconds)

    def _tokens(self, value: Any) -> list[int]:
        given = text_or_tokens(value)
        most = self.model.max_tokens
        if isinstance(given, str):
            tokens, length = self.model.texts.tokens_of(given, self._before)
        elif self._before:
            raise InputError("the value is tokens, and prompt or prefix is a text to put before texts")
        else:
            tokens, length = given[:most], len(given)
        if length > most and not self._truncate:
            raise InputError(f"the text has {length} tokens, and the program takes {most}; split it, or truncate")
        self.model.texts.check_tokens(tokens)
        return tokens

    def close(self) -> None:
        self.model.close()

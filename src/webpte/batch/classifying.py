"""Rows to classes. Pictures are opened and prepared a call's worth at a time: a block of large ones needs no more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Error, InputError
from ..progress import OnProgress, Progress
from ..runtime.checks import described
from ..vision import Classifier
from ..vision.images import opened, pictures
from .made import Made, is_null, surely
from .wanted import Wanted

Pixels = NDArray[np.float32]


class Classifying:
    """A classifier of pictures that is told which rows fail instead of failing with them."""

    def __init__(self, path: Path, wanted: Wanted, progress: OnProgress) -> None:
        self._output, self._column = wanted.output_column, wanted.column
        pictures(())  # pillow is there, or what to install
        self.model = Classifier.load(path, progress=progress)

    def __call__(self, columns: Mapping[str, Sequence[Any]], progress: OnProgress) -> Made:
        values = columns[self._column]
        errors: list[str | None] = [None] * len(values)
        labels: list[str | None] = [None] * len(values)
        scores = np.full(len(values), np.nan, np.float32)
        seconds = 0.0
        for places, pixels in self._batches(values, errors):
            started = time.perf_counter()
            found = surely(self.model.program, lambda: self.model.pixel_scores(pixels))  # noqa: B023 - called at once
            seconds += time.perf_counter() - started
            best = found.argmax(axis=1)
            scores[places] = found[np.arange(len(places)), best]
            for place, number in zip(places, best, strict=True):
                labels[place] = self.model.labels[number]
            progress(Progress("classify", places[-1] + 1, len(values), "pictures"))
        return Made({self._output: labels, "score": scores}, errors, seconds=seconds)

    def _batches(self, values: Sequence[Any], errors: list[str | None]) -> Iterator[tuple[list[int], Pixels]]:
        """Numbers of rows with their pixels, (B, 3, H, W); why a row has none is noted in `errors`."""
        places: list[int] = []
        some: list[Pixels] = []
        for place, value in enumerate(values):
            try:
                some.append(self.model.processing(opened(picture_in(value), "the value"))[0])
                places.append(place)
            except Error as error:
                errors[place] = f"{type(error).__name__}: {error}"
            if len(some) == self.model.max_batch:
                yield places, np.stack(some)
                places, some = [], []
        if some:
            yield places, np.stack(some)

    def close(self) -> None:
        self.model.close()


def picture_in(value: Any) -> Any:
    """A row's picture. A path is none: what is behind it may change, and a block is known by what its rows hold."""
    if isinstance(value, Mapping) and "bytes" in value:  # as Hugging Face datasets stores pictures
        value = value["bytes"]
    if is_null(value):
        raise InputError("the value is null")
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        raise InputError(f"the value is the bytes of a picture's file, or its pixels, not a text, {described(value)}")
    return value

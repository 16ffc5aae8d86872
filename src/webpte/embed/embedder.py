"""`Embedder`: texts to vectors, in batches of similar lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..runtime import Program
from ..runtime.loading import TaskProgram
from ..task_file import TaskFile, other_export
from .text_tokenizer import TextTokenizer

MIN_PADDED_TOKENS = 4
STEPS_PER_OCTAVE = 4  # padded lengths between two powers of two: rounding adds at most a fifth
FINE_STEPS_MIN_BATCHES = 8  # full batches in a call, from which steps are half as long
MIN_FILL = 0.7  # of the padded tokens of a row, unless its own padded length is the same


class TextProgram(TaskProgram):
    """Base of the programs that compute a vector for each row of tokens."""

    max_tokens: int  # of a row
    max_batch: int  # rows in one call of the program

    def batches(self, rows: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
        """Return the batches of rows: the indices of each, and the tokens to pad its rows to."""
        return list(batches([len(row) for row in rows], self.max_batch, self.max_tokens))


def padded_rows(rows: Sequence[Sequence[int]], tokens: int, pad: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows of at most `tokens` tokens as one array (B, T), and its mask: 1 for tokens, 0 for padding."""
    ids = np.full((len(rows), tokens), pad, np.int64)
    mask = np.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return ids, mask


class Embedder(TextProgram):
    """An encoder that turns texts into vectors.

    It is a callable::

        with webpte.embed.Embedder.load("minilm.pte") as embedder:
            vectors = embedder(["How do I keep warm?", "Blankets are in the wardrobe."])  # (2, 384)
    """

    _task = TextTokenizer.task

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        super().__init__(program, path, file)
        self.tokenizer = TextTokenizer(path, file)  #: from texts to tokens
        tokenizer = self.tokenizer
        self.dimensions = tokenizer.dimensions  #: of a vector
        self.max_tokens = tokenizer.max_tokens  #: of a text, with those that the tokenizer adds
        self.pooling = tokenizer.pooling  #: of the vectors of tokens: "mean", "cls", "max" or "last"
        self.normalized = tokenizer.normalized  #: whether vectors have length 1, so that dot products are cosines
        self.prompts = tokenizer.prompts  #: texts to put before a text, by name
        self.max_batch = self._check_program()  #: texts in one call of the program

    def _check_program(self) -> int:
        """Check the program against its task file. Return the largest batch."""
        inputs, outputs = self._forward.inputs, self._forward.outputs
        bounds = [argument.bound for argument in inputs]
        if len(bounds) != 2 or bounds[0] is None or len(bounds[0]) != 2 or bounds[0] != bounds[1]:
            raise other_export(self.path, "two inputs of one shape, tokens and a mask", bounds)
        if bounds[0][1] < self.max_tokens or outputs[0].bound != (bounds[0][0], self.dimensions):
            expected = f"inputs of {self.max_tokens} tokens and vectors of {self.dimensions} numbers"
            raise other_export(self.path, expected, f"inputs {bounds[0]} and outputs {outputs[0].bound}")
        return bounds[0][0]

    def __call__(
        self, texts: Iterable[str], *, prompt: str | None = None, prefix: str | None = None, truncate: bool = True
    ) -> NDArray[np.float32]:
        """Return a vector for each text, in their order: (n, `dimensions`).

        `prompt` is the name of one of `prompts`, and `prefix` a text; either is put before every text. A text with more
        than `max_tokens` tokens is truncated with a warning. With `truncate=False` it raises `InputError`.
        """
        rows = self.tokenizer.encode(texts, prompt=prompt, prefix=prefix, truncate=truncate)
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        for numbers, tokens in self.batches(rows):
            vectors[numbers] = self.compute_batch([rows[number] for number in numbers], tokens)
        return vectors

    def compute_batch(self, rows: Sequence[Sequence[int]], tokens: int) -> NDArray[np.float32]:
        """Return the vectors (B, D) of one batch: rows of at most `tokens` tokens."""
        return self._forward(*padded_rows(rows, tokens, self.tokenizer.pad))

    def __repr__(self) -> str:
        normalized = ", normalized" if self.normalized else ""
        return (
            f"Embedder({str(self.path)!r}, {self.dimensions} dimensions{normalized}, {self.pooling} pooling, up to "
            f"{self.max_tokens} tokens, {self.max_batch} texts per call)"
        )


def batches(lengths: Sequence[int], max_rows: int, max_tokens: int) -> Iterator[tuple[list[int], int]]:
    """Group texts of similar lengths. Yield the indices of each batch, and the number of tokens to pad its texts to.

    A new shape costs a plan of the whole program, so lengths and counts are rounded to a few numbers. A call with many
    texts uses each shape often, so its lengths are half as far apart.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    finer = 2 if len(lengths) >= FINE_STEPS_MIN_BATCHES * max_rows else 1
    start = 0
    while start < len(order):
        tokens = padded_length(lengths[order[start]], max_tokens, finer)
        shortest = min(MIN_FILL * tokens, shortest_padded_to(tokens, finer))
        stop = start
        while stop < min(start + max_rows, len(order)) and lengths[order[stop]] >= shortest:
            stop += 1
        rows = batch_rows(stop - start, max_rows)
        yield order[start : start + rows], tokens
        start += rows


def padded_length(length: int, limit: int, finer: int = 1) -> int:
    """Return a length rounded up to one of the padded lengths."""
    step = length_step(length, finer)
    return min(-(-length // step) * step, limit)


def shortest_padded_to(tokens: int, finer: int = 1) -> int:
    """Return the shortest length that is padded to `tokens`."""
    return 1 if tokens <= MIN_PADDED_TOKENS // finer else tokens - (tokens - 1) % length_step(tokens, finer)


def length_step(length: int, finer: int = 1) -> int:
    """Return the distance of the padded lengths near `length`."""
    return max(MIN_PADDED_TOKENS, (1 << (length - 1).bit_length()) // (2 * STEPS_PER_OCTAVE)) // finer


def batch_rows(rows: int, limit: int) -> int:
    """Return a count rounded down to one of the batch sizes: 1, 2, 3, 4, 6, 8, 12 and so on, and `limit`."""
    if rows == limit:
        return limit
    power = 1 << (rows.bit_length() - 1)
    return power + power // 2 if rows >= power + power // 2 else power

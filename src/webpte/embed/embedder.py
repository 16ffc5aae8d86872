"""`Embedder`: tokens by the model's tokenizer, vectors by its program, which pools as its config says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ..runtime import Program
from ..runtime.task_program import TaskProgram
from ..task_file import TaskFile
from .batches import batches
from .texts import Texts


class Embedder(TaskProgram):
    """An encoder of texts.

    It is called with them::

        with webpte.embed.Embedder.load("minilm.pte") as embedder:
            vectors = embedder(["How do I keep warm?", "Blankets are in the wardrobe."])  # (2, 384)
    """

    task = Texts.task

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        super().__init__(program, path, file)
        self.texts = texts = Texts(path, file)
        self.dimensions = texts.dimensions  #: of a vector
        self.max_tokens = texts.max_tokens  #: of a text, those that the tokenizer adds included
        self.pooling = texts.pooling  #: how the vectors of tokens become one
        self.normalized = texts.normalized  #: whether vectors have length 1: products of two are cosines
        self.prompts = texts.prompts  #: what the model wants before texts, by name
        self.max_batch = self._check_program(file.path)  #: texts in one call of the program

    def _check_program(self, where: str) -> int:
        """The most rows of a call, if the program is the one that the file beside it describes."""
        inputs, outputs = self.forward.inputs, self.forward.outputs
        bounds = [argument.bound for argument in inputs]
        if len(bounds) != 2 or bounds[0] is None or len(bounds[0]) != 2 or bounds[0] != bounds[1]:
            raise FormatError(f"{self.path} does not take tokens and a mask of one shape, as {where} says: {bounds}")
        if bounds[0][1] < self.max_tokens or outputs[0].bound != (bounds[0][0], self.dimensions):
            raise FormatError(
                f"{self.path} makes {outputs[0].bound} of {bounds[0]}; by {where} it takes {self.max_tokens} tokens "
                f"and gives {self.dimensions} numbers. The two are not of one export.",
                code="other_export",
            )
        return bounds[0][0]

    def __call__(
        self, texts: Iterable[str], *, prompt: str | None = None, prefix: str | None = None, truncate: bool = True
    ) -> NDArray[np.float32]:
        """A vector for each text, in their order: (n, `dimensions`).

        `prompt` is one of `prompts` by name, `prefix` any other text, to put before every text. Of a text with more
        than `max_tokens` tokens the rest is left out, with a warning; `truncate=False` refuses it.
        """
        rows = self.texts.encode(texts, prompt=prompt, prefix=prefix, truncate=truncate)
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        for numbers, tokens in self.batches(rows):
            vectors[numbers] = self.vectors([rows[number] for number in numbers], tokens)
        return vectors

    def batches(self, rows: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
        """How texts are taken together: the numbers of those in each call of the program, and its tokens a text."""
        return list(batches([len(row) for row in rows], self.max_batch, self.max_tokens))

    def vectors(self, rows: Sequence[Sequence[int]], tokens: int) -> NDArray[np.float32]:
        """Of one batch: rows of at most `tokens` tokens (B, D)."""
        ids = np.full((len(rows), tokens), self.texts.pad, np.int64)  # (B, T)
        mask = np.zeros_like(ids)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
            mask[place, : len(row)] = 1
        return self.forward(ids, mask)

    def __repr__(self) -> str:
        length = ", of length 1" if self.normalized else ""
        return (
            f"Embedder({str(self.path)!r}, {self.dimensions} dimensions{length}, {self.pooling} of up to "
            f"{self.max_tokens} tokens, {self.max_batch} texts at once)"
        )

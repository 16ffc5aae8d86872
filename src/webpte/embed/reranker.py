"""`Reranker`: how well documents answer a query, by a cross-encoder that reads both together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..runtime import Program
from ..runtime.checks import check_list
from ..task_file import TaskFile, other_export
from .embedder import TextProgram, padded_rows
from .pair_tokenizer import PairTokenizer, probabilities


class Reranker(TextProgram):
    """A cross-encoder that scores pairs of a query and a document.

    It is a callable::

        with webpte.embed.Reranker.load("reranker.pte") as reranker:
            scores = reranker("What is a panda?", ["A bear of China.", "A city in Italy."])  # (2,)
    """

    _task = PairTokenizer.task
    dimensions = 1  #: numbers for a pair

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        super().__init__(program, path, file)
        self.tokenizer = PairTokenizer(path, file)  #: from pairs of texts to tokens
        self.max_tokens = self.tokenizer.max_tokens  #: of a pair, with those that the tokenizer adds
        self.max_batch = self._check_program()  #: pairs in one call of the program

    def _check_program(self) -> int:
        """Check the program against its task file. Return the largest batch."""
        inputs, outputs = self._forward.inputs, self._forward.outputs
        bounds = [argument.bound for argument in inputs]
        first = bounds[0] if bounds else None
        if len(bounds) not in (2, 3) or first is None or len(first) != 2 or any(bound != first for bound in bounds):
            raise other_export(self.path, "inputs of one shape: tokens, a mask, and segments if it has some", bounds)
        if first[1] < self.max_tokens or outputs[0].bound != (first[0], 1):
            expected = f"inputs of {self.max_tokens} tokens and a score for each pair"
            raise other_export(self.path, expected, f"inputs {first} and outputs {outputs[0].bound}")
        return int(first[0])

    def __call__(self, query: str, documents: Iterable[str]) -> NDArray[np.float32]:
        """Return the score of each document, from 0 to 1, in their order: (n,).

        Of a pair with more than `max_tokens` tokens, the longer text is cut.
        """
        texts = check_list(documents, "documents", "strings", "['a text', 'another']")
        rows = self.tokenizer.encode((query, text) for text in texts)
        values = np.empty((len(rows), 1), np.float32)
        for numbers, tokens in self.batches(rows):
            values[numbers] = self.compute_batch([rows[number] for number in numbers], tokens)
        return probabilities(values)

    def compute_batch(self, rows: Sequence[Sequence[int]], tokens: int) -> NDArray[np.float32]:
        """Return the logits (B, 1) of one batch: rows of at most `tokens` tokens."""
        ids, mask = padded_rows(rows, tokens, self.tokenizer.pad)
        segments = np.zeros_like(ids)
        for index, row in enumerate(rows):
            if self.tokenizer.separator in row:  # the second text begins after the first separator
                segments[index, row.index(self.tokenizer.separator) + 1 : len(row)] = 1
        return self._forward(*(ids, mask, segments)[: len(self._forward.inputs)])

    def __repr__(self) -> str:
        return f"Reranker({str(self.path)!r}, up to {self.max_tokens} tokens, {self.max_batch} pairs per call)"

"""Tokenize pairs of texts for a reranker, and read its output. Needs no GPU."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..llm.tokenizer import Tokenizer
from ..runtime.checks import check_path
from ..task_file import TaskFile, read_task
from ..typing import PathLike


class PairTokenizer:
    """The tokenizer of a reranker, with the fields of its task file."""

    task = "reranking"

    def __init__(self, path: Path, file: TaskFile) -> None:
        """Read all fields of `file`, and the tokenizer beside the program at `path`."""
        self.max_tokens = file.integer("max_tokens", 4)
        self.pad = file.integer("pad", 0)
        self.separator = file.integer("separator", 0)
        file.check_all_read()
        tokenizer = path.with_name(f"{path.stem}.tokenizer.json")
        self._tokenizer = Tokenizer.load(tokenizer, extra="tasks", max_tokens=self.max_tokens)

    @classmethod
    def load(cls, path: PathLike) -> PairTokenizer:
        """Return the tokenizer of the program at `path`, which is not opened."""
        program = Path(check_path(path, "path"))
        return cls(program, read_task(program, cls.task))

    def encode(self, pairs: Iterable[tuple[str, str]]) -> list[list[int]]:
        """Return the tokens of each pair. Of a pair that is too long, the longer text is cut first."""
        rows = []
        for number, pair in enumerate(pairs):
            if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise InputError(
                    argument=f"pairs[{number}]", expected="two strings", got=type(pair).__name__, code="wrong_type"
                )
            rows.append(self._tokenizer.encode_pair(*pair))
        return rows


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores (n,) of logits (n, 1), by the logistic function."""
    scores: NDArray[np.float32] = (0.5 * (1 + np.tanh(0.5 * logits[:, 0]))).astype(np.float32)  # without an overflow
    return scores

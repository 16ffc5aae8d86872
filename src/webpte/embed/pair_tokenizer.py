"""Tokenize pairs of texts for a reranker, and read its output. Needs no GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..llm.tokenizer import Tokenizer
from ..runtime.checks import check_path
from ..task_file import LANGUAGE_RERANKING, TaskFile, other_export, read_task, task_of
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
        return [self._tokenizer.encode_pair(*pair) for pair in _checked(pairs)]


class PairPrompts:
    """The prompts of a language model that is asked whether a document answers a query, as its task file has them."""

    task = LANGUAGE_RERANKING

    def __init__(self, path: Path, file: TaskFile) -> None:
        """Read all fields of `file`, and the tokenizer beside the program at `path`."""
        self.max_tokens = file.integer("max_tokens", 1)
        self.instruction = file.string("instruction")
        self.yes, self.no = file.integer("yes", 0), file.integer("no", 0)  #: tokens whose logits are compared
        prefix, suffix = file.string("prefix"), file.string("suffix")
        file.check_all_read()
        self._tokenizer = Tokenizer.load(path.with_name(f"{path.stem}.tokenizer.json"), extra="tasks")
        self._prefix = self._tokenizer.encode(prefix, parse_special=True)
        self._suffix = self._tokenizer.encode(suffix, parse_special=True)
        self._room = self.max_tokens - len(self._prefix) - len(self._suffix)  # for the instruction and the pair
        if self._room < 1:
            around = len(self._prefix) + len(self._suffix)
            raise other_export(path, f"a context of more than the {around} tokens around a pair", self.max_tokens)

    @classmethod
    def load(cls, path: PathLike) -> PairPrompts:
        """Return the prompts of the program at `path`, which is not opened."""
        program = Path(check_path(path, "path"))
        return cls(program, read_task(program, cls.task))

    def encode(self, pairs: Iterable[tuple[str, str]]) -> list[list[int]]:
        """Return the tokens of the prompt of each pair. Of a pair that is too long, the end is cut."""
        rows = []
        for query, document in _checked(pairs):
            text = f"<Instruct>: {self.instruction}\n<Query>: {query}\n<Document>: {document}"
            rows.append([*self._prefix, *self._tokenizer.encode(text)[: self._room], *self._suffix])
        return rows


def read_pairs(path: PathLike) -> PairTokenizer | PairPrompts:
    """Return what turns pairs into tokens for the reranker at `path`."""
    return (PairPrompts if task_of(Path(path)) == PairPrompts.task else PairTokenizer).load(path)


def _checked(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise InputError(
                argument=f"pairs[{number}]", expected="two strings", got=type(pair).__name__, code="wrong_type"
            )
        yield pair


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores (n,) of logits (n, 1), by the logistic function."""
    scores: NDArray[np.float32] = (0.5 * (1 + np.tanh(0.5 * logits[:, 0]))).astype(np.float32)  # without an overflow
    return scores

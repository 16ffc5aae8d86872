"""`LanguageReranker`: how well documents answer a query, by a language model that is asked for yes or no."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self, Unpack

import numpy as np
from numpy.typing import NDArray

from ..llm import LLM
from ..llm.model import LLMLoadOptions
from ..runtime.checks import check_list, check_path
from ..task_file import TaskFile, other_export, read_task
from ..typing import PathLike
from .pair_tokenizer import PairPrompts, probabilities

PAIRS_PER_TURN = 4  # of one request, before the next request of a server has its turn


class LanguageReranker:
    """A language model that scores pairs of a query and a document, such as Qwen3-Reranker.

    It is a callable, as `Reranker` is::

        with webpte.embed.LanguageReranker.load("qwen3-reranker.pte") as reranker:
            scores = reranker("What is a panda?", ["A bear of China.", "A city in Italy."])  # (2,)

    The tokens that a prompt shares with the one before it, such as those of the query, are not computed again.
    """

    dimensions = 1  #: numbers for a pair
    max_batch = PAIRS_PER_TURN  #: pairs in one call of `compute_batch`

    def __init__(self, llm: LLM, path: Path, file: TaskFile) -> None:
        self.llm = llm  #: the language model
        self.path = path  #: of the program
        self.tokenizer = PairPrompts(path, file)  #: from pairs of texts to prompts
        self.max_tokens = self.tokenizer.max_tokens  #: of a prompt
        highest = max(self.tokenizer.yes, self.tokenizer.no)
        if self.max_tokens > llm.capacity or highest >= llm.vocabulary:
            expected = f"a context of {self.max_tokens} tokens and a vocabulary with token {highest}"
            raise other_export(path, expected, f"{llm.capacity} tokens and a vocabulary of {llm.vocabulary}")

    @classmethod
    def load(cls, path: PathLike, **options: Unpack[LLMLoadOptions]) -> Self:
        """Open a program that `webpte export --task reranking` wrote, with the files beside it.

        `options` are those of `webpte.llm.LLM.load`. `max_sequences` is 1 by default: pairs are computed in turn.
        """
        file = Path(check_path(path, "path"))
        about = read_task(file, PairPrompts.task)
        llm = LLM.load(os.fspath(file), **(LLMLoadOptions(max_sequences=1) | options))
        try:
            return cls(llm, file, about)
        except BaseException:
            llm.close()
            raise

    def __call__(self, query: str, documents: Iterable[str]) -> NDArray[np.float32]:
        """Return the score of each document, from 0 to 1, in their order: (n,).

        Of a pair whose prompt has more than `max_tokens` tokens, the end of the document is cut.
        """
        texts = check_list(documents, "documents", "strings", "['a text', 'another']")
        rows = self.tokenizer.encode((query, text) for text in texts)
        return probabilities(self.compute_batch(rows, self.max_tokens))

    def batches(self, rows: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
        """Return the batches of rows in their order: the indices of each, and the tokens of its longest row."""
        starts = range(0, len(rows), PAIRS_PER_TURN)
        turns = [list(range(start, min(start + PAIRS_PER_TURN, len(rows)))) for start in starts]
        return [(turn, max(len(rows[index]) for index in turn)) for turn in turns]

    def compute_batch(self, rows: Sequence[Sequence[int]], tokens: int) -> NDArray[np.float32]:
        """Return the logit of yes minus that of no (B, 1) after each row, of at most `tokens` tokens."""
        values = np.empty((len(rows), 1), np.float32)
        yes, no = self.tokenizer.yes, self.tokenizer.no
        for index, row in enumerate(rows):
            with self.llm.sequence() as sequence:
                logits = sequence.logits(row)[0]
            values[index] = logits[yes] - logits[no]
        return values

    @property
    def fingerprint(self) -> str:
        """Return the identity of the model."""
        return self.llm.fingerprint

    @property
    def recoveries(self) -> int:
        """Return how often another device was opened after the loss of one."""
        return self.llm.stats.recoveries

    def recover(self) -> bool:
        """Open another device after DeviceLost. Return False if no device was lost."""
        return self.llm.recover()

    def close(self) -> None:
        """Release the GPU memory."""
        self.llm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LanguageReranker({str(self.path)!r}, up to {self.max_tokens} tokens)"

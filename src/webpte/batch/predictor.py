"""`Predictor`: columns in, the same columns and what was made of them out. Engines call it as they call any class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np

from ..device import use_adapter
from ..errors import InputError
from ..progress import OnProgress, ignore
from ..runtime.checks import PathLike, described, near, path_of, whole
from .classifying import Classifying
from .embedding import Embedding
from .generating import Generating
from .made import Made
from .wanted import ERROR, Task, Wanted, WantedOptions, wanted_from

MAKERS: dict[Task, type[Embedding] | type[Generating] | type[Classifying]] = {
    "embed": Embedding,
    "generate": Generating,
    "classify": Classifying,
}


class Predictor:
    """A model as a callable from a mapping of columns to one with more columns.

    It is loaded when it is made, once for each process::

        predictor = webpte.batch.Predictor("minilm.pte", column="text")
        predictor({"id": [1, 2], "text": ["How do I keep warm?", None]})
        # {"id": [1, 2], "text": [...], "embedding": (2, 384), "error": [None, "InputError: the value is null"]}

    An encoder adds `embedding`, a language model `generated`, `finish_reason`, `prompt_tokens` and
    `completion_tokens`, a classifier of pictures `label` and `score`; `output_column` is another name for the first.
    A row that fails, since its value is null, no UTF-8, no picture or too long, has a message in `error`, and NaN or
    None in the rest. Rows keep their order.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        adapter: int | None = None,
        progress: OnProgress = ignore,
        **options: Unpack[WantedOptions],
    ) -> None:
        """`task` is "embed", "generate" or "classify", what the program is for unless given. `column` holds texts,
        bytes in UTF-8, or lists of tokens; or pictures: the bytes of a file, pixels as uint8 (height, width, 3), PIL
        images, or a mapping with `bytes`.

        Of embeddings, `prompt` is one of the model's by name and `prefix` any text, put before every text; a text that
        is too long fails, or is cut with `truncate`. Of answers, `prompt_template` makes the prompt out of columns,
        `"Summarise: {text}"`, which then goes through the chat template with `system`, or with `raw` as it is;
        `parse_special` and `settings` are those of `LLM.generate`. The process computes on the adapter of
        number `adapter`, as `webpte doctor` lists them, or on the fastest.
        """
        self.path = Path(path_of(path, "path"))
        self.wanted: Wanted = wanted_from(self.path, options)
        if adapter is not None:
            use_adapter(whole(adapter, "adapter", 0))
        self._make = MAKERS[self.wanted.task](self.path, self.wanted, progress)

    @property
    def model(self) -> Any:
        """The `Embedder`, the `LLM` or the `Classifier`."""
        return self._make.model

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of a batch, and those that are made of them: arrays where there were arrays, else lists."""
        made = self.predict(batch)
        arrays = any(isinstance(values, np.ndarray) for values in batch.values())
        added = {**made.columns, ERROR: made.errors}
        return {**batch, **{name: _column(values, arrays) for name, values in added.items()}}

    def predict(self, batch: Mapping[str, Any], progress: OnProgress = ignore) -> Made:
        """Only what is made, with the counts of tokens."""
        if not isinstance(batch, Mapping):
            raise InputError(f"batch is a mapping of columns by name, not {described(batch)}")
        columns = {name: self._values(batch, name) for name in self.wanted.columns}
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"batch: columns are of different lengths, {lengths}")
        if taken := [name for name in self.wanted.made if name in batch]:
            raise InputError(
                f"batch has a column {taken[0]!r} already; rename it, or give output_column", code="column_exists"
            )
        return self._make(columns, progress)

    def _values(self, batch: Mapping[str, Any], name: str) -> Sequence[Any]:
        if name not in batch:
            known = list(map(str, batch))
            raise InputError(
                f"batch has no column {name!r}{near(name, known)}; it has {', '.join(known) or 'none'}",
                code="unknown_column",
            )
        values = batch[name]
        return values if isinstance(values, (list, tuple)) else list(values)

    def close(self) -> None:
        """Release the GPU memory."""
        self._make.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        wanted = self.wanted
        return f"Predictor({str(self.path)!r}, {wanted.task}, {', '.join(wanted.columns)} to {wanted.output_column})"


def _column(values: Any, arrays: bool) -> Any:
    """A list as an array where the caller's columns are arrays: engines take one kind in a batch."""
    if isinstance(values, np.ndarray):
        return values if arrays else list(values)
    if not arrays:
        return values
    found = np.empty(len(values), object)
    found[:] = values
    return found

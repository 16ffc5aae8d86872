"""`Predictor`: a model as a callable over columns, for engines that map a class over batches of rows."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np

from ..device import use_adapter
from ..errors import InputError
from ..progress import OnProgress, ignore
from ..runtime.checks import check_int, check_path, did_you_mean, wrong_argument
from ..typing import PathLike
from .results import BatchResult, FinishedRows, in_order
from .runners import RUNNERS, Runner
from .task_spec import ERROR_COLUMN, TaskOptions, TaskSpec, task_spec


class Predictor:
    """A model as a callable from a mapping of columns to one with more columns.

    The constructor loads the model, once for each process::

        predictor = webpte.batch.Predictor("minilm.pte", column="text")
        predictor({"id": [1, 2], "text": ["How do I keep warm?", None]})
        # {"id": [1, 2], "text": [...], "embedding": (2, 384), "error": [None, "InputError: …"]}

    An encoder adds `embedding`. A language model adds `generated`, `finish_reason`, `prompt_tokens` and
    `completion_tokens`. An image classifier adds `label` and `score`. `output_column` renames the first of them.

    Errors are per row: null values, invalid UTF-8, undecodable images, texts that are too long. Such a row has a
    message in `error`, and NaN or None in the other columns. Rows keep their order.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        adapter: int | None = None,
        progress: OnProgress = ignore,
        **options: Unpack[TaskOptions],
    ) -> None:
        """Load the model.

        `task` is "embed", "generate" or "classify". The default is the task of the program. `column` holds strings,
        bytes in UTF-8 or lists of tokens; for "classify" it holds images: the bytes of a file, pixels as uint8
        (height, width, 3), PIL images, or a mapping with `bytes`. `adapter` is the number of a GPU adapter as `webpte
        doctor` lists them. The default is the fastest one.

        Options of "embed": `prompt` is the name of one of the model's prompts, and `prefix` a text; either is put
        before every text. A text that is too long fails, or is truncated with `truncate`.

        Options of "generate": `prompt_template` builds the prompt from columns, such as `"Summarize: {text}"`. The
        prompt goes through the chat template with `system`, after the image of `image_column` if it is set; `raw` skips
        the chat template. `parse_special` and `settings` are those of `LLM.generate`.
        """
        self.path = Path(check_path(path, "path"))  #: of the program
        self._spec: TaskSpec = task_spec(self.path, options)
        if adapter is not None:
            use_adapter(check_int(adapter, "adapter", 0))
        self._run: Runner = RUNNERS[self._spec.task](self.path, self._spec, progress)

    @property
    def model(self) -> Any:
        """Return the `Embedder`, the `LLM` or the `Classifier`."""
        return self._run.model

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of a batch with the computed ones: arrays if any column is an array, else lists."""
        result = self.predict(batch)
        arrays = any(isinstance(values, np.ndarray) for values in batch.values())
        added = {**result.columns, ERROR_COLUMN: result.errors}
        return {**batch, **{name: _column(values, arrays) for name, values in added.items()}}

    def predict(self, batch: Mapping[str, Any]) -> BatchResult:
        """Return only the computed columns, with the errors and the token counts."""
        return in_order(list(self.compute(batch)))

    def compute(self, batch: Mapping[str, Any], done: Collection[int] = ()) -> Generator[FinishedRows, None, None]:
        """Yield rows as they are finished. Rows in `done` are left out, unless a call computes others with them."""
        if not isinstance(batch, Mapping):
            raise wrong_argument("batch", "a mapping of columns by name", batch)
        columns = {name: self._values(batch, name) for name in self._spec.input_columns}
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(argument="batch", expected="columns of one length", got=lengths, code="unequal_lengths")
        if taken := [name for name in self._spec.output_columns if name in batch]:
            raise InputError(
                f"column {taken[0]!r} exists already",
                argument="batch",
                code="column_exists",
                hint="Rename it, or set output_column.",
            )
        return self._run(columns, done)

    def _values(self, batch: Mapping[str, Any], name: str) -> Sequence[Any]:
        if name not in batch:
            names = list(map(str, batch))
            raise InputError(
                f"no column {name!r}{did_you_mean(name, names)}",
                argument="batch",
                code="unknown_column",
                hint=f"Its columns: {', '.join(names) or 'none'}.",
            )
        values = batch[name]
        return values if isinstance(values, (list, tuple)) else list(values)

    def close(self) -> None:
        """Release the GPU memory."""
        self._run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        spec = self._spec
        return f"Predictor({str(self.path)!r}, {spec.task}, {', '.join(spec.input_columns)} to {spec.output_column})"


def _column(values: Any, arrays: bool) -> Any:
    """Return a column as an array or as a list: engines take one kind in a batch."""
    if isinstance(values, np.ndarray):
        return values if arrays else list(values)
    if not arrays:
        return values
    column = np.empty(len(values), object)
    column[:] = values
    return column

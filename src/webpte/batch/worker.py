"""A process that computes the blocks of a job: this process, or a Ray actor."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..progress import OnProgress, ignore
from .journal import RowJournal
from .output import block_is_intact, block_name, read_block_counts, with_result, write_block
from .predictor import Predictor
from .results import in_order
from .tables import InputTables, RowBlock
from .task_spec import TaskSpec, model_fingerprint


@dataclass(frozen=True)
class BatchJob:
    """Everything that a worker needs, as plain values."""

    model: str
    input: str
    output: str
    block_rows: int
    spec: TaskSpec
    fingerprint: str
    adapter: int | None = None  # does not affect the results

    def identity(self) -> dict[str, Any]:
        """Return what the output folder belongs to. It has no paths, so that files can be moved."""
        return {
            "model": self.fingerprint,
            "input": InputTables(Path(self.input)).name,
            "block_rows": self.block_rows,
            "options": self.spec.identity(),
        }

    @property
    def digest(self) -> str:
        """Return a hash of the model and the options, which is part of the name of every block."""
        fields = {"model": self.fingerprint, "options": self.spec.identity()}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class BlockStats:
    """A finished block."""

    block: RowBlock
    name: str
    computed: bool  # in this run; False if it existed
    rows: int
    failed: int
    tokens: int
    computed_tokens: int
    seconds: float = 0.0  # of the device, if it was computed
    repaired: bool = False  # it existed, but was damaged or had no checksum
    kept_rows: int = 0  # of a block that is computed: rows that an interrupted run had finished


OnRows = Callable[[int, int], None]  # receives the finished rows of the block, and how many of them were kept


class BatchWorker:
    """Computes the blocks that do not exist or are damaged. The first of them loads the model."""

    def __init__(
        self,
        job: BatchJob,
        progress: OnProgress = ignore,
        ready: Callable[[], None] = lambda: None,
        *,
        trusted: bool = False,
    ) -> None:
        """Store the job. `progress` reports loading; then `ready` is called. `trusted` skips the fingerprint check."""
        self._job, self._progress, self._ready, self._trusted = job, progress, ready, trusted
        self._inputs = InputTables(Path(job.input))
        self._folder = Path(job.output)
        self._predictor: Predictor | None = None

    def run(self, blocks: Iterable[RowBlock], finished: OnRows = lambda rows, kept: None) -> Iterator[BlockStats]:
        """Yield the statistics of each block once it exists. `finished` is called as rows of a block are finished."""
        for block in blocks:
            table = self._inputs.read(block)
            if table.num_rows != block.rows:
                raise InputError(
                    "changed while the job read it",
                    argument=block.file,
                    code="input_changed",
                    hint="Run again when no process writes to it.",
                )
            name = block_name(block, table, self._job.digest)
            existed = (self._folder / name).exists()
            computed = not (existed and block_is_intact(self._folder, name))
            kept, seconds = self._compute(name, table, finished) if computed else (0, 0.0)
            counts = read_block_counts(self._folder, name)
            repaired = existed and computed
            yield BlockStats(block, name, computed, **counts, kept_rows=kept, seconds=seconds, repaired=repaired)

    def _compute(self, name: str, table: Any, finished: OnRows) -> tuple[int, float]:
        """Compute and write a block. Return the rows that an earlier run had finished, and the seconds of the device.

        Rows are in the journal before they are reported.
        """
        with RowJournal(self._folder, name) as journal:
            kept = len(journal.rows)
            finished(kept, kept)
            if kept < table.num_rows:
                columns = input_columns(table, self._job.spec)
                with closing(self.predictor.compute(columns, journal.rows)) as parts:
                    for part in parts:
                        journal.append(part)
                        finished(len(journal.rows), kept)
            result = in_order(journal.parts)
            write_block(self._folder, name, with_result(table, result))
        journal.remove()
        return kept, result.seconds

    @property
    def predictor(self) -> Predictor:
        """Return the predictor, loading it first if necessary."""
        if self._predictor is None:
            path = Path(self._job.model)
            if not self._trusted and model_fingerprint(path) != self._job.fingerprint:
                raise InputError(
                    "differs from the model that the job was started with",
                    argument=str(path),
                    code="other_model",
                    hint="Every machine needs the same files.",
                )
            adapter = self._job.adapter
            self._predictor = Predictor(path, progress=self._progress, adapter=adapter, **self._job.spec.options())
            self._ready()
        return self._predictor

    def close(self) -> None:
        if self._predictor is not None:
            self._predictor.close()


def input_columns(table: Any, spec: TaskSpec) -> dict[str, list[Any]]:
    """Return the columns that are read.

    Strings become bytes, so that invalid UTF-8 is an error of its row only. Images stay as they are.
    """
    columns = {}
    for name in spec.input_columns:
        column = table.column(name)
        if spec.task != "classify" and str(column.type) in ("string", "large_string", "string_view"):
            column = column.cast("large_binary")
        columns[name] = column.to_pylist()
    return columns

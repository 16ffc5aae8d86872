"""A process that makes blocks: this one, or an actor of Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..progress import OnProgress, ignore
from .identity import job_digest, model_fingerprint
from .output import block_name, read_note, with_made, write_block
from .predictor import Predictor
from .tables import Block, Inputs
from .wanted import Wanted


@dataclass(frozen=True)
class Job:
    """All that a process needs to know, as plain values."""

    model: str
    input: str
    output: str
    block_rows: int
    wanted: Wanted
    fingerprint: str
    adapter: int | None = None  # to compute on; no part of what the job is

    def identity(self) -> dict[str, Any]:
        """What the folder is known by: where files are is no part of it."""
        return {
            "model": self.fingerprint,
            "input": Inputs(Path(self.input)).name,
            "block_rows": self.block_rows,
            "options": self.wanted.identity(),
        }

    @property
    def digest(self) -> str:
        """What a block's name tells beside its rows."""
        return job_digest({"model": self.fingerprint, "options": self.wanted.identity()})


@dataclass(frozen=True)
class Receipt:
    """A block that is there."""

    block: Block
    name: str
    computed: bool  # or found
    rows: int
    failed: int
    tokens: int
    computed_tokens: int
    seconds: float = 0.0  # of the device, if it was computed


class Worker:
    """Makes the blocks that are not there. The model is loaded when the first is missing."""

    def __init__(
        self,
        job: Job,
        progress: OnProgress = ignore,
        ready: Callable[[], None] = lambda: None,
        *,
        trusted: bool = False,
    ) -> None:
        """`progress` is of loading, and `ready` is called behind it. `trusted`: the fingerprint was taken here."""
        self._job, self._progress, self._ready, self._trusted = job, progress, ready, trusted
        self._wanted = job.wanted
        self._inputs = Inputs(Path(job.input))
        self._folder = Path(job.output)
        self._predictor: Predictor | None = None

    def run(self, blocks: Iterable[Block], progress: OnProgress = ignore) -> Iterator[Receipt]:
        for block in blocks:
            table = self._inputs.read(block)
            if table.num_rows != block.rows:
                raise InputError(f"{block.file} has changed while it was read; run again when nobody writes to it")
            name = block_name(block, table, self._job.digest)
            computed = not (self._folder / name).exists()
            seconds = self._make(name, table, progress) if computed else 0.0
            yield Receipt(block, name, computed, **read_note(self._folder, name), seconds=seconds)

    def _make(self, name: str, table: Any, progress: OnProgress) -> float:
        made = self.predictor.predict(columns_of(table, self._wanted), progress)
        write_block(self._folder, name, with_made(table, made))
        return made.seconds

    @property
    def predictor(self) -> Predictor:
        if self._predictor is None:
            path = Path(self._job.model)
            if not self._trusted and model_fingerprint(path) != self._job.fingerprint:
                raise InputError(f"{path} is not the model that the job was begun with; every machine needs the same")
            adapter = self._job.adapter
            self._predictor = Predictor(path, progress=self._progress, adapter=adapter, **self._wanted.options())
            self._ready()
        return self._predictor

    def close(self) -> None:
        if self._predictor is not None:
            self._predictor.close()


def columns_of(table: Any, wanted: Wanted) -> dict[str, list[Any]]:
    """The columns that are read. Texts come as bytes: one that is no UTF-8 is an error of its row only.

    Not where pictures are wanted, whose bytes are those of a file.
    """
    found = {}
    for name in wanted.columns:
        column = table.column(name)
        kind = str(column.type)
        if wanted.task != "classify" and kind in ("string", "large_string", "string_view"):
            column = column.cast("large_binary")
        found[name] = column.to_pylist()
    return found

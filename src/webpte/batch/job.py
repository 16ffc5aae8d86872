"""A job: every row of some files through a model, into a folder. Killed at any moment, it goes on where it was."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from ..errors import InputError
from ..progress import CancelToken, OnProgress, Progress, ignore, stoppable
from ..runtime.checks import PathLike, flag, near, path_of, text, whole
from .identity import model_fingerprint
from .on_ray import Cluster, run_on_ray
from .output import MANIFEST, check_job, sweep, write_json
from .tables import Block, Inputs
from .wanted import Wanted, WantedOptions, wanted_from
from .worker import Job, Receipt, Worker

COUNTS = ("rows", "failed", "tokens", "computed_tokens")
BLOCK_ROWS = {"embed": 1024, "generate": 256, "classify": 256}


@dataclass(frozen=True)
class Report:
    """What a job has done. Seconds and rates are of this run, the rest of all rows."""

    rows: int
    failed: int
    blocks: int
    found: int  # of the blocks, that were there before
    removed: int  # blocks of rows that the input no longer has
    tokens: int
    computed_tokens: int
    computed_rows: int
    seconds: float
    device_seconds: float  # of all actors
    actors: int = 1

    @property
    def padding(self) -> float:
        """The share of computed tokens that are there for nothing."""
        return 1 - self.tokens / self.computed_tokens if self.computed_tokens else 0.0

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.computed_rows / self.seconds if self.seconds else 0.0

    @property
    def device_share(self) -> float:
        """Of the time, how much the device was at work or waited for."""
        return self.device_seconds / (self.seconds * self.actors) if self.seconds else 0.0


def run(
    model: PathLike,
    input: PathLike,
    output: PathLike,
    *,
    block_rows: int | None = None,
    adapter: int | None = None,
    actors: int | None = None,
    address: str | None = None,
    resource: str | None = None,
    gpus: bool = False,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
    **options: Unpack[WantedOptions],
) -> Report:
    """Every row of a parquet, JSON lines or CSV file, or of a folder of them, into parquet files in a folder.

    `options` are those of `Predictor`. Rows are cut into blocks of up to `block_rows`; a block that is in the folder
    already, made of the same rows, is not computed again. At the end `_manifest.json` lists all.

    With `actors`, or an `address` of a cluster, Ray Data computes them in so many processes; each takes one of the
    custom `resource` of that name, or with `gpus` a GPU of Ray's, and computes on the adapter of its number.
    """
    path = Path(path_of(model, "model"))
    wanted = wanted_from(path, options)
    rows = BLOCK_ROWS[wanted.task] if block_rows is None else whole(block_rows, "block_rows", 1)
    source, folder = Path(path_of(input, "input")), Path(path_of(output, "output"))
    inputs = Inputs(source)
    _check_columns(inputs, wanted)
    cluster = _cluster(actors, address, resource, gpus)
    job = Job(str(path), str(source), str(folder), rows, wanted, model_fingerprint(path), adapter)
    check_job(folder, job.identity())
    blocks = list(inputs.blocks(rows))
    meter = Meter(sum(block.rows for block in blocks), stoppable(progress, cancel), cluster.actors if cluster else 1)
    found = _here(job, blocks, meter) if cluster is None else run_on_ray(_absolute(job), blocks, cluster)
    receipts = {}
    for receipt in found:
        meter.add(receipt)
        receipts[receipt.block] = receipt
    return _finish(job, inputs, [receipts[block] for block in blocks], meter)


def _here(job: Job, blocks: Sequence[Block], meter: Meter) -> Iterator[Receipt]:
    """All blocks in this process."""
    worker = Worker(job, meter.progress, meter.begin, trusted=True)
    try:
        yield from worker.run(blocks, meter.within)
    finally:
        worker.close()


def _cluster(actors: int | None, address: str | None, resource: str | None, gpus: bool) -> Cluster | None:
    if actors is None and address is None:
        if resource is not None or gpus:
            raise InputError(
                "resource and gpus say what each of Ray's actors takes; give actors, or an address",
                code="missing_option",
            )
        return None
    many = 1 if actors is None else whole(actors, "actors", 1)
    for name, value in (("address", address), ("resource", resource)):
        if value is not None:
            text(value, name, "auto" if name == "address" else "webgpu")
    return Cluster(many, address, resource, flag(gpus, "gpus"))


def _absolute(job: Job) -> Job:
    """For processes that begin in other folders."""
    paths = {name: os.path.abspath(getattr(job, name)) for name in ("model", "input", "output")}
    return replace(job, **paths)


def _check_columns(inputs: Inputs, wanted: Wanted) -> None:
    """Whether every file has what is read, and nothing of the names that are written; before anything is loaded."""
    for file in inputs.files:
        names = inputs.schema(file).names
        for name in wanted.columns:
            if name not in names:
                known = ", ".join(names)
                raise InputError(
                    f"{file} has no column {name!r}{near(name, names)}; it has {known}. Give --column",
                    code="unknown_column",
                )
            if names.count(name) > 1:
                raise InputError(
                    f"{file}: expected one column {name!r}, got {names.count(name)}. Rename the others.",
                    code="ambiguous_column",
                )
        if taken := [name for name in wanted.made if name in names]:
            raise InputError(
                f"{file} has a column {taken[0]!r} already; rename it, or give --output-column", code="column_exists"
            )


def _finish(job: Job, inputs: Inputs, receipts: Sequence[Receipt], meter: Meter) -> Report:
    """The manifest, which holds no times: an interrupted job ends with the same bytes as any other."""
    sums = {
        name: sum(getattr(one, name) for one in receipts) for name in ("rows", "failed", "tokens", "computed_tokens")
    }
    manifest: dict[str, Any] = job.identity() | sums | {"files": inputs.files}
    manifest["blocks"] = [_listed(receipt) for receipt in receipts]
    folder = Path(job.output)
    write_json(folder / MANIFEST, manifest)
    removed = sweep(folder, {receipt.name for receipt in receipts})
    found = sum(not receipt.computed for receipt in receipts)
    return Report(
        blocks=len(receipts),
        found=found,
        removed=removed,
        computed_rows=meter.computed,
        seconds=meter.seconds,
        device_seconds=meter.device,
        actors=meter.workers,
        **sums,
    )


def _listed(receipt: Receipt) -> Mapping[str, Any]:
    return {**asdict(receipt.block), "output": receipt.name, "failed": receipt.failed}


class Meter:
    """Rows as they are done, with the rate, the time that is left and the device's share of the time."""

    def __init__(self, total: int, progress: OnProgress, workers: int = 1) -> None:
        self.progress = progress
        self.workers = workers
        self._total = total
        self._done = 0
        self.computed = 0  # rows, in this run
        self.device = 0.0  # seconds
        self._share = ""
        self.begin()

    def begin(self) -> None:
        """From now on rows are computed: loading is no part of their rate."""
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def within(self, event: Progress) -> None:
        """Rows of the block that is being made."""
        self._tell(event.done)

    def add(self, receipt: Receipt) -> None:
        self._done += receipt.rows
        self.computed += receipt.rows if receipt.computed else 0
        self.device += receipt.seconds
        if self.device:
            self._share = f", device {min(self.device / self.seconds / self.workers, 1):.0%}"
        self._tell(0)

    def _tell(self, more: int) -> None:
        done, computed = self._done + more, self.computed + more
        rate = computed / self.seconds
        note = ""
        if computed:
            left = round((self._total - done) / rate)
            note = f"{rate:.4g} rows/s, {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
            note += self._share
        self.progress(Progress("rows", done, self._total, "rows", note))

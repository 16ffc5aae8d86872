"""Resumable jobs: run a model over every row of some files, into a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from ..errors import InputError
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from ..runtime.checks import check_bool, check_int, check_path, check_str, did_you_mean
from ..typing import PathLike
from .on_ray import Cluster, run_on_ray
from .output import COUNTS, MANIFEST_FILE, block_name, check_job, remove_stale_blocks, write_json
from .output_file import blocks_folder, check_one_schema, is_file_name, read_finished, remove_blocks, write_file
from .tables import InputTables, RowBlock
from .task_spec import TaskOptions, TaskSpec, model_fingerprint, task_spec
from .worker import BatchJob, BatchWorker, BlockStats

DEFAULT_BLOCK_ROWS = {"embed": 1024, "generate": 256, "classify": 256}


@dataclass(frozen=True)
class BatchReport:
    """The totals of a job. Seconds and rates are of this run, the other numbers of all rows."""

    rows: int
    failed: int
    blocks: int
    reused_blocks: int  # that an earlier run had finished
    removed_blocks: int  # of rows that the input no longer has
    tokens: int
    computed_tokens: int  # with padding
    computed_rows: int
    seconds: float
    device_seconds: float  # of all actors
    actors: int = 1
    repaired_blocks: int = 0  # that were damaged or had no checksum, and were computed again

    @property
    def reused_rows(self) -> int:
        """Return the number of rows that earlier runs had finished."""
        return self.rows - self.computed_rows

    @property
    def padding(self) -> float:
        """Return the share of computed tokens that are padding."""
        return 1 - self.tokens / self.computed_tokens if self.computed_tokens else 0.0

    @property
    def rate(self) -> float:
        """Return the computed rows per second."""
        return self.computed_rows / self.seconds if self.seconds else 0.0

    @property
    def device_share(self) -> float:
        """Return the share of the time in which the device was busy or waited for."""
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
    **options: Unpack[TaskOptions],
) -> BatchReport:
    """Run a model over every row of a parquet, JSON lines or CSV file, or of a folder of them.

    `output` is a folder of parquet files, or one file if its name ends in `.parquet`.

    `options` are those of `Predictor`. The job is resumable: each row is kept as soon as it is finished. Rows are
    divided into blocks of up to `block_rows`. A block that the folder already holds for the same rows is not computed
    again, if its checksum is right. `_manifest.json` is written last and lists all blocks.

    With `actors`, or the `address` of a cluster, Ray Data runs `actors` processes. Each takes one unit of the custom
    `resource`, or with `gpus` one of Ray's GPUs, and computes on the adapter with the same number.
    """
    path = Path(check_path(model, "model"))
    spec = task_spec(path, options)
    rows = DEFAULT_BLOCK_ROWS[spec.task] if block_rows is None else check_int(block_rows, "block_rows", 1)
    source, target = Path(check_path(input, "input")), Path(check_path(output, "output"))
    file = target if is_file_name(target) else None
    inputs = InputTables(source)
    _check_columns(inputs, spec)
    if file is not None:
        check_one_schema(inputs)
    cluster = _cluster(actors, address, resource, gpus)
    job = BatchJob(
        model=str(path),
        input=str(source),
        output=str(target if file is None else blocks_folder(file)),
        block_rows=rows,
        spec=spec,
        fingerprint=model_fingerprint(path),
        adapter=adapter,
    )
    blocks = list(inputs.blocks(rows))
    workers = cluster.actors if cluster else 1
    if file is not None and file.exists():
        return _finished_file(job, inputs, blocks, file)
    check_job(Path(job.output), job.identity())
    meter = ProgressMeter(sum(block.rows for block in blocks), cancellable(progress, cancel), workers)
    finished = _run_here(job, blocks, meter) if cluster is None else run_on_ray(_absolute(job), blocks, cluster)
    stats = {}
    for block_stats in finished:
        meter.add(block_stats)
        stats[block_stats.block] = block_stats
    return _finish(job, inputs, [stats[block] for block in blocks], meter, file)


def _finished_file(job: BatchJob, inputs: InputTables, blocks: Sequence[RowBlock], file: Path) -> BatchReport:
    """Return the report of a job whose file exists already, after a check that it is of this job and these rows."""
    names = [block_name(block, inputs.read(block), job.digest) for block in blocks]
    counts = read_finished(file, job.identity(), names)
    remove_blocks(file)  # if the run that wrote the file was killed before it could
    return BatchReport(
        blocks=len(blocks),
        reused_blocks=len(blocks),
        removed_blocks=0,
        computed_rows=0,
        seconds=0.0,
        device_seconds=0.0,
        **counts,
    )


def _run_here(job: BatchJob, blocks: Sequence[RowBlock], meter: ProgressMeter) -> Iterator[BlockStats]:
    """Compute all blocks in this process."""
    worker = BatchWorker(job, meter.progress, meter.start, trusted=True)
    try:
        yield from worker.run(blocks, meter.report_block)
    finally:
        worker.close()


def _cluster(actors: int | None, address: str | None, resource: str | None, gpus: bool) -> Cluster | None:
    if actors is None and address is None:
        if resource is not None or gpus:
            raise InputError(
                "resource and gpus are options of Ray actors",
                code="missing_option",
                hint="Set actors or address too.",
            )
        return None
    count = 1 if actors is None else check_int(actors, "actors", 1)
    for name, value in (("address", address), ("resource", resource)):
        if value is not None:
            check_str(value, name, "auto" if name == "address" else "webgpu")
    return Cluster(count, address, resource, check_bool(gpus, "gpus"))


def _absolute(job: BatchJob) -> BatchJob:
    """Return the job with absolute paths, for processes with other working directories."""
    paths = {name: os.path.abspath(getattr(job, name)) for name in ("model", "input", "output")}
    return replace(job, **paths)


def _check_columns(inputs: InputTables, spec: TaskSpec) -> None:
    """Check that every file has the input columns and none of the output columns."""
    for file in inputs.files:
        names = inputs.schema(file).names
        for name in spec.input_columns:
            if name not in names:
                raise InputError(
                    f"no column {name!r}{did_you_mean(name, names)}",
                    argument=file,
                    code="unknown_column",
                    hint=f"Its columns: {', '.join(names)}. Correct "
                    f"{'--column' if spec.prompt_template is None else '--prompt-template'}.",
                )
            if names.count(name) > 1:
                raise InputError(
                    argument=file,
                    expected=f"one column {name!r}",
                    got=names.count(name),
                    code="ambiguous_column",
                    hint="Rename the others.",
                )
        if taken := [name for name in spec.output_columns if name in names]:
            raise InputError(
                f"column {taken[0]!r} exists already",
                argument=file,
                code="column_exists",
                hint="Rename it, or set output_column (--output-column).",
            )


def _finish(
    job: BatchJob, inputs: InputTables, stats: Sequence[BlockStats], meter: ProgressMeter, file: Path | None
) -> BatchReport:
    """Write the manifest, or the output file, and return the report.

    Neither has times: a resumed job ends with the same bytes.
    """
    totals = {name: sum(getattr(block, name) for block in stats) for name in COUNTS}
    manifest: dict[str, Any] = job.identity() | totals | {"files": inputs.files}
    manifest["blocks"] = [{**asdict(one.block), "output": one.name, "failed": one.failed} for one in stats]
    folder = Path(job.output)
    write_json(folder / MANIFEST_FILE, manifest)
    removed = remove_stale_blocks(folder, {block.name for block in stats})
    if file is not None:
        write_file(file, folder, job.identity(), totals, [block.name for block in stats])
    return BatchReport(
        blocks=len(stats),
        reused_blocks=sum(not block.computed for block in stats),
        repaired_blocks=sum(block.repaired for block in stats),
        removed_blocks=removed,
        computed_rows=meter.computed_rows,
        seconds=meter.seconds,
        device_seconds=meter.device_seconds,
        actors=meter.workers,
        **totals,
    )


class ProgressMeter:
    """Reports finished rows with the rate, the remaining time and the device's share of the time."""

    def __init__(self, total: int, progress: OnProgress, workers: int = 1) -> None:
        self.progress = progress
        self.workers = workers
        self._total = total
        self._done = 0
        self.computed_rows = 0  # in this run
        self.device_seconds = 0.0
        self._device_note = ""
        self.start()

    def start(self) -> None:
        """Start the clock. It starts again after the model is loaded, which does not count in the rate."""
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def report_block(self, rows: int, kept: int) -> None:
        """Report the finished rows of the block that is being computed. An interrupted run had finished `kept`."""
        self._report(rows, rows - kept)

    def add(self, stats: BlockStats) -> None:
        """Count a finished block, and report."""
        self._done += stats.rows
        self.computed_rows += stats.rows - stats.kept_rows if stats.computed else 0
        self.device_seconds += stats.seconds
        if self.device_seconds:
            self._device_note = f", device {min(self.device_seconds / self.seconds / self.workers, 1):.0%}"
        self._report(0, 0)

    def _report(self, block_rows: int, computed_block_rows: int) -> None:
        done, computed = self._done + block_rows, self.computed_rows + computed_block_rows
        note, seconds_left = "", None
        if computed:
            rate = computed / self.seconds
            seconds_left = (self._total - done) / rate
            note = f"{rate:.4g} rows/s{self._device_note}"
        self.progress(Progress("rows", done, self._total, "rows", note, seconds_left))

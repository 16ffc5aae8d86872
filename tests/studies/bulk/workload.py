"""Inputs of the bulk proofs: encoders and tables of sentences, timed runs, and the report of a run."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from tests.support.harness.bulk import texts, write_parquet
from webpte.batch import BatchReport, run
from webpte.progress import Progress

ROW_GROUP = 5000
Figures = dict[str, Any]  # what a proof measured


def encoder(options: argparse.Namespace) -> Path:
    """MiniLM, or a small encoder of random weights, which takes seconds where MiniLM takes minutes."""
    if options.tiny:
        from tests.support.models.task_checkpoints import exported

        return exported("bert") / "model.pte"
    from tests.support.models.example_models import semantic_search

    return semantic_search() / "minilm.pte"


def sentences(options: argparse.Namespace, rows: int) -> list[str]:
    """Return sentences of 3 to about 70 tokens, 13 on average, or of at most 20 for the small encoder."""
    return texts(rows, mean=1.6, most=18) if options.tiny else texts(rows, mean=2.3, most=70)


def table(folder: Path, options: argparse.Namespace) -> Path:
    return write_parquet(folder / "texts.parquet", sentences(options, options.rows), row_group=ROW_GROUP)


def blocks_in(folder: Path) -> int:
    """Return the number of finished blocks."""
    return len(list(folder.rglob("g*.parquet")))


def timed_run(model: Path, source: Path, out: Path, **options: Any) -> tuple[BatchReport, float, float]:
    """A job in one process, with its seconds by the clock and of processors, after the last event of loading."""
    loaded = (0.0, 0.0)

    def progress(event: Progress) -> None:
        nonlocal loaded
        if event.stage != "rows":
            loaded = time.perf_counter(), time.process_time()

    report = run(model, source, out, progress=progress, **options)
    return report, time.perf_counter() - loaded[0], time.process_time() - loaded[1]


def print_report(name: str, report: BatchReport) -> None:
    rate = f", {report.rate:.2f} rows/s, device {report.device_share:.0%}" if report.computed_rows else ""
    print(
        f"{name}: {report.rows} rows, {report.failed} failed, {report.reused_blocks} of {report.blocks} blocks found, "
        f"{report.computed_rows} rows computed in {report.seconds:.1f} s{rate}, padding {report.padding:.1%}",
        flush=True,
    )

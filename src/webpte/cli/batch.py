"""Run a model over every row of a parquet, JSON lines or CSV file, or of a folder of such files.

A finished row is kept at once. An interrupted or killed run resumes when the same command is started again.
Errors are per row: a row that fails has a message in the column `error`.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from ..batch import BatchReport
from ..batch import run as run_job
from ..batch.output_file import blocks_folder, is_file_name
from ..batch.task_spec import TASKS
from ..progress import OnProgress, Progress
from ..sources import is_checkpoint, is_remote
from ..text import duration, plural, shell_word
from . import interrupts
from .generation_options import add_constraints, add_parse_special, add_sampling, constraints, settings
from .output import print_json, say
from .parsing import add_json, add_max_context, check_folder, check_input, check_output, integer
from .programs import open_source
from .terminal import bars


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a .pte program, or the checkpoint of a language model")
    parser.add_argument("input", metavar="IN", help="a .parquet, .jsonl or .csv file, or a folder of such files")
    parser.add_argument("output", metavar="OUT", help="a folder for parquet files, or one .parquet file")
    parser.add_argument("--task", choices=TASKS, help="what to compute (the program's task)")
    parser.add_argument("--column", default="text", metavar="NAME", help="column of texts, tokens or images (text)")
    parser.add_argument("--output-column", metavar="NAME", help="column to write (embedding, generated or label)")
    parser.add_argument("--block-rows", type=integer(1), metavar="N", help="rows of a block (1024 for embed, else 256)")
    parser.add_argument("--adapter", type=integer(0), metavar="N", help="number of the adapter in webpte doctor")
    add_max_context(parser)
    add_json(parser, "print the summary as JSON")
    many = parser.add_argument_group("several processes, with Ray Data")
    many.add_argument("--actors", type=integer(1), metavar="N", help="number of processes, each with the model")
    many.add_argument("--address", help="address of a Ray cluster, or auto (a local cluster is started)")
    many.add_argument("--resource", metavar="NAME", help="a custom resource, of which each actor takes one")
    many.add_argument(
        "--gpus", action="store_true", help="give each actor a GPU of Ray's, and the adapter of its number"
    )
    embed = parser.add_argument_group("embed")
    prefix = embed.add_mutually_exclusive_group()
    prefix.add_argument("--prompt", metavar="NAME", help="name of one of the model's prompts, put before every text")
    prefix.add_argument("--prefix", metavar="TEXT", help="another text to put before every text")
    embed.add_argument("--truncate", action="store_true", help="truncate texts that are too long (their rows fail)")
    generate = parser.add_argument_group("generate")
    generate.add_argument("--prompt-template", metavar="TEXT", help="a prompt with columns: 'Summarize: {text}'")
    generate.add_argument(
        "--image-column", metavar="NAME", help="column of images, as bytes, that the prompts are about"
    )
    generate.add_argument("--system", metavar="TEXT", help="the system message")
    generate.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    add_parse_special(generate)
    add_sampling(parser)
    add_constraints(parser)


def run(arguments: argparse.Namespace) -> int:
    if not is_checkpoint(arguments.file) and not is_remote(arguments.file):
        check_input("file", arguments.file)
    check_input("IN", arguments.input)
    output = Path(arguments.output)
    if is_file_name(output):
        check_output("OUT", arguments.output)
    else:
        check_folder("OUT", arguments.output)
    options: dict[str, Any] = {
        "task": arguments.task,
        "column": arguments.column,
        "output_column": arguments.output_column,
        "prompt": arguments.prompt,
        "prefix": arguments.prefix,
        "truncate": arguments.truncate,
        "prompt_template": arguments.prompt_template,
        "image_column": arguments.image_column,
        "system": arguments.system,
        "raw": arguments.raw,
        "parse_special": arguments.parse_special,
        "settings": settings(arguments, **constraints(arguments)),
    }
    rows = RowCounter(blocks_folder(output) if is_file_name(output) else output)
    with rows.reported_if_stopped(), bars() as progress:
        report = run_job(
            open_source(arguments.file, progress, arguments.max_context),
            arguments.input,
            arguments.output,
            block_rows=arguments.block_rows,
            adapter=arguments.adapter,
            actors=arguments.actors,
            address=arguments.address,
            resource=arguments.resource,
            gpus=arguments.gpus,
            progress=rows.counting(progress),
            **options,
        )
    if arguments.json:
        print_json(_report(report))
    else:
        print(summary(report), file=sys.stderr)
    return 0


class RowCounter:
    """Counts the rows that a job has finished, and prints how many are kept if it is stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: Progress | None = None

    def counting(self, progress: OnProgress) -> OnProgress:
        """Return a progress callback that also counts rows. Events arrive after their rows are kept."""

        def count(event: Progress) -> None:
            if event.stage == "rows":
                self._last = event
            progress(event)

        return count

    @contextlib.contextmanager
    def reported_if_stopped(self) -> Iterator[None]:
        """Print how many rows are kept if this context is left by an interrupt or an error."""
        with interrupts.before_the_end(self._report):
            try:
                yield
            except BaseException:
                self._report()
                raise

    def _report(self) -> None:
        last, self._last = self._last, None
        if last is None:
            return
        where = f"{last.done} of {plural(last.total, 'row')} are kept in {shell_word(self._folder)}"
        say(f"[stopped: {where}. Run the same command again to compute the others]", error=True)


class BatchSummary(TypedDict):
    """The totals of a job. Seconds and rates are of this run, the other numbers of all rows."""

    rows: Annotated[int, "of all blocks"]
    failed: Annotated[int, "rows with an error"]
    blocks: int
    reused_blocks: Annotated[int, "blocks that an earlier run had finished"]
    removed_blocks: Annotated[int, "blocks of rows that the input no longer has"]
    tokens: Annotated[int, "of all rows, those of earlier runs too"]
    computed_tokens: Annotated[int, "the same, with padding"]
    computed_rows: Annotated[int, "in this run"]
    seconds: Annotated[float, "of this run"]
    device_seconds: Annotated[float, "of all actors"]
    actors: int
    repaired_blocks: Annotated[int, "blocks that were damaged or had no checksum, and were computed again"]
    rate: Annotated[float, "rows a second"]
    padding: Annotated[float, "share of computed tokens that are padding"]
    device_share: Annotated[float, "share of the time in which devices were busy or waited for"]


def _report(report: BatchReport) -> BatchSummary:
    return {
        "rows": report.rows,
        "failed": report.failed,
        "blocks": report.blocks,
        "reused_blocks": report.reused_blocks,
        "removed_blocks": report.removed_blocks,
        "tokens": report.tokens,
        "computed_tokens": report.computed_tokens,
        "computed_rows": report.computed_rows,
        "seconds": report.seconds,
        "device_seconds": report.device_seconds,
        "actors": report.actors,
        "repaired_blocks": report.repaired_blocks,
        "rate": report.rate,
        "padding": report.padding,
        "device_share": report.device_share,
    }


def summary(report: BatchReport) -> str:
    """Return a one-line summary. Rows that failed do not fail the job."""
    parts = [f"{plural(report.rows, 'row')}, {report.failed} failed; {plural(report.blocks, 'block')}"]
    if report.reused_rows:
        parts.append(f"{plural(report.reused_rows, 'row')} already done")
    if report.repaired_blocks:
        parts.append(f"{report.repaired_blocks} damaged or without a checksum, computed again")
    if report.removed_blocks:
        parts.append(f"{report.removed_blocks} removed, because their rows changed")
    if report.computed_rows:
        rate = f"{plural(report.computed_rows, 'row')} in {duration(report.seconds)}, {report.rate:.4g} rows/s"
        parts.append(f"{rate}, device {min(report.device_share, 1):.0%}")
        if report.computed_tokens:
            parts.append(f"padding {report.padding:.1%}")
    return f"[{'; '.join(parts)}]"

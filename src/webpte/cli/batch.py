"""Embed, answer or classify every row of a parquet, JSON lines or CSV file, or of a folder of them.

Rows are cut into blocks, each written whole or not at all: a run that was killed goes on where it was when it is
started again. Rows that fail have a message in the column `error`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from ..batch import BatchReport
from ..batch import run as run_job
from ..batch.task_spec import TASKS
from ..text import duration
from .generation_options import add_constraints, add_parse_special, add_sampling, constraints, settings
from .output import print_json
from .parsing import check_folder, check_input, whole
from .terminal import bars


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program")
    parser.add_argument("input", metavar="IN", help="a .parquet, .jsonl or .csv file, or a folder of them")
    parser.add_argument("output", metavar="OUT", help="the folder for blocks of rows, in parquet, and _manifest.json")
    parser.add_argument("--task", choices=TASKS, help="what to make of rows (what the program is for)")
    parser.add_argument("--column", default="text", metavar="NAME", help="of texts, tokens or pictures (text)")
    parser.add_argument("--output-column", metavar="NAME", help="the column to write (embedding, generated, label)")
    parser.add_argument("--block-rows", type=whole(1), metavar="N", help="rows of a block (embed 1024, else 256)")
    parser.add_argument("--adapter", type=whole(0), metavar="N", help="the one of that number in `webpte doctor`")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    many = parser.add_argument_group("many processes, by Ray Data")
    many.add_argument("--actors", type=whole(1), metavar="N", help="processes that each hold the model")
    many.add_argument("--address", help="of a Ray cluster, or auto; unless given one is started here for the while")
    many.add_argument("--resource", metavar="NAME", help="a custom resource, of which each actor takes one")
    many.add_argument(
        "--gpus", action="store_true", help="an actor takes a GPU of Ray's, and the adapter of its number"
    )
    embed = parser.add_argument_group("embed")
    before = embed.add_mutually_exclusive_group()
    before.add_argument("--prompt", metavar="NAME", help="what the model wants before texts, by its name for it")
    before.add_argument("--prefix", metavar="TEXT", help="any other text to put before every text")
    embed.add_argument("--truncate", action="store_true", help="cut texts that are too long; else their rows fail")
    generate = parser.add_argument_group("generate")
    generate.add_argument("--prompt-template", metavar="TEXT", help="a prompt with columns in it: 'Summarise: {text}'")
    generate.add_argument("--system", metavar="TEXT", help="instructions that stand before the prompt")
    generate.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    add_parse_special(generate)
    add_sampling(parser)
    add_constraints(parser)


def run(arguments: argparse.Namespace) -> int:
    check_input("file", arguments.file)
    check_input("IN", arguments.input)
    check_folder("OUT", arguments.output)
    options: dict[str, Any] = {
        "task": arguments.task,
        "column": arguments.column,
        "output_column": arguments.output_column,
        "prompt": arguments.prompt,
        "prefix": arguments.prefix,
        "truncate": arguments.truncate,
        "prompt_template": arguments.prompt_template,
        "system": arguments.system,
        "raw": arguments.raw,
        "parse_special": arguments.parse_special,
        "settings": settings(arguments, **constraints(arguments)),
    }
    with bars() as progress:
        report = run_job(
            arguments.file,
            arguments.input,
            arguments.output,
            block_rows=arguments.block_rows,
            adapter=arguments.adapter,
            actors=arguments.actors,
            address=arguments.address,
            resource=arguments.resource,
            gpus=arguments.gpus,
            progress=progress,
            **options,
        )
    if arguments.json:
        shares = {name: getattr(report, name) for name in ("rate", "padding", "device_share")}
        print_json(asdict(report) | shares)
    else:
        print(summary(report), file=sys.stderr)
    return 0


def summary(report: BatchReport) -> str:
    """What was done, in a line; rows that failed are no failure of the job."""
    parts = [f"{report.rows} rows, {report.failed} failed; blocks: {report.blocks}"]
    if report.reused_blocks:
        parts.append(f"{report.reused_blocks} were there")
    if report.removed_blocks:
        parts.append(f"{report.removed_blocks} removed, whose rows have changed or gone")
    if report.computed_rows:
        rate = f"{report.computed_rows} rows in {duration(report.seconds)}, {report.rate:.4g} rows/s"
        parts.append(f"{rate}, device {min(report.device_share, 1):.0%}")
        if report.computed_tokens:
            parts.append(f"padding {report.padding:.1%}")
    return f"[{'; '.join(parts)}]"

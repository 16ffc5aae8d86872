"""Export a checkpoint (a folder with config.json and safetensors, a .gguf file or hf:org/name) to a .pte program."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..export import ExportWarning, export_checkpoint
from ..export.kinds import Exported
from ..export.placing import discard
from ..export.report import quality_lines, read_quality
from ..text import size
from . import interrupts
from .output import print_json, say
from .parsing import real, whole
from .terminal import bars

# Those given are passed on: which of them a model takes, and what each is without being given, its exporter knows.
_QUANTISING = ("quantize", "budget", "group_size", "embedding", "head", "calibrate")
_OPTIONS = (*_QUANTISING, "max_context", "max_tokens", "max_batch", "pooling", "image_size", "quality")

_SOURCE = ("repository", "revision", "commit")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the checkpoint: a folder, a .gguf file or hf:org/name[@revision]")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the .pte program to write")
    parser.add_argument(
        "--quantize",
        choices=("4w", "8w", "8da4w", "auto"),
        help="weights in 4 or 8 bits; 8da4w also rounds activations; auto: 8 bits where --budget allows",
    )
    parser.add_argument("--budget", type=real(above=4), metavar="BITS", help="bits per weight, with --quantize auto")
    parser.add_argument("--group-size", type=whole(0), metavar="N", help="weights that share a scale (32)")
    parser.add_argument("--embedding", metavar="BITS,GROUP", help="the embedding: 8, 4,32 or none (8 with --quantize)")
    parser.add_argument("--head", choices=("4", "8", "none"), help="the output layer: 4 is as the others (8)")
    reading = parser.add_mutually_exclusive_group()
    reading.add_argument("--calibrate", metavar="FILE", help="a text that weights are rounded for (a built-in one)")
    reading.add_argument(
        "--no-calibrate", dest="calibrate", action="store_false", default=None, help="round each weight by itself"
    )
    parser.add_argument("--max-context", type=whole(2), metavar="N", help="tokens the KV cache holds (1024)")
    parser.add_argument("--max-tokens", type=whole(2), metavar="N", help="bound of tokens in one call (256)")
    parser.add_argument("--max-batch", type=whole(1), metavar="N", help="texts or pictures in one call, of a task")
    parser.add_argument("--pooling", choices=("mean", "cls", "max", "last"), help="of an encoder that does not say")
    parser.add_argument(
        "--quality",
        action=argparse.BooleanOptionalAction,
        help="measure what is quantised against the float model (unless that has over 2 GB)",
    )
    parser.add_argument("--jobs", type=whole(1), metavar="N", help="threads (one for each core)")
    parser.add_argument("--image-size", metavar="HxW", help="to which a detector's pictures are stretched, as 480x640")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(arguments: argparse.Namespace) -> None:
    given = {name: getattr(arguments, name) for name in _OPTIONS if getattr(arguments, name) is not None}
    # ExecuTorch prints as it works; our own output is what was written, and may be JSON.
    tidy = interrupts.before_the_end(lambda: discard(Path(arguments.output)))
    with _warned(), bars() as progress, tidy, contextlib.redirect_stdout(sys.stderr):
        made = export_checkpoint(arguments.file, arguments.output, jobs=arguments.jobs, **given, progress=progress)
    if arguments.json:
        print_json(_report(made))
        return
    for file in made.files:
        say(f"{file}  {size(os.path.getsize(file))}")
    for line in quality_lines(read_quality(made.files) or {}):
        say(line)
    _say_stages(made)


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    """What the exporter warns of is said on stderr, once its bars are gone; other warnings are shown as ever."""
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", ExportWarning)
        show = warnings.showwarning

        def keep(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, ExportWarning):
                told.append(str(message))
            else:
                show(message, category, *where, **more)

        warnings.showwarning = keep
        yield
    for text in told:
        say(f"warning: {text}", error=True)


def _report(made: Exported) -> dict[str, Any]:
    fetched = made.fetched
    return {
        "files": [{"path": str(file), "bytes": os.path.getsize(file)} for file in made.files],
        "seconds": round(made.seconds, 3),
        "peak_memory": made.peak_memory,
        "stages": [asdict(stage) | {"seconds": round(stage.seconds, 3)} for stage in made.stages],
        "quality": read_quality(made.files),
        "source": None if fetched is None else {name: getattr(fetched, name) for name in _SOURCE},
    }


def _say_stages(made: Exported) -> None:
    """On stderr, as all that tells how the work went."""
    for stage in made.stages:
        memory = "" if stage.peak_memory is None else f"  {size(stage.peak_memory)}"
        say(f"{stage.name:<14} {stage.seconds:7.1f} s{memory}", error=True)
    most = made.peak_memory
    say(f"exported in {made.seconds:.0f} s" + ("" if most is None else f", memory {size(most)} at most"), error=True)
    if made.fetched is not None:
        say(f"from {made.fetched.repository} at {made.fetched.commit}", error=True)

"""Export a checkpoint (a folder with config.json and safetensors, a .gguf file, or hf:org/name) to a .pte program."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict, cast

from ..builder.report import quality_lines, read_quality
from ..export import ExportWarning, export_checkpoint
from ..export.dispatch import ExportResult
from ..text import size
from .output import print_json, say
from .parsing import add_json, integer, number
from .terminal import bars

# Passed on if given. The exporter of each model knows which of them it takes, and their defaults.
_QUANTIZATION = ("quantize", "bits_per_weight", "group_size", "embedding", "lm_head", "calibrate")
_OPTIONS = (*_QUANTIZATION, "max_context", "max_tokens", "max_batch", "pooling", "image_size", "quality")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the checkpoint: a folder, a .gguf file or hf:org/name[@revision]")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the .pte program to write")
    parser.add_argument(
        "--quantize",
        choices=("4w", "8w", "8da4w", "auto", "checkpoint"),
        help="weights in 4 or 8 bits; 8da4w also quantizes activations; auto uses 8 bits within --bits-per-weight; "
        "checkpoint chooses formats that suit those of the checkpoint",
    )
    parser.add_argument(
        "--bits-per-weight",
        type=number(above=4),
        metavar="BITS",
        help="average size of a weight, with --quantize auto",
    )
    parser.add_argument("--group-size", type=integer(0), metavar="N", help="weights per scale (32)")
    parser.add_argument(
        "--embedding", metavar="BITS,GROUP", help="bits of the embedding: 8, 4,32 or none (8 with --quantize)"
    )
    parser.add_argument(
        "--lm-head",
        choices=("4", "8", "none"),
        help="bits of the output layer; 4 is as the other layers (8)",
    )
    calibration = parser.add_mutually_exclusive_group()
    calibration.add_argument(
        "--calibrate", metavar="FILE", help="a text for calibration of the weights (a built-in text)"
    )
    calibration.add_argument(
        "--no-calibrate", dest="calibrate", action="store_false", default=None, help="round each weight on its own"
    )
    parser.add_argument(
        "--max-context", type=integer(2), metavar="N", help="tokens of the KV cache (the model's own, at most 8192)"
    )
    parser.add_argument(
        "--max-prefill",
        dest="max_tokens",
        type=integer(2),
        metavar="N",
        help="maximum tokens of one call (256, or the context)",
    )
    parser.add_argument(
        "--max-batch", type=integer(1), metavar="N", help="maximum texts or images of one call, for tasks"
    )
    parser.add_argument(
        "--pooling", choices=("mean", "cls", "max", "last"), help="pooling of an encoder whose checkpoint has none"
    )
    parser.add_argument(
        "--quality",
        action=argparse.BooleanOptionalAction,
        help="measure the program of a language model against the float model",
    )
    parser.add_argument(
        "--task", choices=("reranking",), help="make a language model a reranker, such as Qwen3-Reranker"
    )
    parser.add_argument("--jobs", type=integer(1), metavar="N", help="number of threads (one per core)")
    parser.add_argument("--image-size", metavar="HxW", help="input size of a detector, such as 480x640")
    add_json(parser, "print the files and measurements as JSON")


def run(arguments: argparse.Namespace) -> None:
    options = {name: getattr(arguments, name) for name in _OPTIONS if getattr(arguments, name) is not None}
    # ExecuTorch prints to stdout, which is for our own output and may be JSON.
    with _warnings_after(), bars() as progress, contextlib.redirect_stdout(sys.stderr):
        exported = export_checkpoint(
            arguments.file,
            arguments.output,
            task=arguments.task,
            jobs=arguments.jobs,
            **options,
            progress=progress,
        )
    if arguments.json:
        print_json(_report(exported))
        return
    for file in exported.files:
        say(f"{file}  {size(os.path.getsize(file))}")
    for line in quality_lines(read_quality(exported.files) or {}):
        say(line)
    _print_stages(exported)


@contextlib.contextmanager
def _warnings_after() -> Iterator[None]:
    """Print the exporter's warnings on stderr after its progress bars. Other warnings are handled as usual."""
    messages: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", ExportWarning)
        show = warnings.showwarning

        def keep(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, ExportWarning):
                messages.append(str(message))
            else:
                show(message, category, *where, **more)

        warnings.showwarning = keep
        yield
    for text in messages:
        say(f"warning: {text}", error=True)


PeakMemory = Annotated[int | None, "bytes the process had at most; null if the system does not report it"]
OPEN = {"additionalProperties": True}  # for the objects of quality files, which have more


class ExportedFile(TypedDict):
    """A file that was written."""

    path: str
    bytes: int


class StageReport(TypedDict):
    """A stage of an export."""

    name: str
    seconds: float
    peak_memory: PeakMemory


class QuantizedReport(TypedDict, total=False):
    """What was quantized."""

    bits_per_weight: Annotated[float, "of linear layers and the embedding, scales among them"]
    kinds: Annotated[dict[str, Any], 'how many layers are of each kind, such as "8w"']
    layers: Annotated[dict[str, Any], "the kind, group size and relative squared error of each layer, by name"]
    notes: list[str]
    warnings: list[str]


class QualityReport(TypedDict, total=False):
    """The contents of a quality file."""

    bytes: Annotated[int, "of the program"]
    quantized: Annotated[QuantizedReport, "what was quantized, and how", OPEN]


class SourceReport(TypedDict):
    """Where a checkpoint was downloaded from."""

    repository: str
    revision: str
    commit: str


class ExportReport(TypedDict):
    """Files, time and memory of an export."""

    files: Annotated[list[ExportedFile], "the files that were written, the program first"]
    seconds: float
    peak_memory: PeakMemory
    stages: Annotated[list[StageReport], "in the order they began; memory is the peak of the process so far"]
    quality: Annotated[
        QualityReport | None,
        "the quantized model against the float model, as in NAME.quality.json; null if it was not measured",
        OPEN,
    ]
    source: Annotated[SourceReport | None, "of a checkpoint with a name on a hub"]


def _report(exported: ExportResult) -> ExportReport:
    fetched = exported.hub_checkpoint
    quality = read_quality(exported.files)
    return {
        "files": [{"path": str(file), "bytes": os.path.getsize(file)} for file in exported.files],
        "seconds": round(exported.seconds, 3),
        "peak_memory": exported.peak_memory,
        "stages": [
            {"name": stage.name, "seconds": round(stage.seconds, 3), "peak_memory": stage.peak_memory}
            for stage in exported.stages
        ],
        "quality": None if quality is None else cast(QualityReport, quality),
        "source": None
        if fetched is None
        else {"repository": fetched.repository, "revision": fetched.revision, "commit": fetched.commit},
    }


def _print_stages(exported: ExportResult) -> None:
    """Print time and memory of each stage on stderr."""
    for stage in exported.stages:
        memory = "" if stage.peak_memory is None else f"  {size(stage.peak_memory)}"
        say(f"{stage.name:<14} {stage.seconds:7.1f} s{memory}", error=True)
    peak = "" if exported.peak_memory is None else f", peak memory {size(exported.peak_memory)}"
    say(f"exported in {exported.seconds:.0f} s{peak}", error=True)
    if exported.hub_checkpoint is not None:
        say(f"from {exported.hub_checkpoint.repository} at {exported.hub_checkpoint.commit}", error=True)

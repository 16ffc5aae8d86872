"""Export a checkpoint of any kind: choose the exporter, time its stages, and write the output files atomically."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..builder import export_llm
from ..builder.options import check_target
from ..builder.report import quality_path
from ..builder.reranker import check_prompt, export_language_reranker
from ..builder.speech import export_speech
from ..checkpoints.checkpoint import model_kind
from ..checkpoints.hub import HubCheckpoint, fetch
from ..checkpoints.hugging_face import validate_folder
from ..checkpoints.sentence_transformers import read_encoder_config
from ..checkpoints.speech import read_speech_config
from ..errors import InputError, UnsupportedError
from ..partial_files import not_writable, partial_path
from ..progress import OnProgress, Progress, cancellable, ignore
from ..sources import is_hub_name
from .encoders import export_encoder, export_reranker
from .vision import export_classifier, export_detector


@dataclass
class ExportStage:
    """Duration and memory of one stage of an export."""

    name: str
    seconds: float
    peak_memory: int | None  # bytes of the process at the end of the stage; None if the system does not report it


class StageTimer:
    """Time the stages of an export: pass it as `progress`. A stage ends when the next one begins."""

    def __init__(self, progress: OnProgress) -> None:
        self._progress = progress
        self._began = time.perf_counter()
        self._stages: dict[str, ExportStage] = {}
        self._running: str | None = None

    def __call__(self, event: Progress) -> None:
        if event.stage != self._running:
            self._end()
            self._running = event.stage
        self._progress(event)

    def stages(self) -> list[ExportStage]:
        """Return the stages so far, in the order in which they began."""
        self._end()
        return list(self._stages.values())

    def _end(self) -> None:
        now = time.perf_counter()
        if self._running is not None:
            stage = self._stages.setdefault(self._running, ExportStage(self._running, 0.0, None))
            stage.seconds += now - self._began
            stage.peak_memory = peak_memory()
        self._began = now


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes, or None if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB on Linux


@contextmanager
def atomic_output(path: Path) -> Iterator[AtomicOutput]:
    """Yield a temporary folder for the output files, and move them to `path`'s folder at the end.

    If the export fails or is interrupted, no file is left.
    """
    folder = path.with_name(f".{path.name}.{os.getpid()}.part")
    with partial_path(folder):
        folder.mkdir()
        output = AtomicOutput(folder / path.name, [])
        yield output
        largest_first = sorted(folder.iterdir(), key=lambda file: (file.name != path.name, -file.stat().st_size))
        if not quality_path(output.program).exists():
            quality_path(path).unlink(missing_ok=True)  # of the program that is replaced
        for file in reversed(largest_first):  # the program last: once it exists, all files that it needs exist
            try:
                os.replace(file, path.parent / file.name)
            except OSError as error:
                raise not_writable(path.parent / file.name, error) from error
        output.files.extend(path.parent / file.name for file in largest_first)


@dataclass(frozen=True)
class AtomicOutput:
    """The output files of an export."""

    program: Path  # in the temporary folder
    files: list[Path]  # the final paths after the context ends: the program, then the others by size


PathLike = str | os.PathLike[str]

# The kind of model -> its exporter.
EXPORTERS: dict[str, Callable[..., Path]] = {
    "language": export_llm,
    "encoder": export_encoder,
    "reranker": export_reranker,
    "language reranker": export_language_reranker,
    "image classifier": export_classifier,
    "detector": export_detector,
    "speech": export_speech,
}


@dataclass(frozen=True)
class ExportResult:
    """The files of an export, and its durations and memory. Usable as the path of the program."""

    path: Path
    files: tuple[Path, ...]  # the program first
    stages: tuple[ExportStage, ...]
    peak_memory: int | None  # bytes of the process; None if the system does not report it
    hub_checkpoint: HubCheckpoint | None  # if the checkpoint came from a hub

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)


def export_checkpoint(
    source: PathLike,
    path: PathLike,
    *,
    task: str | None = None,
    jobs: int | None = None,
    **options: Any,
) -> ExportResult:
    """Export a checkpoint of any kind with the exporter of its kind, such as `export_llm`, and the same options.

    `source` is a folder with config.json and safetensors, a .gguf file, or the name of either on a hub:
    `hf:org/name[@revision]`, `hf:org/name/file.gguf[@revision]`. With the `task` "reranking", a language model becomes
    a reranker; folders of sentence-transformers that list a LogitScore need none. `jobs` is the number of torch's
    threads, by default one for each core. All files appear together at the end. An export that fails or is stopped
    leaves none.
    """
    target = Path(path)
    check_target(target)
    timer = StageTimer(cancellable(options.get("progress", ignore), options.get("cancel")))

    def validate(folder: Path) -> None:
        kind = _kind(folder, task)
        _exporter(source, kind, options)
        if kind in ("language", "language reranker"):
            validate_folder(folder)
        elif kind == "encoder":
            read_encoder_config(folder)
        elif kind == "speech":
            read_speech_config(folder)

    downloaded = fetch(source, timer, validate) if is_hub_name(source) else None
    local = Path(source) if downloaded is None else downloaded.path
    exporter = _exporter(source, _kind(local, task), options)
    with threads(jobs), atomic_output(target) as output:
        exporter(local, output.program, **(options | {"progress": timer}))
        if downloaded is not None:
            downloaded.write(output.program)
    return ExportResult(target, tuple(output.files), tuple(timer.stages()), peak_memory(), downloaded)


@contextmanager
def threads(jobs: int | None) -> Iterator[None]:
    """Set the number of torch's threads while the context lasts."""
    if jobs is None:
        yield
        return
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise InputError(argument="jobs", expected="an integer above 0", got=repr(jobs), code="jobs")
    if find_spec("torch") is None:  # programs of language models are built without it
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(jobs)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _kind(source: PathLike, task: str | None) -> str:
    """Return the kind of a checkpoint, which `task` makes another one for language models."""
    if task not in (None, "reranking"):
        raise InputError(argument="task", expected="'reranking' or None", got=repr(task), code="task")
    kind = model_kind(source)
    if kind == "language reranker" and task is None:
        check_prompt(Path(source) if Path(source).is_dir() else Path(source).parent)
    if task is None or kind == "reranker":
        return kind
    # An encoder may be a language model with a list of modules.
    if kind not in ("language", "language reranker", "encoder"):
        raise InputError(
            argument="task", expected=f"None for {os.fspath(source)}, of kind {kind!r}", got=repr(task), code="task"
        )
    return "language reranker"


def _exporter(source: PathLike, kind: str, options: Mapping[str, Any]) -> Callable[..., Path]:
    """Return the exporter of a kind of model, after checking that it takes these options."""
    if kind not in EXPORTERS:
        raise UnsupportedError(
            items=["architectures"],
            argument=str(source),
            expected=f"a model of the kinds {', '.join(EXPORTERS)}",
            got=repr(kind),
            code="unknown_kind",
        )
    exporter = EXPORTERS[kind]
    parameters = inspect.signature(exporter).parameters
    if unknown := [option for option in options if option not in parameters]:
        known = ", ".join(name for name, option in parameters.items() if option.kind is option.KEYWORD_ONLY)
        raise InputError(
            f"{source}: models of the kind {kind!r} do not take the option {', '.join(unknown)}",
            code="unknown_option",
            hint=f"The options are {known}.",
        )
    return exporter

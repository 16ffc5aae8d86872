"""Export a checkpoint of any kind: choose the exporter, time its stages, and write the output files atomically."""

from __future__ import annotations

import importlib
import inspect
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, UnsupportedError
from ..progress import OnProgress, Progress, cancellable, ignore
from .checkpoint import check_source
from .hub import HubCheckpoint, fetch, is_hub_name
from .hugging_face import read_json, validate_folder
from .lowering import require_executorch
from .options import check_target
from .report import quality_path
from .sentence_transformers import read_encoder_config


@dataclass
class ExportStage:
    name: str
    seconds: float
    peak_memory: int | None  # bytes of the process so far, at most; None where the system does not tell


class StageTimer:
    """Given as `progress`, passes every event on. A stage ends where another begins."""

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
        """Up to now, in the order they began."""
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
    """Of this process since it began, in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


@contextmanager
def atomic_output(path: Path) -> Iterator[AtomicOutput]:
    """A folder to write the program to, and what stands beside it. Interrupted or failed, nothing of it is left."""
    folder = _partial_folder(path)
    folder.mkdir()
    try:
        made = AtomicOutput(folder / path.name, [])
        yield made
        largest_first = sorted(folder.iterdir(), key=lambda file: (file.name != path.name, -file.stat().st_size))
        if not quality_path(made.program).exists():
            quality_path(path).unlink(missing_ok=True)  # of another program, which is replaced
        for file in reversed(largest_first):  # the program last: where it is, all that it needs is
            os.replace(file, path.parent / file.name)
        made.files.extend(path.parent / file.name for file in largest_first)
    finally:
        remove_partial_output(path)


def remove_partial_output(path: Path) -> None:
    """What an export to `path` by this process has written so far; also for a process that is being ended."""
    shutil.rmtree(_partial_folder(path), ignore_errors=True)


def _partial_folder(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@dataclass(frozen=True)
class AtomicOutput:
    program: Path  # where to write it
    files: list[Path]  # in the end: all that were written, in their places, the program first, then by size


PathLike = str | os.PathLike[str]

# How the names of transformers' classes end, in `architectures` of config.json.
_ENDINGS = {
    "ForCausalLM": "language",
    "ForImageClassification": "image classifier",
    "ForObjectDetection": "detector",
    "WhisperForConditionalGeneration": "speech",
    "ForMaskedLM": "encoder",
    "Model": "encoder",
}

# The module here and the function in it. A kind is exported as soon as it has a line here.
EXPORTERS = {
    "language": ("llm", "export_llm"),
    "encoder": ("encoders", "export_encoder"),
    "image classifier": ("vision", "export_classifier"),
    "detector": ("vision", "export_detector"),
    "speech": ("speech", "export_speech"),
}


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote, and what it took. Stands wherever the path of the program does."""

    path: Path
    files: tuple[Path, ...]  # the program first
    stages: tuple[ExportStage, ...]
    peak_memory: int | None  # bytes of the process, at most; None where the system does not tell
    fetched: HubCheckpoint | None  # where the checkpoint has a name on a hub

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)


def export_checkpoint(source: PathLike, path: PathLike, *, jobs: int | None = None, **options: Any) -> ExportResult:
    """Export a checkpoint of any kind: calls `export_llm` or the exporter of its kind with the same options.

    `source` is a folder with config.json and safetensors, a .gguf file, or the name of either on a hub:
    `hf:org/name[@revision]`, `hf:org/name/file.gguf[@revision]`. `jobs` is the number of threads; all cores without
    it. All files appear at the end, together; stopped or failed, the export leaves none.
    """
    target = Path(path)
    check_target(target)
    clock = StageTimer(cancellable(options.get("progress", ignore), options.get("cancel")))

    def validate(found: Path) -> None:
        kind = model_kind(found)
        _exporter(source, kind, options)
        if kind == "language":
            validate_folder(found)
        elif kind == "encoder":
            read_encoder_config(found)

    fetched = fetch(source, clock, validate) if is_hub_name(source) else None
    local = Path(source) if fetched is None else fetched.path
    exporter = _exporter(source, model_kind(local), options)
    with threads(jobs), atomic_output(target) as made:
        exporter(local, made.program, **(options | {"progress": clock}))
        if fetched is not None:
            fetched.write(made.program)
    return ExportResult(target, tuple(made.files), tuple(clock.stages()), peak_memory(), fetched)


@contextmanager
def threads(jobs: int | None) -> Iterator[None]:
    """So many for torch, while something is exported."""
    if jobs is None:
        yield
        return
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise InputError(f"jobs is {jobs!r}; a whole number above 0 is wanted")
    require_executorch()
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(jobs)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _exporter(source: PathLike, kind: str, options: Mapping[str, Any]) -> Callable[..., Path]:
    """Of a kind, if it takes these options."""
    if kind not in EXPORTERS:
        known = ", ".join(EXPORTERS)
        raise UnsupportedError(f"{source} holds a model of the kind {kind!r}; exported are {known}", ["architectures"])
    module, name = EXPORTERS[kind]
    exporter: Callable[..., Path] = getattr(importlib.import_module(f".{module}", __package__), name)
    taken = inspect.signature(exporter).parameters
    if strange := [option for option in options if option not in taken]:
        fitting = ", ".join(name for name, given in taken.items() if given.kind is given.KEYWORD_ONLY)
        raise InputError(
            f"{source} holds a model of the kind {kind!r}, which is exported without {', '.join(strange)}; "
            f"the options are {fitting}",
            code="unknown_option",
        )
    return exporter


def model_kind(source: PathLike) -> str:
    """ "language", "encoder", "image classifier", "detector" or "speech"."""
    path = Path(source)
    check_source(path)
    if path.suffix == ".gguf":
        return "language"
    folder = path if path.is_dir() else path.parent
    if (folder / "modules.json").exists():  # of sentence-transformers, whose models may be language models else
        return "encoder"
    names = read_json(folder / "config.json").get("architectures")
    for name in names if isinstance(names, list) else ():
        kind = next((kind for ending, kind in _ENDINGS.items() if str(name).endswith(ending)), None)
        if kind is None:
            raise UnsupportedError(
                f"{folder / 'config.json'}: architectures has {name}; the names of what is exported end in "
                f"{', '.join(_ENDINGS)}",
                ["architectures"],
                code="unknown_architecture",
            )
        return kind
    return "language"  # older files do not say; their model_type is looked at as all other fields are

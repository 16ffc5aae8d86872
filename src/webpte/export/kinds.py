"""What a checkpoint is for, told without torch, and who exports it."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, UnsupportedError
from ..progress import cancellable, ignore
from .checkpoint import check_source
from .clock import Clock, Stage, peak_memory
from .hub import Fetched, fetch, is_hub_name
from .hugging_face import judge_folder, read_json
from .lowering import require_executorch
from .options import check_target
from .placing import placing
from .sentence_modules import read_sentences

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
class Exported:
    """What an export wrote, and what it took. Stands wherever the path of the program does."""

    path: Path
    files: tuple[Path, ...]  # the program first
    stages: tuple[Stage, ...]
    peak_memory: int | None  # bytes of the process, at most; None where the system does not tell
    fetched: Fetched | None  # where the checkpoint has a name on a hub

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)


def export_checkpoint(source: PathLike, path: PathLike, *, jobs: int | None = None, **options: Any) -> Exported:
    """Export a checkpoint of any kind: calls `export_llm` or the exporter of its kind with the same options.

    `source` is a folder with config.json and safetensors, a .gguf file, or the name of either on a hub:
    `hf:org/name[@revision]`, `hf:org/name/file.gguf[@revision]`. `jobs` is the number of threads; all cores without
    it. All files appear at the end, together; stopped or failed, the export leaves none.
    """
    target = Path(path)
    check_target(target)
    clock = Clock(cancellable(options.get("progress", ignore), options.get("cancel")))

    def judge(found: Path) -> None:
        kind = kind_of(found)
        _exporter(source, kind, options)
        if kind == "language":
            judge_folder(found)
        elif kind == "encoder":
            read_sentences(found)

    fetched = fetch(source, clock, judge) if is_hub_name(source) else None
    local = Path(source) if fetched is None else fetched.path
    exporter = _exporter(source, kind_of(local), options)
    with threads(jobs), placing(target) as made:
        exporter(local, made.program, **(options | {"progress": clock}))
        if fetched is not None:
            fetched.write(made.program)
    return Exported(target, tuple(made.files), tuple(clock.stages()), peak_memory(), fetched)


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


def kind_of(source: PathLike) -> str:
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

"""Build the programs of checkpoints on first use, and keep them in the cache folder.

A program is in a folder of its own, named after the checkpoint and a hash of its content, the options and the code that
builds it. The folder appears at once when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoints.checkpoint import check_source, model_kind
from ..checkpoints.gguf_vision import encoder_files, is_encoder_file
from ..checkpoints.hub import fetch
from ..checkpoints.hugging_face import validate_folder
from ..container import IntValue, MappedFile, parse_program
from ..errors import Error, InputError
from ..folders import cache_folder, data_folder
from ..host_memory import free_memory
from ..llm.context import LIMIT_METHOD, limit_from_numbers
from ..partial_files import atomic_file, partial_path, removing
from ..progress import OnProgress, Progress, ignore
from ..sources import HUB, SHORT_NAMES, is_hub_name
from ..text import shell_word
from ..typing import PathLike
from ..version import __version__

_RECORD = "source.json"
_CHUNK = 1 << 24
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def programs_folder() -> Path:
    return cache_folder() / "programs"


def models_folder() -> Path:
    """Return the folder for checkpoints that users copy there. webpte only reads it."""
    return data_folder() / "models"


@dataclass(frozen=True)
class CachedProgram:
    """A program in the cache."""

    path: Path
    source: str  # as it was named
    checkpoint: str  # the path of the checkpoint
    bytes: int  # of all files
    seconds: float  # that building took
    built: float  # time of the clock

    @property
    def name(self) -> str:
        return self.path.parent.name


def cached_program(source: PathLike, progress: OnProgress = ignore, max_context: int | None = None) -> Path:
    """Return the program of a checkpoint: a path, `hf:org/name` or a short name. It is built if the cache has none.

    The context is `max_context` tokens, or else the model's own within the default limit and the free memory. WebGPU
    does not report the memory of a discrete GPU, so the memory is that of the machine.
    """
    checkpoint = locate(source, progress)
    key = _key(checkpoint, {"max_context": max_context}, progress)
    folder = programs_folder() / f"{checkpoint.stem}-{key}"
    path = folder / f"{checkpoint.stem}.pte"
    free = free_memory()
    memory = None if free is None else free[0]
    if path.exists() and max_context is None and _is_limited_by_memory(path, memory):
        with removing(folder):
            shutil.rmtree(folder)
    if not path.exists():
        _build(os.fspath(source), checkpoint, path, {"max_context": max_context, "memory": memory}, progress)
    return path


def _is_limited_by_memory(path: Path, memory: int | None) -> bool:
    """Return whether a program has a shorter context than this machine allows now: memory was short when it was built.

    The program is read only if twice as much memory is free now.
    """
    before = _read_json(path.with_name(_RECORD)).get("memory")
    if not isinstance(before, int) or (memory is not None and memory < 2 * before):
        return False
    with MappedFile(path) as file:
        methods = {method.name: method.values for method in parse_program(file).methods}
    numbers = [value.value for value in methods.get(LIMIT_METHOD, ()) if isinstance(value, IntValue)]
    return limit_from_numbers(0, tuple(numbers)).reason == "memory"


def list_programs() -> list[CachedProgram]:
    """Return the programs in the cache, the latest first."""
    programs = [read_program(record) for record in programs_folder().glob(f"*/{_RECORD}")]
    return sorted((program for program in programs if program is not None), key=lambda p: -p.built)


def remove_programs(programs: Iterable[CachedProgram]) -> None:
    """Remove programs from the cache."""
    for program in programs:
        with removing(program.path.parent):
            shutil.rmtree(program.path.parent)


def checkpoint_hashes_path() -> Path:
    """Return the path of the hashes of checkpoint files, which are computed again if it is deleted."""
    return cache_folder() / "checkpoints.json"


def remove_partial_builds() -> None:
    """Remove the folder of programs, with what interrupted builds have left."""
    shutil.rmtree(programs_folder(), ignore_errors=True)


# ---------------------------------------------------------------- checkpoints


def locate(source: PathLike, progress: OnProgress = ignore) -> Path:
    """Return the path of a checkpoint, which is downloaded if it is on the hub."""
    name = os.fspath(source)
    if name in SHORT_NAMES and not Path(name).exists():
        local = _downloaded(SHORT_NAMES[name])
        if local is not None:
            return local
        try:
            return locate(SHORT_NAMES[name], progress)
        except (Error, ImportError) as error:
            raise _unavailable(name) from error
    return fetch(name, progress, _validate).path if is_hub_name(name) else Path(name)


def _validate(folder: Path) -> None:
    """Check config.json before weights are downloaded."""
    validate_folder(folder)


def _downloaded(hub_name: str) -> Path | None:
    """Return a checkpoint in the models folder: a GGUF file whose name begins as the repository's, or such a folder."""
    stem = hub_name.rpartition("/")[2]
    files = sorted(file for file in models_folder().glob(f"{stem}*.gguf") if not is_encoder_file(file))
    folder = models_folder() / stem
    return files[0] if files else folder if (folder / "config.json").exists() else None


def _unavailable(name: str) -> InputError:
    repository = SHORT_NAMES[name].removeprefix(HUB)
    stem = repository.rpartition("/")[2]
    return InputError(
        f"{name}: the checkpoint {repository} is not on this machine and cannot be downloaded",
        code="no_checkpoint",
        hint=f"On a machine with a network, download https://huggingface.co/{repository} (config.json, tokenizer.json, "
        f"*.safetensors) and copy the folder to {models_folder() / stem}, or a GGUF file of the model to "
        f"{models_folder() / stem}.gguf.",
    )


# ---------------------------------------------------------------- keys


def _key(checkpoint: Path, options: Mapping[str, Any], progress: OnProgress) -> str:
    """Return a hash of a checkpoint's content, the options and the code."""
    check_source(checkpoint)
    if model_kind(checkpoint) != "language":
        raise InputError(
            argument=str(checkpoint),
            expected="the checkpoint of a language model",
            got=f"that of a model of the kind {model_kind(checkpoint)!r}",
            code="model_kind",
            hint=f"Run webpte export {shell_word(checkpoint)} -o model.pte.",
        )
    files = [checkpoint]
    if checkpoint.is_dir():
        files = sorted(
            file
            for file in checkpoint.iterdir()
            if file.suffix in (".json", ".safetensors") or file.name in _TOKENIZER_FILES
        )
    elif checkpoint.suffix == ".gguf":
        files += encoder_files(checkpoint)
    parts = [__version__, _code_hash(), dict(options), [(file.name, _digest(file, progress)) for file in files]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _code_hash() -> str:
    """Return a hash of the code that builds programs, which changes between versions during development."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(
        path for name in ("builder", "checkpoints", "container") for path in package.glob(f"{name}/**/*.py")
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest(path: Path, progress: OnProgress) -> str:
    """Return the SHA-256 of a file. It is computed once, and again if size or time of the file change."""
    status = path.stat()
    stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
    index = checkpoint_hashes_path()  # by path, with the stamps that they were computed for
    known = _read_json(index)
    if (entry := known.get(str(path.resolve()))) and entry[:-1] == stamp:
        return str(entry[-1])
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if status.st_size > _CHUNK:
                progress(Progress("hash", done, status.st_size, "bytes", subject=path.name))
    _write_json(index, known | {str(path.resolve()): [*stamp, digest.hexdigest()]})
    return digest.hexdigest()


# ---------------------------------------------------------------- files


def _build(source: str, checkpoint: Path, path: Path, options: Mapping[str, Any], progress: OnProgress) -> None:
    """Build a program into a temporary folder, and rename it."""
    from . import build_program

    partial = path.parent.with_name(f".{path.parent.name}.{os.getpid()}.part")
    started = time.perf_counter()
    with partial_path(partial):
        partial.mkdir(parents=True, exist_ok=True)
        build_program(checkpoint, partial / path.name, progress=progress, **options)
        record = {"source": source, "checkpoint": str(checkpoint.resolve()), "program": path.name}
        record |= {"memory": options["memory"]}
        _write_json(partial / _RECORD, record | {"seconds": time.perf_counter() - started, "built": time.time()})
        try:
            os.rename(partial, path.parent)
        except OSError:
            if not path.exists():  # otherwise another process was faster
                raise


def read_program(path: Path) -> CachedProgram | None:
    """Return the program in the folder of `path`, or None if the folder is not one of the cache."""
    values = _read_json(path.with_name(_RECORD))
    try:
        path = path.with_name(values["program"])
        total = sum(file.stat().st_size for file in path.parent.iterdir())
        return CachedProgram(path, values["source"], values["checkpoint"], total, values["seconds"], values["built"])
    except (KeyError, TypeError, OSError):
        return None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        Path(temporary).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

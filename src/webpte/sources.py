"""Resolve what a user names as a model: a program, a checkpoint, a name on a hub, an address, or a short name.

Checkpoints are built into programs by `webpte.builder`, and programs are downloaded by `webpte.checkpoints`. Both are
above the packages that load models. The package `webpte` provides them (`deferred`), so that these need not depend on
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from .deferred import build_cached_program, fetch_program
from .errors import InputError
from .progress import OnProgress, ignore
from .text import close_matches

HUB = "hf:"
# Short names -> checkpoints on the hub. All of them may be downloaded without an account.
SHORT_NAMES: Mapping[str, str] = {
    "smollm2": "hf:HuggingFaceTB/SmolLM2-135M-Instruct",
    "smollm2-360m": "hf:HuggingFaceTB/SmolLM2-360M-Instruct",
    "smollm2-1.7b": "hf:HuggingFaceTB/SmolLM2-1.7B-Instruct",
    "qwen2.5": "hf:Qwen/Qwen2.5-0.5B-Instruct",
    "qwen3": "hf:Qwen/Qwen3-0.6B",
    "qwen3-1.7b": "hf:Qwen/Qwen3-1.7B",
    "llama3.2": "hf:unsloth/Llama-3.2-1B-Instruct",
    "gemma3": "hf:unsloth/gemma-3-270m-it",
    "gemma3-1b": "hf:unsloth/gemma-3-1b-it",
    "lfm2": "hf:LiquidAI/LFM2-350M",
}
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_ADDRESS = re.compile(r"https://|http://(127\.0\.0\.1|localhost|\[::1\])[:/]")  # unencrypted from this machine only
_SNAPSHOT = re.compile(r"[0-9a-f]{40}")  # the folder of a commit in a hub's cache


@dataclass(frozen=True)
class RemoteProgram:
    """A program that was downloaded from a hub or from an address."""

    path: Path
    name: str  # hf:org/name/path/model.pte, or the address
    choice: str  # such as "vulkan/model.pte (Vulkan, 12 MB) of 3 variants"; empty if there was nothing to choose


def is_hub_name(source: object) -> TypeGuard[str]:
    return isinstance(source, str) and source.startswith(HUB)


def is_remote(source: object) -> TypeGuard[str]:
    """Return whether a source is a name on a hub or an address."""
    return is_hub_name(source) or (isinstance(source, str) and _ADDRESS.match(source) is not None)


def local_program(source: Any, progress: OnProgress = ignore) -> Any:
    """Return the path of a program that is named on a hub or by an address, downloaded. Others are returned as is."""
    if not is_remote(source):
        return source
    program = fetch_program(source, progress)
    if program is None:
        raise no_program(source)
    return str(program.path)


def no_program(source: str) -> InputError:
    """Return the error for a repository without programs."""
    return InputError(
        argument="source",
        expected="a repository with a .pte program",
        got=f"{source}, which has none",
        code="no_program",
        hint=f"If it is the checkpoint of a language model: webpte chat {source}, webpte.llm.LLM({source!r}). "
        f"Others are exported: webpte export {source} -o model.pte.",
    )


def snapshot_folders(program: Path) -> list[Path]:
    """Return the folder of a program, and above it those of its repository if it is in a hub's cache.

    Repositories with variants in folders have one tokenizer above them.
    """
    folders = [program.parent, *program.parent.parents]
    for count, folder in enumerate(folders):
        if _SNAPSHOT.fullmatch(folder.name) and folder.parent.name == "snapshots":
            return folders[: count + 1]
    return folders[:1]


def beside(program: Path, name: str) -> Path | None:
    """Return `model.tokenizer.json`, or else `tokenizer.json`, in the folder of `model.pte`; None without either.

    In a hub's cache, the folders above it up to that of the repository follow.
    """
    for folder in snapshot_folders(program):
        for candidate in (folder / f"{program.stem}.{name}", folder / name):
            if candidate.exists():
                return candidate
    return None


def is_in_snapshot(program: Any) -> bool:
    """Return whether a program is in a hub's cache."""
    return isinstance(program, str | os.PathLike) and any(
        _SNAPSHOT.fullmatch(folder.name) for folder in snapshot_folders(Path(os.fspath(program)))
    )


def resolve_program(source: Any, progress: OnProgress = ignore, max_context: int | None = None) -> Any:
    """Return the path of a program that is downloaded, or built from a checkpoint. Others are returned as is."""
    if is_remote(source) and (program := fetch_program(source, progress)) is not None:
        check_fixed_context(source, max_context)
        return str(program.path)
    if not is_checkpoint(source):
        refuse_unknown_name(source)
        check_fixed_context(source, max_context)
        return source
    return build_cached_program(source, progress, max_context)


def check_fixed_context(source: Any, max_context: int | None) -> None:
    """Refuse `max_context` for a program, whose context is fixed."""
    if max_context is not None:
        raise InputError(
            argument="max_context",
            expected=f"none for {source}, a program, whose context was fixed when it was exported",
            got=max_context,
            code="fixed_context",
            hint="Export the checkpoint again with --max-context N, or load the checkpoint itself.",
        )


def refuse_unknown_name(source: Any) -> None:
    """Refuse a string that can only be a name, such as `gpt2` or `org/name`, and is not known.

    Other strings are paths: those of existing files and folders, and those that end as files do.
    """
    if not isinstance(source, str) or not _NAME.fullmatch(source) or Path(source).exists():
        return
    organization, slash, _ = source.rpartition("/")
    if Path(source).suffix[1:].isalpha() or (slash and Path(organization).exists()):
        return
    close = close_matches(source, SHORT_NAMES)
    raise InputError(
        argument="model",
        expected=f"a file, a folder, {HUB}org/name, or one of {', '.join(SHORT_NAMES)}",
        got=repr(source),
        code="unknown_model",
        hint=f"Did you mean {HUB}{source}?"
        if slash
        else f"Did you mean {close[0]}?"
        if close
        else f"A model of the Hugging Face hub is named {HUB}org/name.",
    )


def is_checkpoint(source: Any) -> bool:
    """Return whether a source is a checkpoint: a .gguf file, a folder with config.json, hf:org/name or a short name."""
    if not isinstance(source, str | os.PathLike):
        return False
    name = os.fspath(source)
    if not isinstance(name, str):
        return False
    if name.startswith(HUB) or name.endswith(".gguf"):
        return True
    path = Path(name)
    return (path / "config.json").exists() if path.exists() else name in SHORT_NAMES

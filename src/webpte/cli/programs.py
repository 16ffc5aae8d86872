"""Open what a command names as its model: a program is downloaded, a checkpoint is built into one on first use."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ..deferred import fetch_program
from ..errors import Error, InputError
from ..progress import OnProgress
from ..runtime.manifest import is_bundle
from ..sources import (
    HUB,
    RemoteProgram,
    check_fixed_context,
    is_checkpoint,
    is_remote,
    no_program,
    refuse_unknown_name,
)
from ..task_file import task_of
from ..text import duration, shell_word, size
from .output import say
from .terminal import bars


def open_source(name: str, progress: OnProgress, max_context: int | None = None) -> str:
    """Return the path of a program. Print which variant was downloaded, or what comes after a build."""
    if is_remote(name) and (remote := fetch_program(name, progress)) is not None:
        check_fixed_context(name, max_context)
        _say_choice(remote)
        return str(remote.path)
    if not is_checkpoint(name):
        refuse_unknown_name(name)
        check_fixed_context(name, max_context)
        return name
    from ..builder.programs import cached_program, list_programs, read_program  # imports the families of models

    before = list_programs()
    path = cached_program(name, progress, max_context)
    program = read_program(path)
    if program is not None and program not in before:
        say(
            f"built {path.name} in {duration(program.seconds)}, {size(program.bytes)}; the next start needs no build. "
            f"Next: webpte serve {shell_word(name)}, or webpte bundle {shell_word(name)} -o page",
            error=True,
        )
    return str(path)


def download(arguments: argparse.Namespace) -> None:
    """Replace the remote programs of a command line, in the arguments that its parser lists, by their paths."""
    for key in getattr(arguments, "downloads", ()):
        value = getattr(arguments, key)
        if isinstance(value, list):
            setattr(arguments, key, [_download(one) for one in value])
        else:
            setattr(arguments, key, _download(value))


def _download(source: str | None) -> str | None:
    if not is_remote(source):
        return source
    with bars() as progress:
        program = fetch_program(source, progress)
    if program is None:
        raise no_program(source)
    _say_choice(program)
    return str(program.path)


def _say_choice(program: RemoteProgram) -> None:
    if program.choice:
        say(f"chose {program.choice}", error=True)


def open_models(models: Sequence[str], max_context: int | None = None) -> tuple[str, ...]:
    """Return the models of a server, each PATH or NAME=PATH, with programs in place of checkpoints and of folders.

    `max_context` is that of the checkpoints.
    """
    opened: list[str] = []
    for text in models:
        members = _members(text)
        opened += [_open_model(text, max_context)] if members is None else _open_folder(text, members, max_context)
    return tuple(opened)


def _members(text: str) -> list[str] | None:
    """Return the programs, bundles and checkpoints in a folder of models; None for a model."""
    folder = Path(text)
    if not folder.is_dir() or is_bundle(folder) or is_checkpoint(folder):
        return None
    models = [each for each in folder.iterdir() if each.suffix == ".pte" or is_bundle(each) or is_checkpoint(each)]
    return sorted(map(str, models))


def _open_folder(folder: str, members: Sequence[str], max_context: int | None) -> list[str]:
    """Return the models of a folder that the server has endpoints for. Print why others are left out.

    Models whose names differ only in their endings are named with them.
    """
    names = Counter(map(_name, members))
    opened = []
    for path in members:
        try:
            name = _name(path) if names[_name(path)] == 1 else os.path.basename(path)
            model = _open_model(f"{name}={path}", max_context)
            check_servable(model.partition("=")[2])
            opened.append(model)
        except Error as error:
            say(f"not served: {error}", error=True)
    if not opened:
        raise InputError(
            argument="FILE", expected="a folder with models: .pte programs, bundles or checkpoints", got=repr(folder),
            code="empty_folder",
        )  # fmt: skip
    return opened


def check_servable(path: str) -> None:
    """Raise InputError if the server has no endpoint for a program or a bundle. Weights are not read."""
    from ..llm.metadata import check_language_model, language_of, tokenizer_beside  # only the server needs them
    from ..runtime import Bundle, load
    from ..serve.served_models import KINDS

    file = Path(path)
    task = task_of(file)
    if not any(task in kind.tasks for kind in KINDS.values()):
        raise InputError(
            argument=path,
            expected=" or ".join(kind.title for kind in KINDS.values()),
            got=f"a program for the task {task!r}",
            code="unsupported_task",
        )
    if task is not None:
        return
    with load(path) as program:
        if isinstance(program, Bundle):
            language_of(program)
            return
        check_language_model(program, file)
    if tokenizer_beside(file) is None:
        hint = f"Put {file.stem}.tokenizer.json beside it."
        raise InputError(f"{path} has no tokenizer", hint=hint, code="no_tokenizer")


def _open_model(text: str, max_context: int | None) -> str:
    name, equals, source = ("", "", text) if is_remote(text) else text.partition("=")
    source = source if equals else text
    if not is_checkpoint(source) and not is_remote(source):
        refuse_unknown_name(source)
        return text
    with bars() as progress:
        path = open_source(source, progress, max_context)
    return f"{name if equals else _name(source)}={path}"


def _name(source: str) -> str:
    """Return the name that clients use for a model: the last part of a path or of a hub's name."""
    if source.startswith(HUB):
        last = source.partition("@")[0].rpartition("/")[2]
    elif is_remote(source):
        last = urlsplit(source).path.rpartition("/")[2]
    else:
        last = os.path.basename(os.path.abspath(source))  # also of a folder with a separator at its end
    return Path(last).stem if last.endswith((".gguf", ".pte")) else last

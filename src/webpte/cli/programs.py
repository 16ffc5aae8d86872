"""Open what a command names as its model: a program is downloaded, a checkpoint is built into one on first use."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ..deferred import fetch_program
from ..errors import InputError
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
    from ..builder.programs import cached_program, read_program  # imports the families of models

    started = time.time()
    path = cached_program(name, progress, max_context)
    program = read_program(path)
    if program is not None and program.built >= started:
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
    return tuple(_open_model(each, max_context) for text in models for each in _models_in(text))


def _models_in(text: str) -> list[str]:
    """Return the programs, bundles and checkpoints in a folder; of another source, the source."""
    folder = Path(text)
    if not folder.is_dir() or is_bundle(folder) or is_checkpoint(folder):
        return [text]
    models = [each for each in folder.iterdir() if each.suffix == ".pte" or is_bundle(each) or is_checkpoint(each)]
    if not models:
        raise InputError(
            argument="FILE", expected="a folder with .pte programs, bundles or checkpoints", got=repr(text),
            code="empty_folder",
        )  # fmt: skip
    return sorted(map(str, models))


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

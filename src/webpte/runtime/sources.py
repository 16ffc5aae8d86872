"""What a program and its constants can be read from: a path, bytes in memory, or a file that is open."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Protocol

from ..container import MappedFile, parse_tensors
from ..errors import Error, InputError
from .checks import check_path, described

MOST_BESIDE = 64  # .ptd files that are looked into
SHOWN_BESIDE = 4


class BinaryFile(Protocol):
    """A file that is open for reading bytes: of `open(path, "rb")`, of a zip archive, `io.BytesIO`."""

    def read(self, size: int = -1, /) -> bytes: ...


Source = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryFile


def check_source(source: object, name: str) -> None:
    """Refuse what is neither a path, nor bytes, nor a file, before any of them is opened."""
    if isinstance(source, (str, os.PathLike)):
        check_path(source, name)
    elif not callable(getattr(source, "read", None)) and _bytes_of(source) is None:
        raise InputError(f"{name} is a path, bytes, or a file opened by open(path, 'rb'), not {described(source)}")


def open_source(source: Source, name: str) -> MappedFile:
    """A path is mapped, bytes are used where they are, and the rest of an open file is read into memory."""
    check_source(source, name)
    if isinstance(source, (str, os.PathLike)):
        return MappedFile(source)
    data = _bytes_of(source)
    return MappedFile.from_bytes(f"<{name}>", data) if data is not None else _read(source, name)  # type: ignore[arg-type]


def _bytes_of(source: object) -> memoryview | None:
    """What the source holds in memory; a file that is mapped counts as a file, since it has a position."""
    if callable(getattr(source, "read", None)):
        return None
    try:
        return memoryview(source).cast("B")  # type: ignore[arg-type]
    except TypeError:
        return None


def _read(file: BinaryFile, name: str) -> MappedFile:
    try:
        data = file.read()
    except Exception as error:  # whatever kind of file it is: closed, write-only, a connection that broke
        raise InputError(
            f"{name} is a file that cannot be read: {error}. Open it by open(path, 'rb')", code="unreadable"
        ) from error
    if isinstance(data, str):
        raise InputError(f"{name} is a file that was opened as text: open it by open(path, 'rb')", code="text_mode")
    found = _bytes_of(data)
    if found is None:
        raise InputError(f"{name} is a file whose read() gives {described(data)}: open it by open(path, 'rb')")
    label = getattr(file, "name", None)
    return MappedFile.from_bytes(label if isinstance(label, str) else f"<{name}>", found)


def data_beside(path: str | os.PathLike[str], keys: Collection[str]) -> list[str]:
    """Files of constants beside a program that have some of these keys, those with most of them first."""
    folder = os.path.dirname(os.fspath(path)) or os.curdir
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".ptd") and entry.is_file())
    except OSError:
        return []
    found = {}
    for name in names[:MOST_BESIDE]:
        try:
            with MappedFile(os.path.join(folder, name)) as file:
                found[name] = len(parse_tensors(file).entries.keys() & set(keys))
        except Error:  # it need not be one of ours
            continue
    best = sorted((name for name in found if found[name]), key=lambda name: -found[name])
    return [os.path.join(os.path.dirname(os.fspath(path)), name) for name in best[:SHOWN_BESIDE]]

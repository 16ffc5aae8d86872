"""Files and folders that are written beside their place, and moved there when they are complete.

Whatever ends the work, no part is left: exceptions unwind the contexts, and a command that ends its process at once
calls `remove_all`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Iterator

from .errors import InputError
from .typing import PathLike

_ATTEMPTS = 5  # to remove a folder that another thread still writes to
_OPEN_FILE = (
    ". Check its permissions. Windows neither replaces nor removes an open file: close the program that uses it."
)
_paths: dict[str, int] = {}  # in use -> the process that uses them


@contextlib.contextmanager
def partial_path(path: PathLike) -> Iterator[None]:
    """Remove a file or a folder when the context ends, if it still exists."""
    name = os.fspath(path)
    _paths[name] = os.getpid()
    try:
        yield
    finally:
        _remove(name)
        _paths.pop(name, None)  # after the removal, which an interrupt may cut short: then `remove_all` completes it


@contextlib.contextmanager
def atomic_file(path: PathLike) -> Iterator[str]:
    """Yield the name of a temporary file beside `path`, and move it there when the context ends without an error."""
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.{threading.get_ident()}.part")
    with partial_path(temporary):
        yield temporary
        os.replace(temporary, path)


@contextlib.contextmanager
def output_file(path: PathLike) -> Iterator[str]:
    """Yield a temporary file as `atomic_file` does. Errors of the file system are raised as InputError."""
    try:
        with atomic_file(path) as temporary:
            yield temporary
    except OSError as error:
        raise not_writable(path, error) from error


def not_writable(path: PathLike, error: OSError) -> InputError:
    """Return the error of an output that the file system refuses, with the remedy."""
    message = f"cannot write {os.fspath(path)}: {error.strerror or error}"
    if error.errno == errno.ENOSPC:
        message += ". Free some space, or write to another disk."
    elif isinstance(error, PermissionError) and os.path.exists(path):
        message += _OPEN_FILE
    return InputError(message, code="not_writable")


@contextlib.contextmanager
def removing(path: PathLike) -> Iterator[None]:
    """Raise errors of the file system as InputError while `path`, or what is in it, is removed."""
    try:
        yield
    except OSError as error:
        hint = _OPEN_FILE if isinstance(error, PermissionError) else ""
        name = error.filename or path
        raise InputError(f"cannot remove {name}: {error.strerror or error}{hint}", code="not_removable") from error


def remove_all() -> None:
    """Remove all partial files of this process, which is about to end."""
    for name, process in list(_paths.items()):
        if process == os.getpid():
            _remove(name)


def _remove(name: str) -> None:
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(OSError):
            os.unlink(name)
        if not os.path.lexists(name):
            return
        shutil.rmtree(name, ignore_errors=True)

"""Kernels as they were rendered before, in the user's cache: rendering them takes half of a warm load.

Text and nothing else, with its own hash in front: what was cut short, damaged or put there by somebody else is rendered
again. Files of other owners, and folders that others may write to, are not looked at. Deleting the folder is safe.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile

from ..budgets import limit

MOST = 4096  # files; then the folder is emptied
_DIGEST = 64  # characters of a SHA-256


def recall(name: str) -> str | None:
    """The text that was kept under a name, if it is whole and ours."""
    folder = _folder(_root())
    if folder is None:
        return None
    try:
        with open(os.path.join(folder, name), "rb", opener=_open) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or not _ours(found) or found.st_size > 4 * limit("kernel text"):
                return None
            data = file.read()
    except OSError:
        return None
    digest, text = data[:_DIGEST], data[_DIGEST:]
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    return text.decode("utf-8", "replace")


def keep(name: str, text: str) -> None:
    """Remember a text. A full or read-only disk only costs time later."""
    folder = _folder(_root())
    if folder is None:
        return
    data = text.encode()
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as file:
            file.write(hashlib.sha256(data).hexdigest().encode() + data)
        os.replace(file.name, os.path.join(folder, name))


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a pipe must not wait for a writer


def _root() -> str:
    return os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")


@functools.lru_cache(8)
def _folder(root: str) -> str | None:
    """Where texts are kept; None if it cannot be made, or others could put files into it."""
    folder = os.path.join(root, "webpte", "wgsl")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.stat(folder)
        if not _ours(found) or (os.name == "posix" and found.st_mode & 0o022):
            return None
        names = os.listdir(folder)
        if len(names) > MOST:
            for name in names:
                os.remove(os.path.join(folder, name))
    except OSError:
        return None
    return folder


def _ours(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()

"""Suppress output of libraries: stderr lines of ExecuTorch's C++ kernels, and loggers that imports configure."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TextIO

# One line for each call of fused attention, and some about the CPU's cores. None reports a problem.
_NOISE = re.compile(rb"\[kernel_runtime_context\.h:\d+\] No temp allocator provided|\[cpuinfo_utils\.cpp:\d+\] ")
_STDERR = 2


@contextmanager
def suppress_kernel_messages() -> Iterator[None]:
    """Redirect the process's stderr to a file; at the end, also after a failure, write all but the kernels' messages.

    Python's `sys.stderr` is not redirected, so progress bars are drawn. The context may be nested, and entered by
    several threads: there is one stderr, and the last to leave restores it.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


class _Redirection:
    """The redirection of file descriptor 2."""

    def __init__(self) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed in restore()
        self._before = os.dup(_STDERR)
        self._stderr = sys.stderr
        if _writes_to(sys.stderr, _STDERR):
            sys.stderr.flush()
            sys.stderr = _beside(self._before, sys.stderr)
        self._ours = sys.stderr
        os.dup2(self._file.fileno(), _STDERR)

    def restore(self) -> None:
        if self._stderr is not None:
            self._stderr.flush()  # code that kept the old object wrote to the file
        if sys.stderr is self._ours:
            sys.stderr = self._stderr
        os.dup2(self._before, _STDERR)
        os.close(self._before)
        self._file.seek(0)
        with self._file, open(_STDERR, "wb", closefd=False) as stderr:
            stderr.writelines(line for line in self._file if not _NOISE.match(line))


_lock = threading.Lock()
_inside = 0
_redirection: _Redirection | None = None
_kept: TextIO | None = None


def _enter() -> None:
    global _inside, _redirection
    with _lock:
        if _inside == 0:
            _redirection = _Redirection() if _is_open(_STDERR) else None
        _inside += 1


def _leave() -> None:
    global _inside, _redirection
    with _lock:
        _inside -= 1
        if _inside == 0 and _redirection is not None:
            redirection, _redirection = _redirection, None
            redirection.restore()


def _beside(number: int, stderr: TextIO) -> TextIO:
    """Return a text stream for a file descriptor. It is reused and never closed: log handlers may keep it."""
    global _kept
    if _kept is None or _kept.closed:
        _kept = open(  # noqa: SIM115
            os.dup(number),
            "w",
            buffering=1,
            encoding=stderr.encoding or "utf-8",  # a substitute for stderr, such as rich's, may have none
            errors=stderr.errors or "backslashreplace",
        )
    else:
        _kept.flush()
        os.dup2(number, _kept.fileno())
    return _kept


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _writes_to(stream: TextIO | None, number: int) -> bool:
    try:
        return stream is not None and stream.fileno() == number
    except (OSError, ValueError):  # it has none, or is closed
        return False


@contextmanager
def suppress_logs() -> Iterator[None]:
    """Suppress logs and warnings; restore the root logger, which importing the partitioner sets to INFO."""
    root = logging.getLogger()
    level, handlers, disabled = root.level, root.handlers[:], root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
        root.setLevel(level)

"""Files as read-only memory, and checked pieces of them. Nothing is copied until somebody asks for bytes."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
from dataclasses import dataclass
from types import TracebackType

from ..errors import ClosedError, FormatError
from .near import alike, folder_text


class MappedFile:
    """A file mapped read-only. The operating system pages it in as it is read, and can drop pages again.

    Replace a model file by renaming a new one over it. One that is written in place holds other weights than its
    program was checked with, and memory that lay behind its new end faults on access, which ends the process: so
    every view asks first whether the file is still what it was.
    """

    __slots__ = ("_digest", "_made", "_map", "_view", "path", "size")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._digest: str | None = None
        self._map: mmap.mmap | None
        self._map, self._made = _map_file(self.path)
        self._view: memoryview | None = memoryview(self._map)
        self.size = len(self._view)

    @classmethod
    def from_bytes(cls, name: str, data: bytes | bytearray | memoryview) -> MappedFile:
        """The same over bytes in memory; ``name`` stands for the path in messages."""
        view = memoryview(data).cast("B").toreadonly()
        if not view.nbytes:
            raise FormatError(f"{name}: is empty, no bytes to read a program or constants from", code="empty_file")
        self = cls.__new__(cls)
        self.path, self.size, self._map, self._view, self._made = name, view.nbytes, None, view, (0, 0, 0)
        self._digest = None
        return self

    def view(self, offset: int, size: int) -> memoryview:
        """Bytes ``offset .. offset+size`` without a copy. A view stays valid after :meth:`close`."""
        if self._view is None:
            raise ClosedError(f"{self.path}: the file was closed; load it again")
        _check_range(self.path, offset, size, self.size)
        self._check_unchanged()
        return self._view[offset : offset + size]

    def sha256(self) -> str:
        """A hash of every byte. It takes a second for a gigabyte or two, once."""
        if self._digest is None:
            self._digest = hashlib.sha256(self.view(0, self.size)).hexdigest()
        return self._digest

    def _check_unchanged(self) -> None:
        if self._map is None:
            return
        size = self._map.size()  # of the file, now
        if size < self.size or _written_since(self.path, self._made):
            raise FormatError(
                f"{self.path}: was written while it was open; it had {self.size} bytes and has {size}. Load it again, "
                "and replace model files by renaming new ones over them",
                code="file_changed",
            )

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._view is None

    def close(self) -> None:
        """Unmap, or let the last view that is still in use do it. May be called twice."""
        mapped, self._map, self._view = self._map, None, None
        if mapped is not None:
            with contextlib.suppress(BufferError):  # somebody holds a view: the mapping goes when the last view does
                mapped.close()

    def __enter__(self) -> MappedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"MappedFile({self.path!r}, {self.size} bytes{', closed' if self.closed else ''})"


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one file, inside it by construction. Equal when file (by identity), offset and size are."""

    file: MappedFile
    offset: int
    size: int

    def __post_init__(self) -> None:
        _check_range(self.file.path, self.offset, self.size, self.file.size)

    def view(self) -> memoryview:
        """The bytes, without a copy."""
        return self.file.view(self.offset, self.size)

    def sub(self, offset: int, size: int) -> Span:
        """A range of this range; ``offset`` counts from its start."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise FormatError(
                f"{self.file.path}: bytes {offset} to {offset + size} asked of a range of {self.size} bytes"
                f" that starts at byte {self.offset} of the file",
                code="out_of_bounds",
            )
        return Span(self.file, self.offset + offset, size)


def _check_range(path: str, offset: int, size: int, limit: int) -> None:
    if offset < 0 or size < 0 or offset + size > limit:
        raise FormatError(
            f"{path}: bytes {offset} to {offset + size} asked of a file of {limit} bytes", code="out_of_bounds"
        )


_Made = tuple[int, int, int]  # device, number and time of change of a file


def _made(info: os.stat_result) -> _Made:
    return info.st_dev, info.st_ino, info.st_mtime_ns


def _written_since(path: str, made: _Made) -> bool:
    """Whether the file of that time was changed since. Another one in its place, or none, leaves ours as it was."""
    try:
        now = _made(os.stat(path))
    except OSError:
        return False
    return now[:2] == made[:2] and now != made


def _map_file(path: str) -> tuple[mmap.mmap, _Made]:
    try:
        info = os.stat(path)  # before open(), which would wait for ever on a pipe
        if stat.S_ISDIR(info.st_mode):
            raise FormatError(f"{path}: is not a regular file but {folder_text(path)}", code="not_regular_file")
        if not stat.S_ISREG(info.st_mode):
            raise FormatError(
                f"{path}: is not a regular file. Name the file itself, or write it to disk first",
                code="not_regular_file",
            )
        if info.st_size == 0:
            raise FormatError(f"{path}: is empty. Download or copy it again", code="empty_file")
        with open(path, "rb") as handle:
            made = _made(os.fstat(handle.fileno()))
            return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ), made
    except OSError as error:
        hint = alike(path) if isinstance(error, FileNotFoundError) else ""
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}{hint}", code="unreadable") from error
    except (ValueError, OverflowError) as error:  # a NUL in the path; emptied meanwhile; larger than the address space
        raise FormatError(f"{path}: cannot be mapped: {error}", code="unreadable") from error

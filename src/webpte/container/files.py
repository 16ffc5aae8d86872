"""Files as read-only memory, and checked pieces of them. Nothing is copied until somebody asks for bytes."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from dataclasses import dataclass
from types import TracebackType

from ..errors import ClosedError, FormatError


class MappedFile:
    """A file mapped read-only. The operating system pages it in as it is read, and can drop pages again.

    Replace a model file by renaming a new one over it: a mapped file that shrinks in place faults on access.
    """

    __slots__ = ("_map", "_view", "path", "size")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._map: mmap.mmap | None = _map_file(self.path)
        self._view: memoryview | None = memoryview(self._map)
        self.size = len(self._view)

    @classmethod
    def from_bytes(cls, name: str, data: bytes | bytearray | memoryview) -> MappedFile:
        """The same over bytes in memory; ``name`` stands for the path in messages."""
        view = memoryview(data).cast("B").toreadonly()
        if not view.nbytes:
            raise FormatError(f"{name}: is empty")
        self = cls.__new__(cls)
        self.path, self.size, self._map, self._view = name, view.nbytes, None, view
        return self

    def view(self, offset: int, size: int) -> memoryview:
        """Bytes ``offset .. offset+size`` without a copy. A view stays valid after :meth:`close`."""
        if self._view is None:
            raise ClosedError(f"{self.path}: the file was closed; load it again")
        _check_range(self.path, offset, size, self.size)
        return self._view[offset : offset + size]

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
                f" that starts at byte {self.offset} of the file"
            )
        return Span(self.file, self.offset + offset, size)


def _check_range(path: str, offset: int, size: int, limit: int) -> None:
    if offset < 0 or size < 0 or offset + size > limit:
        raise FormatError(f"{path}: bytes {offset} to {offset + size} asked of a file of {limit} bytes")


def _map_file(path: str) -> mmap.mmap:
    try:
        info = os.stat(path)  # before open(), which would wait for ever on a pipe
        if not stat.S_ISREG(info.st_mode):
            raise FormatError(f"{path}: is not a regular file")
        if info.st_size == 0:
            raise FormatError(f"{path}: is empty")
        with open(path, "rb") as handle:
            return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, OverflowError) as error:  # a NUL in the path; emptied meanwhile; larger than the address space
        raise FormatError(f"{path}: cannot be mapped: {error}") from error

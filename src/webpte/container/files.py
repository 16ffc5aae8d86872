"""Read-only memory maps of files, and checked ranges of them. No bytes are copied."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from ..errors import ClosedError, FormatError
from ..text import close_matches, shell_word


class MappedFile:
    """A file mapped read-only. The operating system pages it in as it is read, and can drop pages again.

    Replace a model file by renaming a new one over it. If a file is written in place, its weights no longer match the
    checked program, and memory beyond a new, earlier end faults on access, which ends the process. Every view therefore
    checks first that the file is unchanged.
    """

    __slots__ = ("_digest", "_map", "_read", "_stamp", "_view", "derived", "path", "size")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._digest: str | None = None
        self.derived = False
        self._read: Callable[[int, int], memoryview] | None = None
        self._map: mmap.mmap | None
        self._map, self._stamp = _map_file(self.path)
        self._view: memoryview | None = memoryview(self._map)
        self.size = len(self._view)

    @classmethod
    def from_bytes(cls, name: str, data: bytes | bytearray | memoryview, derived: bool = False) -> MappedFile:
        """Return the same over bytes in memory. ``name`` replaces the path in messages.

        ``derived`` bytes were computed from a file, for instance a constant in another order. No file has them.
        """
        view = memoryview(data).cast("B").toreadonly()
        if not view.nbytes:
            raise FormatError(
                argument=name, expected="the bytes of a program or of constants", got="no bytes", code="empty_file"
            )
        self = cls.__new__(cls)
        self.path, self.size, self._map, self._view, self._stamp = name, view.nbytes, None, view, (0, 0, 0)
        self._digest = self._read = None
        self.derived = derived
        return self

    @classmethod
    def ranged(cls, name: str, size: int, read: Callable[[int, int], memoryview]) -> MappedFile:
        """Return the same over a file on a server. Every view calls `read` with its offset and its size."""
        self = cls.from_bytes(name, b"\0")
        self.size, self._read = size, read
        return self

    @classmethod
    def computed(cls, name: str, size: int, compute: Callable[[], memoryview]) -> MappedFile:
        """Return the same over bytes that every view computes anew, so that a writer holds one tensor at a time."""

        def read(offset: int, length: int) -> memoryview:
            data = compute().cast("B")
            if data.nbytes != size:
                raise FormatError(argument=name, expected=f"{size} bytes", got=data.nbytes, code="computed_size")
            return data[offset : offset + length]

        return cls.ranged(name, size, read)

    def view(self, offset: int, size: int) -> memoryview:
        """Return bytes ``offset .. offset+size`` without a copy. A view stays valid after :meth:`close`."""
        if self._view is None:
            raise ClosedError("the file is closed", argument=self.path, hint="Load it again.")
        _check_range(self.path, offset, size, self.size)
        self._check_unchanged()
        if self._read is not None:
            return self._read(offset, size)
        return self._view[offset : offset + size]

    def sha256(self) -> str:
        """Return the SHA-256 of the file. It is computed once, at 1 to 2 GB per second."""
        if self._digest is None:
            self._digest = hashlib.sha256(self.view(0, self.size)).hexdigest()
        return self._digest

    def _check_unchanged(self) -> None:
        if self._map is None:
            return
        size = self._map.size()  # of the file, now
        if size < self.size or _written_since(self.path, self._stamp):
            raise FormatError(
                f"was written while it was open; it had {self.size} bytes and has {size}",
                argument=self.path,
                code="file_changed",
                hint="Load it again. Replace model files by renaming new ones over them.",
            )

    def release(self) -> None:
        """Let the operating system drop the pages read so far. They are read again when they are viewed."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):  # Windows has no such advice
            self._map.madvise(mmap.MADV_DONTNEED)

    @property
    def closed(self) -> bool:
        """Return whether :meth:`close` was called."""
        return self._view is None

    def close(self) -> None:
        """Unmap the file once its last view is gone. Calling it again has no effect."""
        mapped, self._map, self._view = self._map, None, None
        if mapped is not None:
            with contextlib.suppress(BufferError):  # a view is in use: the mapping ends with the last one
                mapped.close()

    def __enter__(self) -> MappedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"MappedFile({self.path!r}, {self.size} bytes{', closed' if self.closed else ''})"


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one file, checked to be inside it. Equal if file (by identity), offset and size are."""

    file: MappedFile
    offset: int
    size: int

    @classmethod
    def of(cls, name: str, data: bytes | bytearray | memoryview) -> Span:
        """Return bytes in memory as a range. ``name`` replaces the path in messages."""
        size = memoryview(data).nbytes
        return cls(MappedFile.from_bytes(name, data if size else b"\0"), 0, size)

    @classmethod
    def computed(cls, name: str, size: int, compute: Callable[[], memoryview]) -> Span:
        """Return a range whose bytes are computed when they are viewed."""
        return cls(MappedFile.computed(name, size, compute), 0, size)

    def __post_init__(self) -> None:
        _check_range(self.file.path, self.offset, self.size, self.file.size)

    def view(self) -> memoryview:
        """Return the bytes without a copy."""
        return self.file.view(self.offset, self.size)

    def sub(self, offset: int, size: int) -> Span:
        """Return a part of this range. ``offset`` is relative to its start."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise FormatError(
                f"bytes {offset} to {offset + size} are outside the range of {self.size} bytes at byte {self.offset}",
                argument=self.file.path,
                code="out_of_bounds",
            )
        return Span(self.file, self.offset + offset, size)


def _check_range(path: str, offset: int, size: int, limit: int) -> None:
    if offset < 0 or size < 0 or offset + size > limit:
        raise FormatError(
            f"bytes {offset} to {offset + size} are outside the file of {limit} bytes",
            argument=path,
            code="out_of_bounds",
        )


_Stamp = tuple[int, int, int]  # device, inode and modification time of a file


def _stamp(info: os.stat_result) -> _Stamp:
    return info.st_dev, info.st_ino, info.st_mtime_ns


def _written_since(path: str, stamp: _Stamp) -> bool:
    """Return whether the file was written in place. A file that was replaced or deleted is still mapped unchanged."""
    try:
        now = _stamp(os.stat(path))
    except OSError:
        return False
    return now[:2] == stamp[:2] and now != stamp


def _map_file(path: str) -> tuple[mmap.mmap, _Stamp]:
    try:
        info = os.stat(path)  # before open(), which would block on a pipe
        if stat.S_ISDIR(info.st_mode):
            raise FormatError(f"not a regular file but {folder_text(path)}", argument=path, code="not_regular_file")
        if not stat.S_ISREG(info.st_mode):
            raise FormatError(
                "not a regular file",
                argument=path,
                code="not_regular_file",
                hint="Pass the path of the file itself, or write it to disk first.",
            )
        if info.st_size == 0:
            raise FormatError("is empty", argument=path, code="empty_file", hint="Download or copy it again.")
        with open(path, "rb") as handle:
            stamp = _stamp(os.fstat(handle.fileno()))
            return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ), stamp
    except OSError as error:
        hint = similar_paths(path) if isinstance(error, FileNotFoundError) else ""
        raise FormatError(
            f"cannot be read: {error.strerror or error}{hint}", argument=path, code="unreadable"
        ) from error
    except (ValueError, OverflowError) as error:  # a NUL in the path; emptied meanwhile; larger than the address space
        raise FormatError(f"cannot be mapped: {error}", argument=path, code="unreadable") from error


def folder_text(path: str) -> str:
    """Return what a folder is that is not a bundle, and what to do with it."""
    names = sorted(os.listdir(path)) if os.access(path, os.R_OK) else []
    if "config.json" in names and any(name.endswith(".safetensors") for name in names):
        return f"a checkpoint's folder. Make a program of it: {export_line(path)}."
    programs = [name for name in names if name.endswith(".pte")]
    if programs:
        return f"a folder. Name the program in it: {', '.join(os.path.join(path, name) for name in programs)}."
    weights = [name for name in names if name.endswith(".gguf")]
    if weights:
        return f"a folder. Make a program of what it holds: {export_line(os.path.join(path, weights[0]))}."
    kind = "a folder" if names else "an empty folder"
    return (
        f"{kind}. Name a .pte file, a folder that webpte bundle wrote, or a checkpoint of a language model: "
        "model.gguf, or a folder with config.json and safetensors."
    )


def export_line(path: str) -> str:
    """Return the command that exports a checkpoint."""
    stem = os.path.splitext(os.path.basename(path.rstrip(os.sep)))[0] or "model"
    return f"webpte export {shell_word(path)} -o {shell_word(f'{stem}.pte')}"


def similar_paths(path: str) -> str:
    """Return `; did you mean model.pte?` for a missing path, if the folder has a similar name."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")[:10_000]
    except OSError:
        return f"; there is no folder {folder}" if folder and not os.path.isdir(folder) else ""
    stem, suffix = os.path.splitext(name)
    close = [n for n in close_matches(name, names, 3, 0.7) if os.path.splitext(n)[1] == suffix]
    close = close or [n for n in sorted(names) if n in (f"{stem}.pte", f"{stem}.gguf", name + suffix, name + ".pte")]
    others = sorted(n for n in names if suffix and n.endswith(suffix))
    if close:
        return f"; did you mean {' or '.join(os.path.join(folder, n) for n in close)}?"
    if 0 < len(others) <= 4:
        return f"; {folder or 'this folder'} has {', '.join(others)}"
    return ""

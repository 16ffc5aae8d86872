"""The finished rows of a block that is not complete: a file beside the block, which grows with every part.

The file is `.<name of the block>.rows`: a header, then records with a checksum each. A record is handed to the
operating system as soon as its rows are finished, so it survives the end of the process, and flushed to the disk within
a second, so it survives the end of the machine. The name of the block covers its rows, the model and all options. The
journal of another block is therefore never read.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import zlib
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..errors import InputError
from .results import FinishedRows

SUFFIX = ".rows"
HEADER = b"webpte rows 1\n"
RECORD = struct.Struct("<II")  # bytes of the content, their CRC-32
SYNC_SECONDS = 1.0  # between flushes to the disk


class RowJournal:
    """The finished parts of a block. Use it as a context, which flushes the file and closes it."""

    def __init__(self, folder: Path, name: str) -> None:
        """Read the journal of a block, if an earlier run has left one. A record that was cut or damaged ends it."""
        self.path = journal_path(folder, name)
        self.parts: list[FinishedRows] = []
        self.rows: set[int] = set()
        self._length = 0  # of the intact records
        self._file: int | None = None
        self._dirty, self._closed = threading.Event(), threading.Event()
        self._flusher: threading.Thread | None = None
        self._flush_error: OSError | None = None
        self._read()

    def _read(self) -> None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"cannot be read: {error}", argument=str(self.path), code="unreadable") from error
        if not content.startswith(HEADER):
            return
        self._length = len(HEADER)
        while (record := _record(content, self._length)) is not None:
            self._length += RECORD.size + len(record)
            self._add(_part(record))

    def append(self, part: FinishedRows) -> None:
        """Write finished rows, so that a later run does not compute them again. Skip them if all are known."""
        if self.rows.issuperset(part.rows):
            return
        record = _content(part)
        try:
            if self._flush_error is not None:
                raise self._flush_error
            if self._file is None:
                self._open()
            assert self._file is not None
            _write_all(self._file, RECORD.pack(len(record), zlib.crc32(record)) + record)
        except OSError as error:
            raise InputError(
                f"cannot be written: {error}",
                argument=str(self.path),
                code="write_failed",
                hint="Free disk space, or choose another folder.",
            ) from error
        self._dirty.set()
        self._add(part)

    def _add(self, part: FinishedRows) -> None:
        self.parts.append(part)
        self.rows.update(part.rows)

    def _open(self) -> None:
        """Open the file after its last intact record, and start to flush it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_CREAT | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
        self._flusher = threading.Thread(target=self._flush, name="journal", daemon=True)
        self._flusher.start()
        os.ftruncate(self._file, self._length)
        os.lseek(self._file, 0, os.SEEK_END)
        if not self._length:
            _write_all(self._file, HEADER)

    def _flush(self) -> None:
        """Flush to the disk what was written, at most once in `SYNC_SECONDS` until the journal is closed.

        A flush can take as long as many rows, so it must not keep the thread that computes them waiting.
        """
        assert self._file is not None
        try:
            while self._dirty.wait() and not self._closed.wait(SYNC_SECONDS):
                self._dirty.clear()
                os.fsync(self._file)
                sync_folder(self.path.parent)
        except OSError as error:
            self._flush_error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the file. If the block is not written yet, flush it."""
        if self._file is None:
            return
        self._closed.set()
        self._dirty.set()
        assert self._flusher is not None
        self._flusher.join()
        if exc != (None, None, None):
            os.fsync(self._file)
        os.close(self._file)
        self._file = None

    def remove(self) -> None:
        """Remove the file: its block is complete."""
        self.path.unlink(missing_ok=True)


def journal_path(folder: Path, name: str) -> Path:
    """Return the path of the journal of a block. pyarrow, Spark and others skip names that begin with a dot."""
    block = folder / name
    return block.with_name(f".{block.name}{SUFFIX}")


def sync_folder(folder: Path) -> None:
    """Flush the names of the files in a folder to the disk. Windows has no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- records -----------------------------------------------------------------------------------------------------------


def _record(content: bytes, first: int) -> bytes | None:
    """Return the content of the record at a position. None: it is not complete, or damaged."""
    if first + RECORD.size > len(content):
        return None
    length, checksum = RECORD.unpack_from(content, first)
    record = content[first + RECORD.size :][:length]
    return record if len(record) == length and zlib.crc32(record) == checksum else None


def _content(part: FinishedRows) -> bytes:
    """Return a part as a line of JSON, followed by the numbers of its arrays."""
    arrays = {name: values for name, values in part.columns.items() if isinstance(values, np.ndarray)}
    fields = {
        "rows": [int(row) for row in part.rows],
        "errors": part.errors,
        "tokens": part.tokens,
        "computed_tokens": part.computed_tokens,
        "columns": {name: None if name in arrays else values for name, values in part.columns.items()},
        "shapes": {name: values.shape for name, values in arrays.items()},
    }
    numbers = b"".join(np.ascontiguousarray(values, "<f4").tobytes() for values in arrays.values())
    return json.dumps(fields).encode() + b"\n" + numbers


def _part(record: bytes) -> FinishedRows:
    line, _, numbers = record.partition(b"\n")
    fields: dict[str, Any] = json.loads(line)
    columns, first = fields["columns"], 0
    for name, shape in fields["shapes"].items():
        size = int(np.prod(shape))
        columns[name] = np.frombuffer(numbers, "<f4", size, first).reshape(shape)
        first += size * 4
    return FinishedRows(
        columns, fields["errors"], fields["tokens"], fields["computed_tokens"], rows=tuple(fields["rows"])
    )


def _write_all(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]

"""A method's state as a file.

Magic, the program's fingerprint, the number of buffers, the length of a note, the buffers' sizes, the note, the bytes,
and the SHA-256 of all that; little-endian. Written under a temporary name, synced to the disk and renamed, so that no
moment shows half of a file. Read and checked whole before anything is done with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import threading
from collections.abc import Callable, Sequence
from typing import BinaryIO

from ..errors import DataError, FormatError, InputError

PathLike = str | os.PathLike[str]
MAGIC = b"webpte state 2\n\0"
OLD_MAGIC = b"webpte state 1\n\0"
MOST_NOTE = 64 << 20
_HEADER = struct.Struct("<16s64sII")
_DIGEST = hashlib.sha256().digest_size


def write_state(path: PathLike, fingerprint: str, state: Sequence[memoryview], note: bytes) -> None:
    if len(note) > MOST_NOTE:
        raise InputError(f"the note of a snapshot has {len(note)} bytes; {MOST_NOTE} is the most")
    name = os.fspath(path)
    temporary = f"{name}.{os.getpid()}.{threading.get_ident()}.part"
    header = _HEADER.pack(MAGIC, fingerprint.encode(), len(state), len(note))
    sizes = struct.pack(f"<{len(state)}Q", *(len(data) for data in state))
    pieces: list[bytes | memoryview] = [header, sizes, note, *state]
    digest = hashlib.sha256()
    try:
        with open(temporary, "wb") as file:
            for data in pieces:
                digest.update(data)
                file.write(data)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(os.path.dirname(name) or ".")
    except OSError as error:
        raise InputError(f"{name} cannot be written: {error}", code="unwritable") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def _sync_folder(folder: str) -> None:
    """Make the new name last, where the system lets folders be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


Sizes = Sequence[int] | Callable[[bytes], Sequence[int]]  # bytes of each buffer, if need be by the file's note


def read_state(path: PathLike, fingerprint: str, sizes: Sizes) -> tuple[list[memoryview], bytes]:
    """The buffers and the note of a file, checked to belong to this program and to be whole.

    Sizes that depend on the note are asked for before the file's digest is checked, and may refuse it.
    """
    name = os.fspath(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before open(), which would wait for ever on a pipe
            raise FormatError(f"{name} is not a regular file", code="not_regular_file")
        with open(path, "rb") as file:
            return _read(file, name, fingerprint, sizes)
    except OSError as error:
        raise FormatError(f"{name} cannot be read: {error}", code="unreadable") from error


def _read(file: BinaryIO, name: str, fingerprint: str, wanted: Sizes) -> tuple[list[memoryview], bytes]:
    head = file.read(_HEADER.size)
    if head.startswith(OLD_MAGIC):
        raise FormatError(
            f"{name} is a snapshot of an older format, without a digest; make it again", code="unknown_version"
        )
    if len(head) < _HEADER.size or not head.startswith(MAGIC):
        raise FormatError(f"{name} is not a webpte state file", code="bad_magic")
    _, owner, count, length = _HEADER.unpack(head)
    if owner != fingerprint.encode():
        raise DataError(
            f"{name} holds the state of another program or method, or of one with other weights", code="other_program"
        )
    found = os.fstat(file.fileno()).st_size
    table = file.read(min(8 * count, found))
    note = file.read(min(length, MOST_NOTE))
    sizes = wanted(note) if callable(wanted) else wanted
    if count != len(sizes) or table != struct.pack(f"<{len(sizes)}Q", *sizes):
        raise DataError(
            f"{name} holds {count} buffers of other sizes than this method's {len(sizes)}", code="buffer_sizes"
        )
    expected = len(head) + len(table) + length + sum(sizes) + _DIGEST
    if length > MOST_NOTE or found != expected:
        kind = "truncated" if found < expected else "longer than it says"
        code = "truncated" if found < expected else "too_long"
        raise FormatError(
            f"{name} is {kind}: it has {found} bytes, and its note and {count} buffers need {expected}", code=code
        )
    rest = file.read()
    body, digest = memoryview(rest)[:-_DIGEST], rest[-_DIGEST:]
    whole = hashlib.sha256(head)
    for part in (table, note, body):
        whole.update(part)
    if whole.digest() != digest:
        raise FormatError(f"{name} is damaged: its contents do not match their SHA-256", code="hash_mismatch")
    state, offset = [], 0
    for size in sizes:
        state.append(body[offset : offset + size])
        offset += size
    return state, note

"""A method's state as a file.

Magic, the program's fingerprint, the number of buffers, the length of a note, the buffers' sizes, the note, then the
bytes; little-endian. Written under a temporary name and renamed, so that an interrupted write leaves no half of a file.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Sequence

from ..errors import DataError, FormatError

PathLike = str | os.PathLike[str]
MAGIC = b"webpte state 1\n\0"
_HEADER = struct.Struct("<16s64sII")


def write_state(path: PathLike, fingerprint: str, state: Sequence[memoryview], note: bytes) -> None:
    temporary = f"{os.fspath(path)}.{os.getpid()}.part"
    try:
        with open(temporary, "wb") as file:
            file.write(_HEADER.pack(MAGIC, fingerprint.encode(), len(state), len(note)))
            file.write(struct.pack(f"<{len(state)}Q", *(len(data) for data in state)))
            file.write(note)
            for data in state:
                file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def read_state(path: PathLike, fingerprint: str, sizes: Sequence[int]) -> tuple[list[bytes], bytes]:
    """The buffers and the note of a file, checked to belong to this program and to be whole."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEADER.size)
            if len(head) < _HEADER.size or not head.startswith(MAGIC):
                raise FormatError(f"{os.fspath(path)} is not a webpte state file")
            _, owner, count, length = _HEADER.unpack(head)
            if owner.decode("ascii", "replace") != fingerprint:
                raise DataError(f"{os.fspath(path)} holds the state of another program or method")
            wanted = struct.pack(f"<{len(sizes)}Q", *sizes)
            if count != len(sizes) or file.read(len(wanted)) != wanted:
                raise DataError(
                    f"{os.fspath(path)} holds {count} buffers of other sizes than this method's {len(sizes)}"
                )
            note = file.read(length)
            state = [file.read(size) for size in sizes]
    except OSError as error:
        raise FormatError(f"{os.fspath(path)} cannot be read: {error}") from error
    if [len(data) for data in state] != list(sizes):
        raise FormatError(f"{os.fspath(path)} is truncated: its {count} buffers need {sum(sizes)} bytes")
    return state, note

"""Frames on a pipe: four bytes that tell a length, lowest first, and so many bytes of a message."""

from __future__ import annotations

import asyncio
import struct
import threading
from typing import BinaryIO

from ..errors import FormatError, InputError
from .messages import Message, decode, encode

LARGEST = 64 << 20  # bytes of a message
_LENGTH = struct.Struct("<I")


def framed(message: Message) -> bytes:
    body = encode(message)
    if len(body) > LARGEST:
        raise InputError(
            f"{type(message).__name__} takes {len(body):,} bytes; a frame holds {LARGEST:,}", code="frame_too_large"
        )
    return _LENGTH.pack(len(body)) + body


def _length(head: bytes) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > LARGEST:
        raise FormatError(f"a frame of {length:,} bytes is announced; {LARGEST:,} are the most", code="frame_too_large")
    return int(length)


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None where the other side has ended, though in the middle of one."""
    try:
        return decode(await reader.readexactly(_length(await reader.readexactly(_LENGTH.size))))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class Pipe:
    """Both ways, for threads. Messages of several threads do not mix."""

    def __init__(self, reading: BinaryIO, writing: BinaryIO) -> None:
        self._reading = reading
        self._writing = writing
        self._turn = threading.Lock()

    def send(self, message: Message) -> None:
        data = framed(message)
        with self._turn:
            self._writing.write(data)
            self._writing.flush()

    def receive(self) -> Message | None:
        """The next message; None at the end."""
        head = self._reading.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        length = _length(head)
        body = self._reading.read(length)
        return decode(body) if len(body) == length else None

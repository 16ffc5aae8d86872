"""Parts of the writer of test files: flatbuffer tables, data segments, and data too large for memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NewType

import flatbuffers
import numpy as np

Offset = NewType("Offset", int)
Field = Offset | tuple[str, Any] | None


class Stream(NamedTuple):
    """Data made piece by piece while the file is written; ``chunks()`` must give ``size`` bytes in all."""

    size: int
    chunks: Callable[[], Iterable[bytes]]


Data = bytes | np.ndarray | Stream


def data_size(data: Data) -> int:
    """Bytes of it."""
    if isinstance(data, Stream):
        return data.size
    return data.nbytes if isinstance(data, np.ndarray) else len(data)


def data_chunks(data: Data) -> Iterable[bytes]:
    """Return its bytes, piece by piece."""
    if isinstance(data, Stream):
        return data.chunks()
    return [data.tobytes() if isinstance(data, np.ndarray) else data]


def align(position: int, to: int) -> int:
    """Return the next multiple of ``to``."""
    return -(-position // to) * to


# By struct letter: what the flatbuffers package calls it, and what NumPy does.
_SCALARS = {
    "?": ("Bool", "?"),
    "b": ("Int8", "<i1"),
    "B": ("Uint8", "<u1"),
    "h": ("Int16", "<i2"),
    "i": ("Int32", "<i4"),
    "I": ("Uint32", "<u4"),
    "q": ("Int64", "<i8"),
    "Q": ("Uint64", "<u8"),
    "f": ("Float32", "<f4"),
    "d": ("Float64", "<f8"),
}


class Builder:
    """Flatbuffer tables in one expression: what a table refers to is made by its arguments, so before it."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(1024)

    def table(self, *fields: Field) -> Offset:
        """Return a table, its fields by slot: ``None`` (absent), an offset, or a scalar as (struct letter, value)."""
        self._builder.StartObject(len(fields))
        for slot, value in enumerate(fields):
            if isinstance(value, tuple):
                code, number = value
                # No default, so it is always written.
                getattr(self._builder, f"Prepend{_SCALARS[code][0]}Slot")(slot, number, None)
            elif value is not None:
                self._builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        return Offset(self._builder.EndObject())

    def tables(self, offsets: Sequence[Offset]) -> Offset:
        """Return a vector of tables; they may repeat."""
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return Offset(self._builder.EndVector())

    def scalars(self, code: str, items: Iterable[Any]) -> Offset:
        """Return a vector of numbers of a struct letter."""
        return Offset(self._builder.CreateNumpyVector(np.array(list(items), _SCALARS[code][1])))

    def string(self, text: str) -> Offset:
        """Return a string."""
        return Offset(self._builder.CreateString(text))

    def blob(self, data: bytes) -> Offset:
        """Return a vector of bytes."""
        return Offset(self._builder.CreateByteVector(data))

    def done(self, root: Offset, identifier: bytes) -> bytes:
        """Return the finished flatbuffer."""
        self._builder.Finish(root, file_identifier=identifier)
        return bytes(self._builder.Output())


def splice(flat: bytes, header: bytes) -> bytes:
    """Return a header between a flatbuffer's identifier and its rest, as ExecuTorch puts it."""
    (root,) = struct.unpack_from("<I", flat)
    return struct.pack("<I", root + len(header)) + flat[4:8] + header + flat[8:]


class Segments:
    """The data after a flatbuffer. Adding the same object again gives the same segment."""

    def __init__(self, alignment: int) -> None:
        self.size = 0
        self._alignment = alignment
        self._entries: list[tuple[int, Data]] = []

    def add(self, data: Data) -> int:
        """Return the index of a segment with this data."""
        for index, (_, known) in enumerate(self._entries):
            if known is data:
                return index
        offset = align(self.size, self._alignment)
        self.size = offset + data_size(data)
        self._entries.append((offset, data))
        return len(self._entries) - 1

    def table(self, b: Builder) -> Offset:
        """Return the vector of (offset, size) that describes them."""
        return b.tables([b.table(("Q", offset), ("Q", data_size(data))) for offset, data in self._entries])

    def chunks(self) -> Iterator[bytes]:
        """Yield all of them, with the padding between."""
        position = 0
        for offset, data in self._entries:
            yield bytes(offset - position)
            yield from data_chunks(data)
            position = offset + data_size(data)

"""Write FlatBuffers: nested Python values become the bytes of a buffer, the same bytes for the same values.

Tables are written before what they refer to, since offsets are unsigned. A field that has its default is absent, and
tables with the same fields share a vtable, as ``flatc`` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import calcsize, pack, pack_into


@dataclass(frozen=True, slots=True)
class ScalarField:
    """A number in a table, by its :mod:`struct` letter."""

    code: str
    value: float


@dataclass(frozen=True, slots=True)
class ScalarVector:
    """A vector of numbers, by their :mod:`struct` letter."""

    code: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class TableFields:
    """A table: its fields by slot. ``None`` is an absent field."""

    fields: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True)
class TableVector:
    """A vector of tables."""

    tables: Sequence[TableFields]


FieldValue = None | ScalarField | ScalarVector | TableFields | TableVector | str | bytes


def table(*fields: FieldValue) -> TableFields:
    """Return a table of these fields."""
    return TableFields(fields)


def tables(items: Iterable[TableFields]) -> TableVector:
    """Return a vector of tables."""
    return TableVector(tuple(items))


def number(code: str, value: float, default: float = 0) -> ScalarField | None:
    """Return a number; nothing if it is the schema's default."""
    return None if value == default else ScalarField(code, value)


def vector(code: str, values: Iterable[float]) -> ScalarVector:
    """Return a vector of numbers."""
    return ScalarVector(code, tuple(values))


def union(kind: int, *fields: FieldValue) -> TableFields:
    """Return a table whose only field is a union, as ``EValue`` and ``VkValue`` are."""
    return table(ScalarField("B", kind), table(*fields))


def flatbuffer(root: TableFields, identifier: bytes, reserve: int = 0) -> bytearray:
    """Return the bytes of a buffer. ``reserve`` zero bytes follow the identifier, for a header."""
    return _FlatWriter(identifier, reserve).write(root)


class _FlatWriter:
    def __init__(self, identifier: bytes, reserve: int) -> None:
        self._data = bytearray(4) + identifier + bytes(reserve)
        self._vtables: dict[bytes, int] = {}

    def write(self, root: TableFields) -> bytearray:
        pack_into("<I", self._data, 0, self._table(root))
        self._align(4)
        return self._data

    def _align(self, to: int, ahead: int = 0) -> int:
        """Pad so that a multiple of `to` is `ahead` bytes after the end; return the end."""
        self._data.extend(bytes(-(len(self._data) + ahead) % to))
        return len(self._data)

    def _table(self, content: TableFields) -> int:
        """Append a table, then what it refers to; return its position."""
        fields = [(slot, value) for slot, value in enumerate(content.fields) if value is not None]
        widths = {slot: calcsize(f"<{v.code}") if isinstance(v, ScalarField) else 4 for slot, v in fields}
        places, end = {}, 4
        for slot, width in sorted(widths.items(), key=lambda item: -item[1]):  # wide fields first: least padding
            places[slot] = end = -(-end // width) * width
            end += width
        vtable = self._vtable(places, end)
        start = self._align(max(4, *widths.values(), 4))
        self._data.extend(pack("<i", start - vtable) + bytes(end - 4))
        for slot, value in fields:
            if isinstance(value, ScalarField):
                pack_into(f"<{value.code}", self._data, start + places[slot], value.value)
        for slot, value in fields:
            if not isinstance(value, ScalarField):
                self._refer(start + places[slot], value)
        return start

    def _vtable(self, places: dict[int, int], size: int) -> int:
        slots = [places.get(slot, 0) for slot in range(max(places, default=-1) + 1)]
        vtable = pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), size, *slots)
        if vtable not in self._vtables:
            self._vtables[vtable] = self._align(2)
            self._data.extend(vtable)
        return self._vtables[vtable]

    def _refer(self, at: int, value: FieldValue) -> None:
        """Append what the offset at a position refers to, and set the offset."""
        match value:
            case TableFields():
                target = self._table(value)
            case TableVector(items):
                target = self._align(4)
                self._data.extend(pack("<I", len(items)) + bytes(4 * len(items)))
                for index, item in enumerate(items):
                    self._refer(target + 4 + 4 * index, item)
            case ScalarVector(code, values):
                target = self._align(max(4, calcsize(f"<{code}")), ahead=4)
                self._data.extend(pack(f"<I{len(values)}{code}", len(values), *values))
            case bytes():
                target = self._align(4)
                self._data.extend(pack("<I", len(value)) + value)
            case str():
                target, text = self._align(4), value.encode()
                self._data.extend(pack("<I", len(text)) + text + b"\0")
            case _:
                raise TypeError(f"a field cannot be a {type(value).__name__}")
        pack_into("<I", self._data, at, target - at)

"""A verifying reader of FlatBuffers: every offset, length and vtable is checked before it is used.

The schema bounds how deep tables nest, and the reader does not recurse on data, so a file cannot make it loop. Vectors
of a hostile file may share their elements, and so cause far more work than the file has bytes. Each buffer therefore
has a budget of :data:`MAX_WORK_PER_BYTE` times its size. Every table, vector and string that is read is charged to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, calcsize, unpack_from
from typing import Any, TypeVar

from ..errors import FormatError
from .files import Span

# Without sharing it is at most 1, and exported files stay below that. A vector that repeats one small table, which a
# compact writer may produce, takes 5.
MAX_WORK_PER_BYTE = 8
MAX_NAME_CHARS = 4096
_TABLE_WORK = 8  # the minimum: a vector entry (4 bytes) and a vtable offset (4)

_U8, _I8, _BOOL = Struct("<B"), Struct("<b"), Struct("<?")
_U32, _I32, _U64, _I64, _F64 = Struct("<I"), Struct("<i"), Struct("<Q"), Struct("<q"), Struct("<d")
_U16, _I16, _F32, _VTABLE = Struct("<H"), Struct("<h"), Struct("<f"), Struct("<HH")
_Number = TypeVar("_Number", int, float, bool)


def quoted_name(text: str) -> str:
    """Return a name from a file as a message shows it, quoted and at most 80 characters long."""
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."


class FlatBuffer:
    """One flatbuffer: its bytes, and the remaining budget of work."""

    __slots__ = ("data", "size", "span", "work")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.data = span.view()
        self.size = span.size
        self.work = MAX_WORK_PER_BYTE * span.size

    def root(self, name: str, identifier: bytes, kind: str) -> FlatTable:
        """Return the root table. ``identifier`` is the start of the four bytes after its offset."""
        actual = bytes(self.data[4:8])
        if len(actual) < 4 or not actual.startswith(identifier):
            start = bytes(self.data[:16])
            raise self.error(
                name, 0, f"not {kind}: expected {identifier.decode()!r} at byte 4, got {start!r}", code="bad_magic"
            )
        return FlatTable(self, _U32.unpack_from(self.data)[0], name)

    def spend(self, work: int) -> None:
        """Charge a read to the budget, or raise."""
        self.work -= work
        if self.work < 0:
            limit = MAX_WORK_PER_BYTE * self.size
            raise self.error(
                "flatbuffer", 0, f"its parts overlap: reading it exceeds the budget of {limit} bytes", code="overlap"
            )

    def error(self, where: str, position: int, problem: str, code: str = "") -> FormatError:
        """Return an error with the place in the file of ``position`` in this buffer."""
        return FormatError(
            f"{self.span.file.path}: {where} at byte {self.span.offset + position}: {problem}", code=code
        )


class FlatTable:
    """One table. Fields are read by slot, their number in the schema. Their names are for messages.

    An absent field has its default. An absent vector is empty. An absent string, table or blob is ``None``.
    """

    __slots__ = ("_flat", "_name", "_position", "_size", "_up", "_vtable", "_vtable_size")

    def __init__(
        self, flat: FlatBuffer, position: int, name: str | tuple[str, int], up: FlatTable | None = None
    ) -> None:
        self._flat, self._position, self._name, self._up = flat, position, name, up
        flat.spend(_TABLE_WORK)
        if position + 4 > flat.size:
            raise self.error(
                f"a table starts at the end of the flatbuffer, after {flat.size} bytes", code="table_out_of_bounds"
            )
        self._vtable = vtable = position - _I32.unpack_from(flat.data, position)[0]
        if vtable < 0 or vtable + 4 > flat.size:
            raise self.error(
                f"vtable at {vtable}, outside the flatbuffer of {flat.size} bytes", code="vtable_out_of_bounds"
            )
        self._vtable_size, self._size = _VTABLE.unpack_from(flat.data, vtable)
        if self._vtable_size < 4 or self._vtable_size % 2 or vtable + self._vtable_size > flat.size:
            raise self.error(f"vtable of {self._vtable_size} bytes at {vtable} of {flat.size}", code="vtable_size")
        if self._size < 4 or position + self._size > flat.size:
            raise self.error(f"table of {self._size} bytes at {position} of {flat.size}", code="table_size")

    def u8(self, slot: int, name: str, default: int = 0) -> int:
        return self._scalar(_U8, slot, name, default)

    def i8(self, slot: int, name: str, default: int = 0) -> int:
        return self._scalar(_I8, slot, name, default)

    def i16(self, slot: int, name: str, default: int = 0) -> int:
        return self._scalar(_I16, slot, name, default)

    def u32(self, slot: int, name: str, default: int = 0) -> int:
        return self._scalar(_U32, slot, name, default)

    def i32(self, slot: int, name: str, default: int = 0) -> int:
        return self._scalar(_I32, slot, name, default)

    def u64(self, slot: int, name: str, default: int = 0) -> int:
        return self._scalar(_U64, slot, name, default)

    def i64(self, slot: int, name: str, default: int = 0) -> int:
        return self._scalar(_I64, slot, name, default)

    def f32(self, slot: int, name: str, default: float = 0.0) -> float:
        return self._scalar(_F32, slot, name, default)

    def f64(self, slot: int, name: str, default: float = 0.0) -> float:
        return self._scalar(_F64, slot, name, default)

    def bool_(self, slot: int, name: str, default: bool = False) -> bool:
        return self._scalar(_BOOL, slot, name, default)

    def ints(self, slot: int, name: str, code: str) -> tuple[int, ...]:
        """Return a vector of integers. ``code`` is their :mod:`struct` letter."""
        return self._scalars(slot, name, code)

    def floats(self, slot: int, name: str, code: str = "d") -> tuple[float, ...]:
        """Return a vector of floating point numbers: doubles, or single precision with ``code="f"``."""
        return self._scalars(slot, name, code)

    def bools(self, slot: int, name: str) -> tuple[bool, ...]:
        """Return a vector of booleans."""
        return self._scalars(slot, name, "?")

    def index(self, slot: int, name: str, limit: int, what: str) -> int:
        """Return a 32-bit index below ``limit``. Messages call the elements ``what``."""
        return self._checked(self.i32(slot, name), name, 0, limit, what)

    def indices(self, slot: int, name: str, limit: int, what: str, code: str = "i", lowest: int = 0) -> tuple[int, ...]:
        """Return a vector of such indices. With ``lowest=-1``, -1 stands for none."""
        indices = self.ints(slot, name, code)
        if indices:
            self._checked(min(indices), name, lowest, limit, what)
            self._checked(max(indices), name, lowest, limit, what)
        return indices

    def count(self, slot: int, name: str) -> int:
        """Return the number of tables in a vector."""
        return self._vector(slot, name, 4, work_per_byte=0)[1]

    def place(self, slot: int, name: str) -> int:
        """Return the position in the file of a vector's length, 0 if absent."""
        target = self._follow(slot, name)
        return self._flat.span.offset + target if target else 0

    def string(self, slot: int, name: str) -> str | None:
        """Return a string."""
        start, count = self._vector(slot, name, 1)
        if not start:
            return None
        end = start + count
        if end >= self._flat.size or self._flat.data[end]:
            raise self.error(f"string of {count} bytes without a terminating zero", name, code="unterminated_string")
        try:
            return str(self._flat.data[start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(
                f"string of {count} bytes is invalid UTF-8: {error.reason}", name, code="invalid_utf8"
            ) from None

    def label(self, slot: int, name: str) -> str | None:
        """Return a string that is a name. Messages show it, so it must be printable and short."""
        label = self.string(slot, name)
        if label is not None and (len(label) > MAX_NAME_CHARS or not label.isprintable()):
            start = ascii(label[:40]) + "..." * (len(label) > 40)
            raise self.error(
                f"expected a name of at most {MAX_NAME_CHARS} printable characters, got {len(label)}: {start}",
                name,
                code="invalid_name",
            )
        return label

    def text(self, slot: int, name: str) -> str:
        """Return a required name."""
        if (label := self.label(slot, name)) is None:
            raise self.error("missing", name, code="missing_field")
        return label

    def blob(self, slot: int, name: str) -> Span | None:
        """Return a vector of bytes as a range of the file, without reading it."""
        start, count = self._vector(slot, name, 1, work_per_byte=0)
        return self._flat.span.sub(start, count) if start else None

    def data(self, slot: int, name: str) -> bytes:
        """Return a copy of a vector of bytes."""
        start, count = self._vector(slot, name, 1)
        return bytes(self._flat.data[start : start + count])

    def table(self, slot: int, name: str) -> FlatTable | None:
        """Return a nested table."""
        target = self._follow(slot, name)
        return FlatTable(self._flat, target, name, self) if target else None

    def tables(self, slot: int, name: str) -> Iterator[FlatTable]:
        """Yield the tables of a vector."""
        start, count = self._vector(slot, name, 4)
        for index in range(count):
            at = start + 4 * index
            yield FlatTable(self._flat, at + _U32.unpack_from(self._flat.data, at)[0], (name, index), self)

    def union(self, slot: int, name: str) -> tuple[int, FlatTable]:
        """Return the kind and the member of a required union, which takes two slots."""
        kind = self.u8(slot, name)
        member = self.table(slot + 1, name) if kind else None
        if member is None:
            raise self.error(f"union of kind {kind} without a value", name, code="missing_field")
        return kind, member

    def error(self, problem: str, field: str = "", code: str = "") -> FormatError:
        """Return an error about this table or one of its fields."""
        return self._flat.error(f"{self.path}.{field}" if field else self.path, self._position, problem, code)

    @property
    def path(self) -> str:
        """Return the path of this table, for instance ``program.execution_plan[0].values[3]``."""
        own = self._name if isinstance(self._name, str) else f"{self._name[0]}[{self._name[1]}]"
        return own if self._up is None else f"{self._up.path}.{own}"

    def _scalar(self, code: Struct, slot: int, name: str, default: _Number) -> _Number:
        at = self._field(slot, name, code.size)
        value: _Number = code.unpack_from(self._flat.data, at)[0] if at else default
        return value

    def _scalars(self, slot: int, name: str, code: str) -> tuple[Any, ...]:
        start, count = self._vector(slot, name, calcsize("<" + code))
        return unpack_from(f"<{count}{code}", self._flat.data, start)

    def _checked(self, index: int, name: str, lowest: int, limit: int, what: str) -> int:
        if not lowest <= index < limit:
            raise self.error(f"{what} {index} is out of range: there are {limit}", name, code="index_out_of_range")
        return index

    def _field(self, slot: int, name: str, width: int) -> int:
        """Return the position of a field, 0 if absent. No field is at 0, where the vtable offset is."""
        entry = 4 + 2 * slot
        if entry + 2 > self._vtable_size:
            return 0
        offset: int = _U16.unpack_from(self._flat.data, self._vtable + entry)[0]
        if offset and (offset < 4 or offset + width > self._size):
            raise self.error(
                f"field of {width} bytes at {offset} of a table of {self._size} bytes", name, code="field_out_of_bounds"
            )
        return self._position + offset if offset else 0

    def _follow(self, slot: int, name: str) -> int:
        """Return the position that a field points to, 0 if absent."""
        at = self._field(slot, name, 4)
        if not at:
            return 0
        target: int = at + _U32.unpack_from(self._flat.data, at)[0]
        if target == at or target + 4 > self._flat.size:
            raise self.error(
                f"points to {target}, outside the flatbuffer of {self._flat.size} bytes",
                name,
                code="offset_out_of_bounds",
            )
        return target

    def _vector(self, slot: int, name: str, width: int, work_per_byte: int = 1) -> tuple[int, int]:
        """Return the position of a vector's first element and the number of elements, (0, 0) if absent."""
        target = self._follow(slot, name)
        if not target:
            return 0, 0
        count: int = _U32.unpack_from(self._flat.data, target)[0]
        remaining = self._flat.size - target - 4
        if count * width > remaining:
            raise self.error(
                f"vector of {count} elements of {width} bytes, with {remaining} bytes remaining",
                name,
                code="vector_out_of_bounds",
            )
        self._flat.spend(4 + count * width * work_per_byte)
        return target + 4, count

"""Shapes, element types, data segments and tensor data as the three formats write them, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from struct import unpack_from
from types import MappingProxyType

from ..errors import FormatError
from .dtypes import DType
from .files import MappedFile, Span
from .flat import FlatBuffer, FlatTable, quoted_name
from .recognize import wrong_file_error

MAX_RANK = 16  # ExecuTorch's own limit; it also bounds the product of hostile sizes


def read_dtype(table: FlatTable, slot: int, name: str, lookup: Callable[[int], DType]) -> DType:
    """Return the element type in a field. ``lookup`` is one of the code tables of :class:`DType`."""
    try:
        return lookup(table.i8(slot, name))
    except FormatError as error:
        raise table.error(str(error), name, error.reason) from None


def read_sizes(table: FlatTable, slot: int, name: str, code: str) -> tuple[int, ...]:
    """Return the sizes of a tensor's dimensions."""
    sizes = table.ints(slot, name, code)
    if len(sizes) > MAX_RANK:
        raise table.error(f"expected at most {MAX_RANK} dimensions, got {len(sizes)}", name, code="too_many_dims")
    if any(size < 0 for size in sizes):
        raise table.error(f"negative size in {sizes}", name, code="negative_size")
    return sizes


def read_dim_order(table: FlatTable, slot: int, name: str, rank: int) -> tuple[int, ...]:
    """Return the dimensions from outermost to innermost in memory. The default is contiguous."""
    order = table.ints(slot, name, "B") or tuple(range(rank))
    if len(order) != rank or set(order) != set(range(rank)):
        raise table.error(
            f"expected an order of {rank} dimensions, got {order[: MAX_RANK + 1]}", name, code="dim_order"
        )
    return order


def count_bytes(dtype: DType, sizes: tuple[int, ...]) -> int:
    """Return the number of bytes of a dense tensor."""
    return math.prod(sizes) * dtype.itemsize


# -- segments: large data outside the flatbuffer, in .pte and .ptd files -----------------------------------------------


def segment_area(file: MappedFile, start: int, size: int, after: int) -> Span:
    """Return the range of the segments. ``size`` is 0 if unknown, ``after`` is the end of the flatbuffer."""
    if start == 0:  # the format for "no segments"
        return Span(file, file.size, 0)
    if start < after:
        raise FormatError(
            f"segments at byte {start} start inside the flatbuffer, which ends at byte {after}",
            argument=file.path,
            code="segment_overlap",
        )
    if start + size > file.size:
        raise FormatError(
            f"truncated: the header places segments at bytes {start} to {start + size}, the file has {file.size} bytes",
            argument=file.path,
            code="truncated",
            hint="Copy or download it again.",
        )
    return Span(file, start, size or file.size - start)


def read_segments(table: FlatTable, slot: int, area: Span) -> tuple[Span, ...]:
    """Return all ``segments`` of a program or tensor file."""
    segments = []
    for entry in table.tables(slot, "segments"):
        offset, size = entry.u64(0, "offset"), entry.u64(1, "size")
        if offset + size > area.size:
            raise entry.error(
                f"is at bytes {offset} to {offset + size} of the segment data, which has {area.size} bytes",
                code="segment_out_of_bounds",
            )
        segments.append(area.sub(offset, size))
    return tuple(segments)


def read_named_data(table: FlatTable, slot: int, segments: tuple[Span, ...]) -> Iterator[tuple[str, Span, FlatTable]]:
    """Yield all ``named_data`` of a program or tensor file: key, segment, and the table of the entry."""
    seen = set()
    for entry in table.tables(slot, "named_data"):
        key = entry.text(0, "key")
        if key in seen:
            raise entry.error(f"second entry with the key {quoted_name(key)}", code="duplicate_key")
        seen.add(key)
        yield key, segments[entry.index(1, "segment_index", len(segments), "segment")], entry


# -- the data of a program's tensors -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Region:
    """A segment of several tensors, and the offset of each. Number 0 is reserved for "no data"."""

    segment: int
    offsets: tuple[int, ...]

    @staticmethod
    def read(table: FlatTable) -> Region:
        """Return the region of a ``SubsegmentOffsets`` table."""
        return Region(table.u32(0, "segment_index"), table.ints(1, "offsets", "Q"))


@dataclass(frozen=True, slots=True)
class TensorData:
    """Constants and initial values: one region of constants, and regions of initial values of mutable tensors."""

    segments: tuple[Span, ...]
    constants: Region
    initial: tuple[Region, ...]
    inline: tuple[Span | None, ...]  # constants inside the flatbuffer, as written until September 2024

    @staticmethod
    def read(program: FlatTable, area: Span) -> TensorData:
        """Return the data of a program by its root table and the range of its segments."""
        constants = program.table(5, "constant_segment")
        return TensorData(
            segments=read_segments(program, 4, area),
            constants=Region(0, ()) if constants is None else Region.read(constants),
            initial=tuple(Region.read(entry) for entry in program.tables(6, "mutable_data_segments")),
            inline=tuple(entry.blob(0, "storage") for entry in program.tables(2, "constant_buffer")),
        )

    def constant(self, tensor: FlatTable, number: int, size: int, name: str | None) -> Span:
        """Return the bytes of a constant."""
        if not self.inline or self.constants.offsets:
            return self._find(tensor, number, self.constants, size, name)
        blob = self.inline[number] if number < len(self.inline) else None
        if blob is None or blob.size < size:
            available = 0 if blob is None else blob.size
            raise tensor.error(
                f"{_label(name)} needs {size} bytes of constant buffer {number}, which has {available}",
                code="data_too_small",
            )
        return blob.sub(0, size)

    def initial_value(self, tensor: FlatTable, number: int, size: int, name: str | None, region: int) -> Span:
        """Return the initial bytes of a mutable tensor."""
        if region >= len(self.initial):
            raise tensor.error(
                f"{_label(name)} has data in mutable_data_segments[{region}]: there are {len(self.initial)}",
                code="index_out_of_range",
            )
        return self._find(tensor, number, self.initial[region], size, name)

    def _find(self, tensor: FlatTable, number: int, region: Region, size: int, name: str | None) -> Span:
        if number >= len(region.offsets):
            raise tensor.error(
                f"{_label(name)} has data number {number}: there are {len(region.offsets)}", code="index_out_of_range"
            )
        if region.segment >= len(self.segments):
            raise tensor.error(
                f"{_label(name)} is in segment {region.segment}: there are {len(self.segments)}",
                code="index_out_of_range",
            )
        segment, offset = self.segments[region.segment], region.offsets[number]
        if offset + size > segment.size:
            raise tensor.error(
                f"{_label(name)} needs {size} bytes at offset {offset} of segment {region.segment},"
                f" which has {max(segment.size - offset, 0)}",
                code="data_too_small",
            )
        return segment.sub(offset, size)


def _label(name: str | None) -> str:
    return f"tensor {quoted_name(name)}" if name else "tensor"


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """Data with a name. The data of a delegate has neither type nor shape: they are ``None``."""

    span: Span
    dtype: DType | None = None
    sizes: tuple[int, ...] | None = None
    dim_order: tuple[int, ...] | None = None  # outermost to innermost in memory


@dataclass(frozen=True, slots=True)
class TensorFile:
    """The contents of a .ptd file."""

    path: str
    entries: Mapping[str, NamedTensor]


def parse_tensors(file: MappedFile) -> TensorFile:
    """Parse and check a .ptd file. The result refers to ranges of ``file``, which must stay open to read them."""
    flatbuffer, area = _read_header(file)
    root = FlatBuffer(flatbuffer).root("tensors", b"FT", _KIND)
    segments = read_segments(root, 1, area)
    entries = {key: _read_tensor(key, span, entry) for key, span, entry in read_named_data(root, 2, segments)}
    return TensorFile(file.path, MappingProxyType(entries))


_KIND = "an ExecuTorch tensor file (.ptd)"


def _read_header(file: MappedFile) -> tuple[Span, Span]:
    """Return the ranges of the flatbuffer, whose offsets are relative to the start of the file, and of the segments."""
    start = bytes(file.view(0, min(file.size, 48)))
    if len(start) < 48 or start[4:6] != b"FT" or start[8:12] != b"FH01":
        raise wrong_file_error(file, _KIND, "expected 'FT' at byte 4 and 'FH01' at byte 8")
    length, offset, size, segments, segments_size = unpack_from("<IQQQQ", start, 12)
    if length < 40 or not 8 + length <= offset <= offset + size <= file.size:
        raise FormatError(
            f"truncated or damaged: header of {length} bytes, expected 40; flatbuffer at bytes {offset} to"
            f" {offset + size}, the file has {file.size}",
            argument=file.path,
            code="truncated",
            hint="Copy or download it again.",
        )
    return Span(file, 0, offset + size), segment_area(file, segments, segments_size, offset + size)


def _read_tensor(key: str, span: Span, entry: FlatTable) -> NamedTensor:
    layout = entry.table(2, "tensor_layout")
    if layout is None:
        return NamedTensor(span)
    dtype = read_dtype(layout, 0, "scalar_type", DType.from_scalar_type)
    sizes = read_sizes(layout, 1, "sizes", "i")
    needed = count_bytes(dtype, sizes)
    if needed > span.size:
        raise entry.error(
            f"tensor {quoted_name(key)} needs {needed} bytes, its segment has {span.size}", code="data_too_small"
        )
    return NamedTensor(span.sub(0, needed), dtype, sizes, read_dim_order(layout, 2, "dim_order", len(sizes)))

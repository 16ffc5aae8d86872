"""Data segments: the large things, kept outside the flatbuffer in the same file. Shared by .pte and .ptd."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import FormatError
from .files import MappedFile, Span
from .flat import Table, shown


def segment_area(file: MappedFile, start: int, size: int, after: int) -> Span:
    """Where a header says that segments are: ``size`` 0 if unknown, ``after`` the end of the flatbuffer."""
    if start == 0:  # the format's way to say that there are none
        return Span(file, file.size, 0)
    if start < after:
        raise FormatError(
            f"{file.path}: segments at byte {start} begin inside the flatbuffer, which ends at {after}",
            code="segment_overlap",
        )
    if start + size > file.size:
        raise FormatError(
            f"{file.path}: is truncated: its header places segments at bytes {start} to {start + size},"
            f" the file has {file.size} bytes; copy or download it again",
            code="truncated",
        )
    return Span(file, start, size or file.size - start)


def read_segments(table: Table, slot: int, area: Span) -> tuple[Span, ...]:
    """All ``segments`` of a program or tensor file."""
    found = []
    for entry in table.tables(slot, "segments"):
        offset, size = entry.u64(0, "offset"), entry.u64(1, "size")
        if offset + size > area.size:
            raise entry.error(
                f"needs bytes {offset} to {offset + size} of the segment data, which has {area.size} bytes",
                code="segment_out_of_bounds",
            )
        found.append(area.sub(offset, size))
    return tuple(found)


def read_named_data(table: Table, slot: int, segments: tuple[Span, ...]) -> Iterator[tuple[str, Span, Table]]:
    """All ``named_data`` of a program or tensor file: key, segment, and the entry for what else it holds."""
    seen = set()
    for entry in table.tables(slot, "named_data"):
        key = entry.text(0, "key")
        if key in seen:
            raise entry.error(f"second entry with the key {shown(key)}", code="duplicate_key")
        seen.add(key)
        yield key, segments[entry.index(1, "segment_index", len(segments), "segment")], entry

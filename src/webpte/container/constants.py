"""Where a .pte program keeps the data of its tensors: constants and initial values."""

from __future__ import annotations

from dataclasses import dataclass

from .files import Span
from .flat import Table, shown
from .segments import read_segments


@dataclass(frozen=True, slots=True)
class Region:
    """A segment that holds several tensors, and where each starts. Number 0 is reserved for "no data"."""

    segment: int
    offsets: tuple[int, ...]

    @staticmethod
    def read(table: Table) -> Region:
        """From a ``SubsegmentOffsets`` table."""
        return Region(table.u32(0, "segment_index"), table.ints(1, "offsets", "Q"))


@dataclass(frozen=True, slots=True)
class TensorData:
    """All of it: one region of constants, and regions of initial values for tensors that change."""

    segments: tuple[Span, ...]
    constants: Region
    initial: tuple[Region, ...]
    inline: tuple[Span | None, ...]  # constants inside the flatbuffer, as written until September 2024

    @staticmethod
    def read(program: Table, area: Span) -> TensorData:
        """From the program's root table, and where its segments are."""
        constants = program.table(5, "constant_segment")
        return TensorData(
            segments=read_segments(program, 4, area),
            constants=Region(0, ()) if constants is None else Region.read(constants),
            initial=tuple(Region.read(entry) for entry in program.tables(6, "mutable_data_segments")),
            inline=tuple(entry.blob(0, "storage") for entry in program.tables(2, "constant_buffer")),
        )

    def constant(self, tensor: Table, number: int, size: int, name: str | None) -> Span:
        """The bytes of a constant."""
        if not self.inline or self.constants.offsets:
            return self._find(tensor, number, self.constants, size, name)
        blob = self.inline[number] if number < len(self.inline) else None
        if blob is None or blob.size < size:
            available = 0 if blob is None else blob.size
            raise tensor.error(
                f"{_what(name)} needs {size} bytes of constant buffer {number}, {available} are available",
                code="data_too_small",
            )
        return blob.sub(0, size)

    def initial_value(self, tensor: Table, number: int, size: int, name: str | None, region: int) -> Span:
        """The bytes that a tensor starts with."""
        if region >= len(self.initial):
            raise tensor.error(
                f"{_what(name)} starts with data of mutable_data_segments[{region}], there are {len(self.initial)}",
                code="index_out_of_range",
            )
        return self._find(tensor, number, self.initial[region], size, name)

    def _find(self, tensor: Table, number: int, region: Region, size: int, name: str | None) -> Span:
        if number >= len(region.offsets):
            raise tensor.error(
                f"{_what(name)} has data number {number}, there are {len(region.offsets)}", code="index_out_of_range"
            )
        if region.segment >= len(self.segments):
            raise tensor.error(
                f"{_what(name)} is in segment {region.segment}, there are {len(self.segments)}",
                code="index_out_of_range",
            )
        segment, offset = self.segments[region.segment], region.offsets[number]
        if offset + size > segment.size:
            raise tensor.error(
                f"{_what(name)} needs {size} bytes at offset {offset} of segment {region.segment},"
                f" {max(segment.size - offset, 0)} are available",
                code="data_too_small",
            )
        return segment.sub(offset, size)


def _what(name: str | None) -> str:
    return f"tensor {shown(name)}" if name else "tensor"

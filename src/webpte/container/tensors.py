"""Parse .ptd files: named tensors outside a program. Slots are those of ExecuTorch's ``flat_tensor.fbs``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import unpack_from
from types import MappingProxyType

from ..errors import FormatError
from .dtypes import DType
from .files import MappedFile, Span
from .flat import FlatBuffer, FlatTable, quoted_name
from .recognise import wrong_file_error
from .tensor_data import (
    count_bytes,
    read_dim_order,
    read_dtype,
    read_named_data,
    read_segments,
    read_sizes,
    segment_area,
)


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

"""The .ptd file: named tensors outside a program. Slots are those of ExecuTorch's ``flat_tensor.fbs``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import unpack_from
from types import MappingProxyType

from ..errors import FormatError
from .dtypes import DType
from .files import MappedFile, Span
from .flat import Flat, Table, shown
from .layout import count_bytes, read_dim_order, read_dtype, read_sizes
from .recognise import refusal
from .segments import read_named_data, read_segments, segment_area


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """Data under a name. A delegate's data is no tensor to the exporter: its type and shape are ``None``."""

    span: Span
    dtype: DType | None = None
    sizes: tuple[int, ...] | None = None
    dim_order: tuple[int, ...] | None = None  # outermost to innermost in memory


@dataclass(frozen=True, slots=True)
class TensorFile:
    """Everything a .ptd file says."""

    path: str
    entries: Mapping[str, NamedTensor]


def parse_tensors(file: MappedFile) -> TensorFile:
    """Read and check a .ptd file. What is returned refers to ranges of ``file``, which must stay open to use them."""
    flatbuffer, area = _read_header(file)
    root = Flat(flatbuffer).root("tensors", b"FT", _KIND)
    segments = read_segments(root, 1, area)
    entries = {key: _read_tensor(key, span, entry) for key, span, entry in read_named_data(root, 2, segments)}
    return TensorFile(file.path, MappingProxyType(entries))


_KIND = "an ExecuTorch tensor file (.ptd)"


def _read_header(file: MappedFile) -> tuple[Span, Span]:
    """Where the flatbuffer is (its offsets count from the start of the file), and where the segments are."""
    start = bytes(file.view(0, min(file.size, 48)))
    if len(start) < 48 or start[4:6] != b"FT" or start[8:12] != b"FH01":
        raise refusal(file, _KIND, "'FT' expected at byte 4 and 'FH01' at byte 8")
    length, offset, size, segments, segments_size = unpack_from("<IQQQQ", start, 12)
    if length < 40 or not 8 + length <= offset <= offset + size <= file.size:
        raise FormatError(
            f"{file.path}: is truncated or damaged: header of {length} bytes, expected 40; it says that the flatbuffer"
            f" takes bytes {offset} to {offset + size}, the file has {file.size}; copy or download it again",
            code="truncated",
        )
    return Span(file, 0, offset + size), segment_area(file, segments, segments_size, offset + size)


def _read_tensor(key: str, span: Span, entry: Table) -> NamedTensor:
    layout = entry.table(2, "tensor_layout")
    if layout is None:
        return NamedTensor(span)
    dtype = read_dtype(layout, 0, "scalar_type", DType.from_scalar_type)
    sizes = read_sizes(layout, 1, "sizes", "i")
    needed = count_bytes(dtype, sizes)
    if needed > span.size:
        raise entry.error(
            f"tensor {shown(key)} needs {needed} bytes, its segment has {span.size}", code="data_too_small"
        )
    return NamedTensor(span.sub(0, needed), dtype, sizes, read_dim_order(layout, 2, "dim_order", len(sizes)))

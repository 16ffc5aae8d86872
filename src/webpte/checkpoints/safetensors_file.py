"""Read safetensors files through a memory map, without the package of that name.

A file is a u64 with the size of a JSON header, the header, and the bytes of the tensors.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..container import MappedFile, Span
from ..container.flat import quoted_name
from ..errors import FormatError, UnsupportedError
from .ggml import bf16

Array = np.ndarray[Any, Any]
MAX_HEADER_BYTES = 100_000_000  # the limit of the format
_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


class FloatTensor(NamedTuple):
    """A tensor of floats in a file. Its bytes are inside the file and as many as its shape and dtype take."""

    dtype: str
    shape: tuple[int, ...]
    span: Span

    def read(self) -> Array:
        """Return the tensor as f32."""
        data: Array = np.frombuffer(self.span.view(), _DTYPES[self.dtype])
        return (bf16(data) if self.dtype == "BF16" else data.astype(np.float32, copy=False)).reshape(self.shape)

    def part(self, start: int, stop: int) -> FloatTensor:
        """Return some of its rows."""
        size = self.span.size // self.shape[0]
        span = self.span.sub(start * size, (stop - start) * size)
        return self._replace(shape=(stop - start, *self.shape[1:]), span=span)


def read_safetensors(path: Path) -> dict[str, FloatTensor]:
    """Return the tensors of a file by name. Tensors that are not floats are refused."""
    file = MappedFile(path)
    size = int.from_bytes(file.view(0, min(8, file.size)), "little")
    if file.size < 8 or size > min(MAX_HEADER_BYTES, file.size - 8):
        raise _error(path, f"expected a header within {file.size} bytes, got one of {size}")
    try:
        header = json.loads(bytes(file.view(8, size)))
    except (ValueError, RecursionError) as error:
        raise _error(path, f"its header is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise _error(path, "its header is not a JSON object")
    header.pop("__metadata__", None)
    if not_float := [f"{name} ({_dtype(entry)})" for name, entry in header.items() if _dtype(entry) not in _DTYPES]:
        raise UnsupportedError(
            f"{path} has tensors that are not floats: {', '.join(not_float)}", not_float, code="tensor_type"
        )
    tensors = {name: _place(file, path, name, entry, 8 + size) for name, entry in header.items()}
    _refuse_overlaps(path, tensors)
    return tensors


def _refuse_overlaps(path: Path, tensors: dict[str, FloatTensor]) -> None:
    """Refuse tensors that share bytes: a small file could describe a large model."""
    ordered = sorted(tensors.items(), key=lambda item: item[1].span.offset)
    for (first, one), (second, other) in pairwise(ordered):
        if one.span.offset + one.span.size > other.span.offset:
            raise _error(path, f"tensors {quoted_name(first)} and {quoted_name(second)} overlap")


def _place(file: MappedFile, path: Path, name: str, entry: dict[str, Any], start: int) -> FloatTensor:
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise _error(path, f"{quoted_name(name)}: expected a shape and two offsets, got {shape!r:.80}, {offsets!r:.80}")
    begin, end = offsets
    count = math.prod(shape) * _DTYPES[entry["dtype"]].itemsize
    if end - begin != count or start + end > file.size:
        raise _error(path, f"{quoted_name(name)}: expected {count} bytes within the file, got {begin} to {end}")
    return FloatTensor(entry["dtype"], tuple(shape), Span(file, start + begin, count))


def _dtype(entry: Any) -> object:
    dtype = entry.get("dtype") if isinstance(entry, dict) else None
    return dtype if isinstance(dtype, str) else None


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _error(path: Path, problem: str) -> FormatError:
    return FormatError(f"{path} cannot be read: {problem}", code="unreadable")

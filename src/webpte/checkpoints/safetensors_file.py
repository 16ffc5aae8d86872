"""Read safetensors files through a memory map, without the package of that name.

A file is a u64 with the size of a JSON header, the header, and the bytes of the tensors.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..container import MappedFile, Span
from ..container.flat import quoted_name
from ..errors import FormatError, UnsupportedError
from ..json_files import parse_json
from .ggml import GROUP, MXFP4, TYPES, TensorType, bf16, mxfp4_values

Array = np.ndarray[Any, Any]
MAX_HEADER_BYTES = 100_000_000  # the limit of the format
MAX_TENSORS = 1 << 16  # of a file
MAX_DIMS, MAX_SIZE = 8, 1 << 48  # of a tensor; of a dim, and of an offset
_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
}
FLOATS = ("F64", "F32", "F16", "BF16")


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


class Mxfp4Tensor(NamedTuple):
    """Matrices in MXFP4. Codes and scales are two tensors of a file: (..., K / 32, 16) and (..., K / 32) bytes."""

    shape: tuple[int, ...]
    span: Span  # of the codes
    scales: Span

    @property
    def type(self) -> TensorType:
        return TYPES[MXFP4]

    def read(self) -> Array:
        """Return the tensor as f32."""
        with np.errstate(all="ignore"):  # damaged scales are infinite; users of the weight check for them
            return mxfp4_values(*self.codes()).reshape(self.shape)

    def part(self, start: int, stop: int) -> Mxfp4Tensor:
        """Return some of its rows."""
        sizes = [span.size // self.shape[0] for span in (self.span, self.scales)]
        parts = [s.sub(start * n, (stop - start) * n) for s, n in zip((self.span, self.scales), sizes, strict=True)]
        return Mxfp4Tensor((stop - start, *self.shape[1:]), *parts)

    def codes(self) -> tuple[Array, Array]:
        """Return the codes (N, K / 2) and scales (N, K / 32) of all matrices."""
        rows = math.prod(self.shape[:-1])
        codes, scales = (np.frombuffer(span.view(), np.uint8).reshape(rows, -1) for span in (self.span, self.scales))
        return codes, scales


_CODES, _SCALES = "_blocks", "_scales"  # ends of the names of the two tensors


def read_weights(path: Path) -> dict[str, FloatTensor | Mxfp4Tensor]:
    """Return the tensors of a file by name; those in MXFP4 have the name of their codes."""
    tensors = _read(path, ("U8",))
    weights: dict[str, FloatTensor | Mxfp4Tensor] = {n: each for n, each in tensors.items() if each.dtype != "U8"}
    packed = {name: each for name, each in tensors.items() if each.dtype == "U8"}
    for name in [name for name in packed if name.endswith(_CODES)]:
        codes, scales_name = packed[name], name.removesuffix(_CODES) + _SCALES
        scales = packed.get(scales_name)
        if scales is not None and len(scales.shape) > 1 and codes.shape == (*scales.shape, GROUP // 2):
            shape = (*scales.shape[:-1], GROUP * scales.shape[-1])
            weights[name] = Mxfp4Tensor(shape, codes.span, scales.span)
            del packed[name], packed[scales_name]
    if packed:
        raise _not_floats(path, [f"{name} (U8)" for name in packed])
    return weights


def read_safetensors(path: Path) -> dict[str, FloatTensor]:
    """Return the tensors of a file by name. Tensors that are not floats are refused."""
    return _read(path)


def _read(path: Path, others: tuple[str, ...] = ()) -> dict[str, FloatTensor]:
    """Return the tensors of floats, and of bytes that are among the `others`."""
    file = MappedFile(path)
    size = int.from_bytes(file.view(0, min(8, file.size)), "little")
    if file.size < 8 or size > min(MAX_HEADER_BYTES, file.size - 8):
        raise _error(path, f"expected a header within {file.size} bytes, got one of {size}")
    header = parse_json(bytes(file.view(8, size)), f"{path}: its header")
    if not isinstance(header, dict):
        raise _error(path, "its header is not a JSON object")
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise FormatError(
            argument=str(path), expected=f"at most {MAX_TENSORS} tensors", got=len(header), code="unreadable"
        )
    types = {name: _dtype(entry) for name, entry in header.items()}
    if not_float := [f"{name} ({kind})" for name, kind in types.items() if kind not in (*FLOATS, *others)]:
        raise _not_floats(path, not_float)
    tensors = {name: _place(file, path, name, entry, 8 + size) for name, entry in header.items()}
    _refuse_overlaps(path, tensors)
    return tensors


def _not_floats(path: Path, names: list[str]) -> UnsupportedError:
    return UnsupportedError(f"{path} has tensors that are not floats: {', '.join(names)}", names, code="tensor_type")


def _refuse_overlaps(path: Path, tensors: dict[str, FloatTensor]) -> None:
    """Refuse tensors that share bytes: a small file could describe a large model."""
    ordered = sorted(tensors.items(), key=lambda item: item[1].span.offset)
    for (first, one), (second, other) in pairwise(ordered):
        if one.span.offset + one.span.size > other.span.offset:
            raise _error(path, f"tensors {quoted_name(first)} and {quoted_name(second)} overlap")


def _place(file: MappedFile, path: Path, name: str, entry: dict[str, Any], start: int) -> FloatTensor:
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not _are_sizes(shape, 1, MAX_DIMS) or not _are_sizes(offsets, 0, 2) or len(offsets) != 2:
        raise FormatError(
            argument=f"{path}: {quoted_name(name)}",
            expected=f"at most {MAX_DIMS} dims from 1 to {MAX_SIZE}, and two offsets",
            got=f"{shape!r:.80}, {offsets!r:.80}",
            code="unreadable",
        )
    begin, end = offsets
    count = math.prod(shape) * _DTYPES[entry["dtype"]].itemsize
    if end - begin != count or start + end > file.size:
        raise _error(path, f"{quoted_name(name)}: expected {count} bytes within the file, got {begin} to {end}")
    return FloatTensor(entry["dtype"], tuple(shape), Span(file, start + begin, count))


def _dtype(entry: Any) -> object:
    dtype = entry.get("dtype") if isinstance(entry, dict) else None
    return dtype if isinstance(dtype, str) else None


def _are_sizes(values: Any, least: int, most: int) -> bool:
    """Return whether a value is a list of at most `most` sizes. They are multiplied after this check."""
    return (
        isinstance(values, list)
        and len(values) <= most
        and all(type(value) is int and least <= value <= MAX_SIZE for value in values)
    )


def _error(path: Path, problem: str) -> FormatError:
    return FormatError(f"{path} cannot be read: {problem}", code="unreadable")

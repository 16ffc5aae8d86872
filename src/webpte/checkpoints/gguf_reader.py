"""Parse the header of a GGUF file. Every length, count, type and offset is checked before it is used.

The parser reads the file once from front to back, and arrays do not nest. The work is bounded by the header's size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from ..container import MappedFile, Span
from ..container.flat import quoted_name
from ..container.recognize import RETRY
from ..errors import FormatError, UnsupportedError
from .ggml import GROUP, TYPES, Affine, TensorType

MAGIC, VERSIONS = b"GGUF", (2, 3)
MAX_NAME_BYTES = 65_535  # of a key, and of the name of a tensor
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 20
DEFAULT_ALIGNMENT = 32
_U32, _U64 = Struct("<I"), Struct("<Q")
# By the number of the type in the file: how a value of it is stored.
_SCALARS = dict(enumerate(["B", "b", "H", "h", "I", "i", "f", "?"])) | {10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9


class StoredTensor(NamedTuple):
    """A tensor in the file. Its bytes are inside the file and as many as its shape and type take."""

    name: str
    type: TensorType
    shape: tuple[int, ...]  # outermost dim first; the file has it the other way round
    span: Span

    def read(self) -> np.ndarray[Any, Any]:
        """Return the tensor as f32."""
        decode = self.type.decode or _decoder(self)
        with np.errstate(all="ignore"):  # damaged scales are NaN or infinite; users of the weight check for them
            return decode(self._blocks()).reshape(self.shape)

    def part(self, start: int, stop: int) -> StoredTensor:
        """Return some of its rows."""
        size = self.span.size // self.shape[0]
        span = self.span.sub(start * size, (stop - start) * size)
        return self._replace(shape=(stop - start, *self.shape[1:]), span=span)

    def affine(self) -> Affine | None:
        """Return the codes, steps and offsets of a matrix in groups of 32: (N, G, 32), (N, G), (N, G)."""
        if self.type.affine is None:
            return None
        with np.errstate(all="ignore"):
            codes, steps, offsets = self.type.affine(self._blocks())
        rows = self.shape[0]
        return Affine(codes.reshape(rows, -1, GROUP), steps.reshape(rows, -1), offsets.reshape(rows, -1))

    def codes(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the codes (N, K / 2) and scales (N, K / 32) of a matrix in a format of two codes to a byte."""
        assert self.type.codes is not None, self.name
        codes, scales = self.type.codes(self._blocks())
        return codes.reshape(self.shape[0], -1), scales.reshape(self.shape[0], -1)

    def _blocks(self) -> np.ndarray[Any, Any]:
        return np.frombuffer(self.span.view(), np.uint8).reshape(-1, self.type.bytes)


def _decoder(tensor: StoredTensor) -> Any:
    """Return the function of the package gguf that decodes blocks of a rare type."""
    try:
        from gguf import GGMLQuantizationType, quants
    except ImportError:
        raise _unsupported(tensor, "without the package gguf") from None

    def decode(blocks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        try:
            return np.asarray(quants.dequantize(blocks, GGMLQuantizationType[tensor.type.name]), np.float32)
        except NotImplementedError:
            raise _unsupported(tensor, "in any case") from None

    return decode


def _unsupported(tensor: StoredTensor, when: str) -> UnsupportedError:
    return UnsupportedError(
        f"{tensor.span.file.path}: {tensor.name} has the format {tensor.type.name}, which cannot be decoded {when}",
        [tensor.name],
        code="tensor_type",
        hint="Use another quantization of the model, such as Q4_0, Q4_K_M or Q8_0.",
    )


class Header(NamedTuple):
    values: dict[str, Any]  # numbers, booleans, strings, and lists of them, by key
    tensors: dict[str, StoredTensor]


def read_header(path: Path) -> Header:
    """Return the keys and the places of the tensors of a GGUF file, or raise a `FormatError` at the first fault."""
    file = MappedFile(path)
    cursor = _Cursor(file)
    tensor_count, key_count = _read_counts(cursor)
    values: dict[str, Any] = {}
    for number in range(key_count):
        key = cursor.string(f"key {number} of {key_count}", MAX_NAME_BYTES)
        if key in values:
            raise cursor.error(f"key {quoted_name(key)}", "duplicate key")
        values[key] = _read_value(cursor, f"the value of {quoted_name(key)}")
    infos = [_read_tensor_info(cursor, f"tensor {number} of {tensor_count}") for number in range(tensor_count)]
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if not _is_power_of_two(alignment) or alignment > MAX_ALIGNMENT:
        raise FormatError(
            argument=f"{path}: general.alignment",
            expected=f"a power of two up to {MAX_ALIGNMENT}",
            got=quoted_name(str(alignment)),
            code="alignment",
        )
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    for info in infos:
        if info.name in tensors:
            raise FormatError(f"{path}: tensor {quoted_name(info.name)} is a duplicate", code="duplicate_tensor")
        tensors[info.name] = _place(file, info, start, alignment)
    _refuse_overlaps(path, list(tensors.values()))
    return Header(values, tensors)


class _Cursor:
    """A position in the file, which moves on with every read and never beyond the end."""

    def __init__(self, file: MappedFile) -> None:
        self.path, self._data, self._size = file.path, file.view(0, file.size), file.size
        self.at = 0

    def take(self, size: int, what: str) -> memoryview:
        if size > self._size - self.at:
            raise self.error(what, f"expected {size} bytes, got {self._size - self.at}", hint=_incomplete(self._size))
        self.at += size
        return self._data[self.at - size : self.at]

    def u32(self, what: str) -> int:
        return int(_U32.unpack(self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack(self.take(8, what))[0])

    def string(self, what: str, most: int | None = None) -> str:
        size = self.u64(what)
        if most is not None and size > most:
            raise self.error(what, f"it has {size} bytes; at most {most} are allowed")
        data = bytes(self.take(size, what))
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.error(what, f"invalid UTF-8: {error}", "invalid_utf8") from error

    def error(self, what: str, problem: str, code: str = "gguf", hint: str = "") -> FormatError:
        return FormatError(f"{self.path}: {what}, before byte {self.at}: {problem}", code=code, hint=hint)


def _incomplete(size: int) -> str:
    return f"The file ends after {size} bytes, so its download may be incomplete. {RETRY}"


def _read_counts(cursor: _Cursor) -> tuple[int, int]:
    magic = bytes(cursor.take(4, "the magic"))
    if magic != MAGIC:
        raise cursor.error("the magic", f"expected {MAGIC!r}, got {magic!r}", "bad_magic")
    version = cursor.u32("the version")
    if version & 0xFFFF == 0:
        raise UnsupportedError(f"{cursor.path}: a big-endian GGUF file; only little-endian files are read")
    if version not in VERSIONS:
        raise UnsupportedError(f"{cursor.path}: GGUF version {version}; versions {VERSIONS} are read")
    return cursor.u64("the number of tensors"), cursor.u64("the number of keys")


def _read_value(cursor: _Cursor, what: str) -> Any:
    kind = cursor.u32(what)
    if kind == _STRING:
        return cursor.string(what)
    if kind != _ARRAY:
        return _read_numbers(cursor, kind, 1, what)[0]
    inner, count = cursor.u32(what), cursor.u64(what)
    if inner == _ARRAY:
        raise UnsupportedError(f"{cursor.path}: {what} is an array of arrays, which are not read")
    if inner == _STRING:
        return [cursor.string(what) for _ in range(count)]
    return _read_numbers(cursor, inner, count, what)


def _read_numbers(cursor: _Cursor, kind: int, count: int, what: str) -> Sequence[Any]:
    code = _SCALARS.get(kind)
    if code is None:
        raise cursor.error(what, f"{kind} is not the number of a type")
    data = cursor.take(count * Struct(f"<{code}").size, what)
    if kind == _BOOL and max(data, default=0) > 1:
        raise cursor.error(what, "a boolean that is neither 0 nor 1")
    return list(Struct(f"<{count}{code}").unpack(data))


class _TensorInfo(NamedTuple):
    name: str
    dims: tuple[int, ...]  # as stored, innermost first
    type: int
    offset: int


def _read_tensor_info(cursor: _Cursor, what: str) -> _TensorInfo:
    name = cursor.string(what, MAX_NAME_BYTES)
    what = f"tensor {quoted_name(name)}"
    count = cursor.u32(what)
    if not 1 <= count <= MAX_DIMS:
        raise cursor.error(what, f"it has {count} dims; expected 1 to {MAX_DIMS}")
    dims = tuple(cursor.u64(what) for _ in range(count))
    return _TensorInfo(name, dims, cursor.u32(what), cursor.u64(what))


def _place(file: MappedFile, info: _TensorInfo, start: int, alignment: int) -> StoredTensor:
    what = f"{file.path}: tensor {quoted_name(info.name)}"
    kind = TYPES.get(info.type)
    if kind is None:
        raise FormatError(f"{what} has the unknown type {info.type}", code="tensor_type")
    if min(info.dims) < 1 or info.dims[0] % kind.weights:
        raise FormatError(
            f"{what} is {list(info.dims)}; expected sizes above 0, the first divided by {kind.weights} as {kind.name} "
            "is",
            code="tensor_shape",
        )
    size, offset = math.prod(info.dims) // kind.weights * kind.bytes, start + info.offset
    if info.offset % alignment or offset + size > file.size:
        raise FormatError(
            f"{what} takes bytes {offset} to {offset + size} of a file of {file.size}; expected an offset that is "
            f"divided by {alignment}, and an end within the file",
            code="out_of_bounds",
            hint=_incomplete(file.size) if offset + size > file.size else "",
        )
    return StoredTensor(info.name, kind, info.dims[::-1], Span(file, offset, size))


def _refuse_overlaps(path: Path, tensors: list[StoredTensor]) -> None:
    """Refuse tensors that share bytes: a small file could describe a large model."""
    ordered = sorted(tensors, key=lambda tensor: tensor.span.offset)
    for first, second in pairwise(ordered):
        if first.span.offset + first.span.size > second.span.offset:
            raise FormatError(
                f"{path}: tensors {quoted_name(first.name)} and {quoted_name(second.name)} overlap", code="overlap"
            )


def _is_power_of_two(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0 and value & (value - 1) == 0

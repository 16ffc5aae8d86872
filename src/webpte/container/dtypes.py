"""Element types: one table of the names and codes of all formats."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from ..errors import FormatError


class DType(enum.Enum):
    """An element type, with the codes of ``scalar_type.fbs`` (.pte, .ptd) and of the Vulkan ``schema.fbs``."""

    #          short   bytes numpy scalar_type vulkan   (files are little-endian, so the NumPy types say so)
    BOOL = ("bool", 1, "?", 11, 0)
    UINT8 = ("u8", 1, "<u1", 0, 1)
    INT8 = ("i8", 1, "<i1", 1, 2)
    INT16 = ("i16", 2, "<i2", 2, None)
    INT32 = ("i32", 4, "<i4", 3, 3)
    INT64 = ("i64", 8, "<i8", 4, 7)
    FLOAT16 = ("f16", 2, "<f2", 5, 4)
    FLOAT32 = ("f32", 4, "<f4", 6, 5)
    FLOAT64 = ("f64", 8, "<f8", 7, 6)
    BFLOAT16 = ("bf16", 2, None, 15, None)  # NumPy has no bfloat16
    UINT16 = ("u16", 2, "<u2", 27, None)
    UINT32 = ("u32", 4, "<u4", 28, None)
    UINT64 = ("u64", 8, "<u8", 29, None)
    # In no file: f16 values in words, as a device without f16 stores them.
    WIDE_FLOAT16 = ("f16w", 2, "<f2", None, None)

    def __init__(
        self, short: str, itemsize: int, numpy: str | None, scalar_type: int | None, vulkan: int | None
    ) -> None:
        self.short = short
        self.itemsize = itemsize
        self.numpy: np.dtype[Any] | None = None if numpy is None else np.dtype(numpy)
        self.held = np.dtype("<f4") if self.numpy is None else self.numpy  # the type of its values on the host
        self.scalar_type = scalar_type
        self.vulkan = vulkan

    def __repr__(self) -> str:
        return f"DType.{self.name}"

    def from_bytes(self, data: bytes | bytearray) -> np.ndarray[Any, Any]:
        """Return the values in `data`, bytes of a file or a device, in the type `held`."""
        if self is not DType.BFLOAT16:
            return np.frombuffer(data, self.numpy)
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")

    def rounded(self, values: Any) -> np.ndarray[Any, Any]:
        """Return `values` in this type, contiguous. bf16 values are rounded to nearest, in f32."""
        array = np.ascontiguousarray(values, dtype=self.held).reshape(np.shape(values))
        if self is not DType.BFLOAT16:
            return array
        bits = array.view("<u4")
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view("<f4")  # ties to even
        return np.where(np.isnan(array), array, nearest)

    @classmethod
    def from_scalar_type(cls, code: int) -> DType:
        """Return the type with a code of .pte and .ptd files."""
        if (dtype := _BY_SCALAR_TYPE.get(code)) is None:
            raise FormatError(
                f"unsupported scalar type {code}", code="unknown_dtype", hint=f"Supported: {_listing(_BY_SCALAR_TYPE)}."
            )
        return dtype

    @classmethod
    def from_vulkan(cls, code: int) -> DType:
        """Return the type with a code of Vulkan delegate graphs."""
        if (dtype := _BY_VULKAN.get(code)) is None:
            raise FormatError(
                f"unsupported Vulkan data type {code}", code="unknown_dtype", hint=f"Supported: {_listing(_BY_VULKAN)}."
            )
        return dtype


def _listing(table: dict[int, DType]) -> str:
    return ", ".join(f"{code} {dtype.short}" for code, dtype in sorted(table.items()))


_BY_SCALAR_TYPE = {d.scalar_type: d for d in DType if d.scalar_type is not None}
_BY_VULKAN = {d.vulkan: d for d in DType if d.vulkan is not None}

"""Padding with a constant, or cropping."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType, numel
from ...graph.expressions import float_bits, round_to_f16
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.numbers import fitting
from ...lowering.registry import BYTES, MOVABLE, op
from ...lowering.shapes import check_rank, strides
from ...lowering.traits import OpTraits
from ...wgsl import Uniforms, dims8, u32
from .strided import word, wrapped


class PadParams(Uniforms):
    count: u32  # output elements
    rank: u32
    value: u32  # bits of the padding
    dims: dims8
    sizes: dims8  # of the input
    shifts: dims8  # position in the input minus position in the output
    strides: dims8


def bits_of(value: float, dtype: DType) -> int:
    """Return the bits of a number as the device stores it."""
    if dtype is DType.BOOL:
        return int(value != 0)
    if dtype is DType.INT32:
        return fitting(int(value)) & 0xFFFFFFFF
    if dtype is DType.WIDE_FLOAT16:
        return float_bits(round_to_f16(value)) & 0xFFFFFFFF
    with np.errstate(over="ignore"):
        return int.from_bytes(np.asarray(value, dtype.numpy).tobytes(), "little")


@op("aten.constant_pad_nd.default", dtypes=MOVABLE, traits=OpTraits(dims=dim_rules.padded("self", "pad")))
def constant_pad_nd(cx: Context, self: Tensor, pad: list[int], value: int | float, *, out: Tensor) -> None:
    if len(pad) % 2 or len(pad) > 2 * self.rank:
        raise ShapeError(
            argument="pad",
            expected=f"two integers for each of at most {self.rank} dims of {list(self.dims)}",
            got=pad,
            code="wrong_length",
        )
    untouched = self.rank - len(pad) // 2
    before = (0,) * untouched + tuple(pad[-2::-2])  # the schema lists them from the last dim to the first
    after = (0,) * untouched + tuple(pad[::-2])
    dims = tuple(b + size + a for b, size, a in zip(before, self.dims, after, strict=True))
    if min(dims, default=0) < 0:
        raise ShapeError(f"negative padding {pad} removes more elements than {list(self.dims)} has", code="too_small")
    out.dims = dims
    check_rank(dims)
    sizes, bits, packed = self.dims, bits_of(value, self.dtype), self.dtype in BYTES
    if packed and dims and dims[-1] == sizes[-1] and dims[-1] % 4 == 0 and not before[-1]:  # words are moved whole
        dims, sizes = (*dims[:-1], dims[-1] // 4), (*sizes[:-1], sizes[-1] // 4)
        bits, packed = bits * 0x01010101, False
    params = PadParams(
        count=out.numel,
        rank=len(dims),
        value=bits,
        dims=dims,
        sizes=sizes,
        shifts=wrapped(tuple(-b for b in before)),
        strides=strides(sizes),
    )
    cx.dispatch(
        "layout/pad.wgsl",
        reads={"x": self},
        writes={"y": out},
        params=params,
        threads=-(-out.numel // 4) if packed else numel(dims),
        word=word(self),
        packed=packed,
    )


@constant_pad_nd.reference
def _(self: Any, pad: list[int], value: float) -> Any:
    pairs = [(0, 0)] * (self.ndim - len(pad) // 2) + list(zip(pad[-2::-2], pad[::-2], strict=True))
    padded = np.pad(self, [(max(b, 0), max(a, 0)) for b, a in pairs], constant_values=value)
    return padded[tuple(slice(max(-b, 0), min(a, 0) or None) for b, a in pairs)]

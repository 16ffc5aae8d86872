"""Read a tensor through strides: the one kernel of slice, select, permute, expand, flip and related ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import normalize_dim
from ...lowering.context import Context, Tensor
from ...lowering.registry import BYTES, op
from ...lowering.shapes import Dims, check_rank, coalesce, strides
from ...wgsl import Live, LiveInt, Uniforms, dims8, u32

START = LiveInt(0, -1)


class StridedParams(Uniforms):
    rank: u32
    step: u32  # elements per unit of `start`
    start: Live
    dims: dims8
    strides: dims8


class StridedBytesParams(StridedParams):
    count: u32


def gather(
    cx: Context,
    x: Tensor,
    out: Tensor,
    strides: Dims,
    start: LiveInt = START,
    step: int = 1,
    dims: Dims | None = None,
) -> None:
    """Move out[i, j, ...] = x.flat[start * step + i * strides[0] + j * strides[1] + ...] as bits.

    `dims` is another shape of the output with the same number of elements. Strides may be 0 or negative.
    """
    walked, (steps,) = coalesce(out.dims if dims is None else dims, strides)
    check_rank(walked)
    width = _width(walked, steps, start, step) if x.dtype not in BYTES else 1
    if width > 1:  # neighbors that stay together are moved together
        walked, steps = (*walked[:-1], walked[-1] // width), (*(s // width for s in steps[:-1]), 1)
        step //= width
    fields = {"rank": len(walked), "step": step, "start": start, "dims": walked, "strides": wrapped(steps)}
    if x.dtype in BYTES:
        packed = StridedBytesParams(**fields, count=out.numel)
        cx.dispatch(
            "layout/strided_bytes.wgsl", reads={"x": x}, writes={"y": out}, params=packed, threads=-(-out.numel // 4)
        )
        return
    params = StridedParams(**fields)
    threads = out.numel // width
    cx.dispatch(
        "layout/strided.wgsl",
        reads={"x": x},
        writes={"y": out},
        params=params,
        threads=threads,
        word=word(x),
        width=width,
    )


def _width(dims: Dims, strides: Dims, start: LiveInt, step: int) -> int:
    """Return the number of elements that can be moved at once."""
    aligned = start == START or step % 4 == 0
    whole = bool(dims) and dims[-1] % 4 == 0 and strides[-1] == 1 and all(s % 4 == 0 for s in strides[:-1])
    return 4 if aligned and whole else 1


def wrapped(values: Dims) -> Dims:
    """Return signed integers for u32 uniforms. Kernels only add and multiply them, which is exact modulo 2**32."""
    return tuple(value & 0xFFFFFFFF for value in values)


def word(tensor: Tensor) -> str:
    """Return the WGSL type to move a tensor's elements as bits."""
    return "f16" if tensor.wgsl == "f16" else "u32"


@op("aten.as_strided_copy.default")
def as_strided_copy(
    cx: Context, self: Tensor, size: list[int], stride: list[int], storage_offset: int | None, *, out: Tensor
) -> None:
    if len(size) != len(stride) or min((*size, *stride, storage_offset or 0), default=0) < 0:
        raise ShapeError(
            f"as_strided: invalid size {size}, stride {stride} or offset {storage_offset}", code="invalid_stride"
        )
    out.dims = tuple(size)
    start = storage_offset or 0
    last = start + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if out.numel and last >= self.numel:
        raise ShapeError(f"size {size} at stride {stride} reads element {last} of {self.numel}", code="out_of_bounds")
    gather(cx, self, out, tuple(stride), start=LiveInt(start, -1))


@as_strided_copy.reference
def _(self: Any, size: list[int], stride: list[int], storage_offset: int | None) -> Any:
    positions = np.full((), storage_offset or 0, np.int64)
    for count, step in zip(size, stride, strict=True):
        positions = positions[..., None] + np.arange(count) * step
    return self.reshape(-1)[positions]


@op("aten.unfold_copy.default")
def unfold_copy(cx: Context, self: Tensor, dimension: int, size: int, step: int, *, out: Tensor) -> None:
    axis = normalize_dim(dimension, self.rank)
    dims = self.dims or (1,)  # a scalar counts as one element
    if not 0 <= size <= dims[axis] or step < 1:
        raise ShapeError(
            f"windows of {size} with step {step} do not fit dim {dimension} of {list(self.dims)}", code="too_small"
        )
    own = strides(dims)
    steps = (*own[:axis], own[axis] * step, *own[axis + 1 :], own[axis])
    windows = (dims[axis] - size) // step + 1
    # (..., n, ...) -> (..., windows, ..., size)
    out.dims = (*dims[:axis], windows, *dims[axis + 1 :], size) if self.rank else (size,)
    gather(cx, self, out, steps if self.rank else (1,))


@unfold_copy.reference
def _(self: Any, dimension: int, size: int, step: int) -> Any:
    if not self.ndim:
        return self.reshape(1)[:size]
    axis = normalize_dim(dimension, self.ndim)
    starts = range(0, self.shape[axis] - size + 1, step)
    windows = [np.moveaxis(np.take(self, np.arange(s, s + size), axis), axis, -1) for s in starts]
    return np.stack(windows, axis)

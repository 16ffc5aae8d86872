"""Reading a tensor through strides: the one kernel of slice, select, permute, expand, flip and related ops."""

from __future__ import annotations

from ...lowering.context import Context, Tensor
from ...lowering.registry import BYTES
from ...lowering.shapes import Dims, check_rank, coalesce
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
    """out[i, j, ...] = x.flat[start * step + i * strides[0] + j * strides[1] + ...], moved as bits.

    `dims` walks the output under another shape of as many elements. Strides may be 0 or negative.
    """
    walked, (steps,) = coalesce(out.dims if dims is None else dims, strides)
    check_rank(walked)
    width = _width(walked, steps, start, step) if x.dtype not in BYTES else 1
    if width > 1:  # neighbours that stay together are moved together
        walked, steps = (*walked[:-1], walked[-1] // width), (*(s // width for s in steps[:-1]), 1)
        step //= width
    fields = {"rank": len(walked), "step": step, "start": start, "dims": walked, "strides": wrapped(steps)}
    if x.dtype in BYTES:
        packed = StridedBytesParams(**fields, count=out.numel)
        cx.dispatch("layout/strided_bytes.wgsl", reads=(x,), writes=(out,), params=packed, threads=-(-out.numel // 4))
        return
    params = StridedParams(**fields)
    threads = out.numel // width
    cx.dispatch(
        "layout/strided.wgsl", reads=(x,), writes=(out,), params=params, threads=threads, word=word(x), width=width
    )


def _width(dims: Dims, strides: Dims, start: LiveInt, step: int) -> int:
    """How many elements can be moved at once."""
    aligned = start == START or step % 4 == 0
    whole = bool(dims) and dims[-1] % 4 == 0 and strides[-1] == 1 and all(s % 4 == 0 for s in strides[:-1])
    return 4 if aligned and whole else 1


def wrapped(values: Dims) -> Dims:
    """Signed integers for u32 uniforms. Kernels only add and multiply them, which is exact modulo 2**32."""
    return tuple(value & 0xFFFFFFFF for value in values)


def word(tensor: Tensor) -> str:
    """The type to move a tensor's elements as without looking at them."""
    return "f16" if tensor.wgsl == "f16" else "u32"

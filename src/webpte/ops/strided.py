"""Reading a tensor through strides: the one kernel behind slice, select, permute, expand and their kin."""

from __future__ import annotations

from ..errors import ShapeError
from ..wgsl import Live, LiveInt, Uniforms, dims8, u32
from .context import Context, Tensor
from .shapes import Dims, coalesce

MAX_RANK = 8
START = LiveInt(0, -1)


class Strided(Uniforms):
    rank: u32
    step: u32  # elements per unit of `start`
    start: Live
    dims: dims8
    strides: dims8


def gather(cx: Context, x: Tensor, out: Tensor, strides: Dims, start: LiveInt = START, step: int = 0) -> None:
    """out[i, j, ...] = x.flat[start * step + i * strides[0] + j * strides[1] + ...], moved as bits."""
    dims, (steps,) = coalesce(out.dims, strides)
    if len(dims) > MAX_RANK:
        raise ShapeError(f"shape {list(out.dims)} needs {len(dims)} strided dims; at most {MAX_RANK} are supported")
    params = Strided(rank=len(dims), step=step, start=start, dims=dims, strides=steps)
    cx.dispatch("strided.wgsl", reads=(x,), writes=(out,), params=params, threads=out.numel, word=word(x))


def word(tensor: Tensor) -> str:
    """The type to move a tensor's elements as without looking at them."""
    return "f16" if tensor.wgsl == "f16" else "u32"

"""Filling a cache of int8 codes."""

from __future__ import annotations

from ...errors import GraphError
from ...lowering.context import Context, LiveScalar, Tensor
from ...wgsl import Live, Uniforms, u32


class CacheWriteBytesParams(Uniforms):
    start: Live
    seq: u32
    capacity: u32
    row: u32  # bytes per position: heads * head size
    words: u32  # that the tokens of one sequence may touch


def write_byte_cache(cx: Context, value: Tensor, cache: Tensor, start: LiveScalar, done: Tensor) -> None:
    """Write cache[:, start : start + S] = value in place, where both are int8."""
    batch, seq, heads, width = value.dims  # (B, S, H, D)
    row, capacity = heads * width, cache.dims[1]
    if batch > 1 and row * capacity % 4:
        raise GraphError(
            f"a cache {list(cache.dims)} of bytes, whose sequences share words, cannot be written in place",
            code="unsupported_argument",
        )
    words = seq * row // 4 + 2
    cx.dispatch(
        "attention/cache_write_bytes.wgsl",
        reads={"x": value},
        writes={"cache": cache, "done": done},
        params=CacheWriteBytesParams(start=start.dynamic, seq=seq, capacity=capacity, row=row, words=words),
        threads=batch * words,
    )

"""Causal attention over a KV cache that lives on the device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import GraphError, ShapeError
from ..wgsl import Live, Uniforms, f32, u32
from .context import Context, LiveScalar, Tensor
from .registry import FLOATS, Unused, op


class CacheWrite(Uniforms):
    start: Live
    seq: u32
    capacity: u32
    row: u32  # elements per position: heads * head size


class Attention(Uniforms):
    start: Live
    seq: u32
    capacity: u32
    heads: u32
    kv_heads: u32
    scale: f32


def write_cache(cx: Context, value: Tensor, cache: Tensor, start: LiveScalar) -> None:
    """cache[:, start : start + S] = value, in place."""
    _, seq, heads, width = value.dims  # (B, S, H, D)
    if cache.dims[2:] != value.dims[2:] or cache.dims[0] != value.dims[0]:
        raise ShapeError(f"{list(value.dims)} does not fit the cache {list(cache.dims)}")
    capacity = cache.dims[1]
    cx.guard(
        lambda: 0 <= start.peek() <= capacity - seq,
        lambda: f"{seq} tokens at position {start.peek()} do not fit a cache of {capacity}. Reset it or re-export.",
    )
    params = CacheWrite(start=start.live, seq=seq, capacity=capacity, row=heads * width)
    cx.dispatch(
        "cache_write.wgsl", reads=(value,), writes=(cache,), params=params, threads=value.numel, type=value.wgsl
    )


@op("sdpa_with_kv_cache.default", dtypes=FLOATS, mutates=("key_cache", "value_cache"))
def sdpa_with_kv_cache(
    cx: Context,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    start_pos: LiveScalar,
    seq_len: Unused,
    attn_mask: Tensor | None,
    drpout_p: float,
    is_causal: bool,
    scale: float | None,
    *,
    out: Tensor,
) -> None:
    if attn_mask is not None or drpout_p != 0 or not is_causal:
        raise GraphError("only causal attention without mask and dropout runs over a KV cache")
    batch, seq, heads, width = query.dims  # (B, S, Hq, D)
    kv_heads = key.dims[2]
    if heads % kv_heads:
        raise ShapeError(f"{heads} query heads cannot share {kv_heads} key heads")
    write_cache(cx, key, key_cache, start_pos)
    write_cache(cx, value, value_cache, start_pos)
    out.dims = query.dims
    lanes = 4 if width % 4 == 0 else 1
    params = Attention(
        start=start_pos.live,
        seq=seq,
        capacity=key_cache.dims[1],
        heads=heads,
        kv_heads=kv_heads,
        scale=1 / math.sqrt(width) if scale is None else scale,
    )
    cx.dispatch(
        "attention.wgsl",
        reads=(query, key_cache, value_cache),
        writes=(out,),
        params=params,
        threads=batch * seq * heads,
        workgroup=8,
        type=query.wgsl,
        lanes=lanes,
        steps=width // lanes,  # sizes the private accumulators, so it is compiled in
    )


@sdpa_with_kv_cache.reference
def _(
    query: Any,
    key: Any,
    value: Any,
    key_cache: Any,
    value_cache: Any,
    start_pos: int,
    seq_len: object,
    attn_mask: object,
    drpout_p: object,
    is_causal: object,
    scale: float | None,
) -> Any:
    """Writes into the caches it is given, as the op does."""
    seq, heads, width = query.shape[1:]
    end = start_pos + seq
    key_cache[:, start_pos:end] = key
    value_cache[:, start_pos:end] = value
    group = heads // key.shape[2]
    keys = np.repeat(key_cache[:, :end], group, axis=2)  # (B, C, Hq, D)
    values = np.repeat(value_cache[:, :end], group, axis=2)
    scores = np.einsum("bshd,bchd->bhsc", query, keys) * (1 / math.sqrt(width) if scale is None else scale)
    future = np.arange(end)[None, :] > np.arange(start_pos, end)[:, None]  # (S, C)
    scores = np.where(future, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhsc,bchd->bshd", weights, values).astype(query.dtype)

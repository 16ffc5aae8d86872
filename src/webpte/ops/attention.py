"""Attention without stored scores, and the ops that run it over a KV cache on the device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import GraphError, ShapeError
from ..graph import DType, numel
from ..wgsl import Live, LiveInt, Uniforms, dims8, f32, u32
from .context import Context, LiveScalar, Tensor
from .registry import FLOATS, Unused, op
from .shapes import broadcast, broadcast_strides

FIRST = LiveInt(0, -1)
MAX_WIDTH = 256  # of a head's values: one invocation holds them all
FEW_ROWS = 64  # up to so many query rows, as in decoding, the keys of each are split among invocations
SPLITS = 16
# Flags, not dtypes: a mask is read as words, so that a half mask alone does not ask the device for f16.
_MASKS = {DType.BOOL: "bool", DType.FLOAT16: "half", DType.FLOAT32: "float"}


class CacheWrite(Uniforms):
    start: Live
    seq: u32
    capacity: u32
    row: u32  # elements per position: heads * head size


class Attention(Uniforms):
    start: Live
    keys: u32  # token t of the query sees start + keys + causal * t keys
    causal: u32
    seq: u32
    heads: u32
    group: u32  # query heads that share a key head
    batch_rows: u32  # how far apart, in rows of one head's elements, the next batch is in keys and values,
    head_rows: u32  # the next head,
    key_rows: u32  # and the next key
    key_steps: u32  # loads per row
    value_steps: u32
    scale: f32
    mask_strides: dims8  # over (batch, head, token, key)


class Merge(Uniforms):
    splits: u32
    value_steps: u32


@dataclass(frozen=True)
class Seen:
    """Token t of the query sees the first `start + keys` keys, with `causal` t more."""

    keys: int
    start: LiveInt = FIRST
    causal: bool = False


def attend(
    cx: Context,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Seen,
    *,
    mask: Tensor | None,
    scale: float | None,
    out: Tensor,
    heads_first: bool = False,
) -> None:
    """out = softmax(query keyᵀ * scale + mask) value over the keys that are seen.

    Tensors are (B, S, H, D), with `heads_first` (B, H, S, D). A key that the mask hides (minus infinity, or False) has
    no weight, whatever it holds; a row whose keys are all hidden is zero, as in F.scaled_dot_product_attention.
    """
    _check_shapes(query, key, value, head_dim=1 if heads_first else 2)
    width, value_width = query.dims[3], value.dims[3]
    out.dims = (*query.dims[:3], value_width)
    lanes = _lanes(query, value)
    rows = numel(query.dims[:3])
    splits = SPLITS if rows <= FEW_ROWS and lanes == 4 else 1
    target = out
    if splits > 1:
        # The same size at every live shape: what is asked for at build is what there is.
        target = cx.scratch(DType.FLOAT32, (FEW_ROWS * splits * (value_width + 4),))
    cx.dispatch(
        "attention.wgsl",
        reads=(query, key, value) if mask is None else (query, key, value, mask),
        writes=(target,),
        params=_params(query, key, value, seen, mask, 1 / math.sqrt(width) if scale is None else scale, heads_first),
        threads=rows * splits,
        workgroup=8,
        type=query.wgsl,
        cache=key.wgsl,
        mask="" if mask is None else _MASKS[mask.dtype],
        heads_first=heads_first,
        lanes=lanes,
        splits=splits,
        steps=value_width // lanes,  # sizes the private accumulators, so it is compiled in
    )
    if splits > 1:
        _merge(cx, target, out, rows, splits)


def _merge(cx: Context, partial: Tensor, out: Tensor, rows: int, splits: int) -> None:
    """Join what the invocations of a row found out."""
    params = Merge(splits=splits, value_steps=out.dims[3] // 4)
    threads = rows * params.value_steps
    cx.dispatch("attention_merge.wgsl", reads=(partial,), writes=(out,), params=params, threads=threads, type=out.wgsl)


def _params(
    query: Tensor, key: Tensor, value: Tensor, seen: Seen, mask: Tensor | None, scale: float, heads_first: bool
) -> Attention:
    seq_dim, head_dim = (2, 1) if heads_first else (1, 2)
    batch, seq, heads, width = query.dims[0], query.dims[seq_dim], query.dims[head_dim], query.dims[3]
    kv_heads, capacity, value_width = key.dims[head_dim], key.dims[seq_dim], value.dims[3]
    lanes = _lanes(query, value)
    return Attention(
        start=seen.start,
        keys=seen.keys,
        causal=int(seen.causal),
        seq=seq,
        heads=heads,
        group=heads // kv_heads,
        batch_rows=0 if key.dims[0] == 1 else kv_heads * capacity,
        head_rows=capacity if heads_first else 1,
        key_rows=1 if heads_first else kv_heads,
        key_steps=width // lanes,
        value_steps=value_width // lanes,
        scale=scale,
        mask_strides=() if mask is None else _mask_strides(mask, (batch, heads, seq, seen.keys)),
    )


def _lanes(query: Tensor, value: Tensor) -> int:
    """Elements per load."""
    return 4 if query.dims[3] % 4 == 0 and value.dims[3] % 4 == 0 else 1


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, head_dim: int) -> None:
    heads, kv_heads = query.dims[head_dim], key.dims[head_dim]
    if key.dims[:3] != value.dims[:3] or key.dims[3] != query.dims[3] or key.dims[0] not in (1, query.dims[0]):
        raise ShapeError(f"queries {list(query.dims)}, keys {list(key.dims)} and values {list(value.dims)} do not fit")
    if kv_heads == 0 or heads % kv_heads:
        raise ShapeError(f"{heads} query heads cannot share {kv_heads} key heads")
    if not 0 < value.dims[3] <= MAX_WIDTH:
        raise ShapeError(f"heads of {value.dims[3]} values; attention runs with 1 to {MAX_WIDTH}")
    if key.dtype is not value.dtype:
        raise GraphError(f"keys are {key.dtype.short}, values {value.dtype.short}; they must have one dtype")


def _mask_strides(mask: Tensor, scores: tuple[int, ...]) -> tuple[int, ...]:
    if broadcast(mask.dims, scores) != scores:
        raise ShapeError(f"a mask of {list(mask.dims)} does not fit scores of {list(scores)}")
    return broadcast_strides(mask.dims, scores)


def attention_reference(query: Any, key: Any, value: Any, mask: Any, scale: float | None) -> Any:
    """All four with heads first; computed in float64, returned in the query's dtype."""
    group = query.shape[-3] // key.shape[-3]
    q = query.astype(np.float64)
    k, v = (np.repeat(t.astype(np.float64), group, axis=-3) for t in (key, value))
    scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
    highest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(highest), 0, highest))
    weights /= np.maximum(weights.sum(axis=-1, keepdims=True), 1)  # a row without keys stays zero
    return (weights @ v).astype(query.dtype)


def write_cache(cx: Context, value: Tensor, cache: Tensor, start: LiveScalar, *done: Tensor) -> None:
    """cache[:, start : start + S] = value, in place, and done[0] = 0 if there is such a tensor."""
    _, seq, heads, width = value.dims  # (B, S, H, D)
    if cache.dims[2:] != value.dims[2:] or cache.dims[0] != value.dims[0]:
        raise ShapeError(f"{list(value.dims)} does not fit the cache {list(cache.dims)}")
    cx.dispatch(
        "cache_write.wgsl",
        reads=(value,),
        writes=(cache, *done),
        params=CacheWrite(start=start.live, seq=seq, capacity=cache.dims[1], row=heads * width),
        threads=value.numel,
        type=value.wgsl,
        cache=cache.wgsl,
        done=len(done),
    )


def _guard_position(cx: Context, start: LiveScalar, tokens: Tensor, cache: Tensor) -> None:
    """Kernels read the position live: whether the tokens fit the cache is checked on the host before every run."""
    seq, capacity = tokens.dims[1], cache.dims[1]
    cx.guard(
        lambda: 0 <= start.peek() <= capacity - seq,
        lambda: f"{seq} tokens at position {start.peek()} do not fit a cache of {capacity}. Reset it or re-export.",
    )


def _attend_cache(
    cx: Context,
    query: Tensor,
    caches: tuple[Tensor, Tensor],
    start: LiveScalar,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    out: Tensor,
) -> None:
    """A mask decides alone, over the whole cache; without one, keys up to the last token of the query are seen."""
    if dropout != 0 or (mask is not None and causal):
        raise GraphError("attention over a KV cache takes no dropout, and a mask or is_causal but not both")
    if mask is not None:
        seen = Seen(caches[0].dims[1])
    else:
        seen = Seen(1 if causal else query.dims[1], start.live, causal)
    attend(cx, query, *caches, seen, mask=mask, scale=scale, out=out)


def _attend_cache_reference(
    query: Any, caches: tuple[Any, Any], start: int, mask: Any, causal: bool, scale: float | None
) -> Any:
    end = start + query.shape[1] if mask is None else caches[0].shape[1]
    if causal:
        mask = np.arange(end)[None, :] <= np.arange(start, end)[:, None]  # (S, C)
    q, k, v = (t.swapaxes(1, 2) for t in (query, caches[0][:, :end], caches[1][:, :end]))  # (B, H, S or C, D)
    return attention_reference(q, k, v, mask, scale).swapaxes(1, 2)


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
    _guard_position(cx, start_pos, key, key_cache)
    write_cache(cx, key, key_cache, start_pos)
    write_cache(cx, value, value_cache, start_pos)
    caches = (key_cache, value_cache)
    _attend_cache(cx, query, caches, start_pos, attn_mask, drpout_p, is_causal, scale, out)


@sdpa_with_kv_cache.reference
def _(
    query: Any,
    key: Any,
    value: Any,
    key_cache: Any,
    value_cache: Any,
    start_pos: int,
    seq_len: object,
    attn_mask: Any,
    drpout_p: object,
    is_causal: bool,
    scale: float | None,
) -> Any:
    """Writes into the caches it is given, as the op does."""
    end = start_pos + query.shape[1]
    key_cache[:, start_pos:end] = key
    value_cache[:, start_pos:end] = value
    return _attend_cache_reference(query, (key_cache, value_cache), start_pos, attn_mask, is_causal, scale)


@op("custom_sdpa.default", kernels=("llama::custom_sdpa.out",), dtypes=FLOATS)
def custom_sdpa(
    cx: Context,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start_pos: LiveScalar,
    attn_mask: Tensor | None,
    drpout_p: float,
    is_causal: bool,
    scale: float | None,
    *,
    out: Tensor,
) -> None:
    """Attention over caches that `update_cache` has written."""
    if attn_mask is None:  # with a mask the position plays no part
        _guard_position(cx, start_pos, query, key)
    _attend_cache(cx, query, (key, value), start_pos, attn_mask, drpout_p, is_causal, scale, out)


@custom_sdpa.reference
def _(
    query: Any,
    key: Any,
    value: Any,
    start_pos: int,
    attn_mask: Any,
    drpout_p: object,
    is_causal: bool,
    scale: float | None,
) -> Any:
    return _attend_cache_reference(query, (key, value), start_pos, attn_mask, is_causal, scale)


@op("update_cache.default", kernels=("llama::update_cache.out",), dtypes=FLOATS, mutates=("cache",))
def update_cache(cx: Context, value: Tensor, cache: Tensor, start_pos: LiveScalar, *, out: Tensor) -> None:
    """The result is the cache; `out` is a single element without meaning, which PyTorch leaves uninitialised."""
    out.dims = (1,)
    _guard_position(cx, start_pos, value, cache)
    write_cache(cx, value, cache, start_pos, out)


@update_cache.reference
def _(value: Any, cache: Any, start_pos: int) -> Any:
    cache[:, start_pos : start_pos + value.shape[1]] = value
    return np.zeros(1, value.dtype)

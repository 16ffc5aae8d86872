"""Attention on the device, over a KV cache or without one, and filling the cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import DType, numel
from ...lowering import dim_rules
from ...lowering.context import Context, LiveScalar, Tensor, load_type
from ...lowering.registry import FLOATS, Unused, op
from ...lowering.traits import CallSizes, OpTraits, filled
from ...wgsl import Live, Uniforms, u32
from .attention_operands import FIRST, AttentionOperands, CachedAttention, VisibleKeys
from .attention_rows import attend, attend_rows
from .attention_token import NewTokens, attend_token, scratch_for_token
from .byte_cache import write_byte_cache


class CacheWriteParams(Uniforms):
    start: Live
    seq: u32
    capacity: u32
    row: u32  # elements per position: heads * head size


class CacheFillParams(Uniforms):
    start: Live
    table_row: Live  # of the first token in the rotary tables
    seq: u32
    capacity: u32
    heads: u32  # of queries that rotate; 0 if none do
    key_heads: u32
    key_steps: u32  # loads per row
    rotated: u32  # of which rotate, where halves pair up


def attention_reference(
    query: Any, key: Any, value: Any, mask: Any, scale: float | None, cap: float | None = None, sinks: Any = None
) -> Any:
    """Return attention of operands with heads first, computed in float64, in the query's dtype.

    `sinks` are scores without a key, one for each head.
    """
    group = query.shape[-3] // key.shape[-3]
    q = query.astype(np.float64)
    k, v = (np.repeat(t.astype(np.float64), group, axis=-3) for t in (key, value))
    scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = scores if cap is None else cap * np.tanh(scores / cap)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
    if sinks is not None:
        sinks = np.broadcast_to(sinks.astype(np.float64)[:, None, None], (*scores.shape[:-1], 1))
        scores, v = np.concatenate([scores, sinks], axis=-1), np.pad(v, [(0, 0)] * (v.ndim - 2) + [(0, 1), (0, 0)])
    highest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(highest), 0, highest))
    weights /= np.maximum(weights.sum(axis=-1, keepdims=True), 1)  # a row without keys stays zero
    return (weights @ v).astype(query.dtype)


def write_cache(cx: Context, value: Tensor, cache: Tensor, start: LiveScalar, done: Tensor | None = None) -> None:
    """Write cache[:, start : start + S] = value in place, and done[0] = 0 if there is such a tensor."""
    _, seq, heads, width = value.dims  # (B, S, H, D)
    _check_cache(value, cache)
    cx.dispatch(
        "attention/cache_write.wgsl",
        reads={"x": value},
        writes={"cache": cache, "done": done},
        params=CacheWriteParams(start=start.dynamic, seq=seq, capacity=cache.dims[1], row=heads * width),
        threads=value.numel,
        type=value.wgsl,
        cache=cache.wgsl,
        done=int(done is not None),
    )


def _check_cache(value: Tensor, cache: Tensor) -> None:
    if cache.dims[2:] != value.dims[2:] or cache.dims[0] != value.dims[0]:
        raise ShapeError(f"value {list(value.dims)} does not fit the cache {list(cache.dims)}", code="operand_mismatch")


def fill_caches(
    cx: Context,
    new_tokens: NewTokens,
    caches: tuple[Tensor, Tensor],
    start: LiveScalar,
    query: Tensor | None = None,
    rotated: Tensor | None = None,
) -> None:
    """Write keys and values of (B, S, H, D), D a multiple of 4, after those cached; rotated, also to `rotated`."""
    key, rotary = new_tokens.key, new_tokens.rotary
    _, seq, key_heads, width = key.dims
    heads = query.dims[2] if query is not None else 0
    params = CacheFillParams(
        start=start.dynamic,
        table_row=rotary.row if rotary is not None else FIRST,
        seq=seq,
        capacity=caches[0].dims[1],
        heads=heads,
        key_heads=key_heads,
        key_steps=width // 4,
        rotated=rotary.rotated if rotary is not None else 0,
    )
    cx.dispatch(
        "attention/cache_fill.wgsl",
        reads={"q": query, **new_tokens.arrays},
        writes={"keys": caches[0], "values": caches[1], "queries": rotated},
        params=params,
        threads=key.dims[0] * seq * (2 * key_heads + heads) * (width // 4),
        type=load_type(key, 4),
        cache=load_type(caches[0], 4),
        rotary=rotary.pairs if rotary is not None else "",
        table=rotary.kind if rotary is not None else "",
    )


def guard_position(cx: Context, start: LiveScalar, tokens: Tensor, cache: Tensor) -> None:
    """Check on the host, before every run, that the tokens fit the cache: kernels read the position while they run."""
    seq, capacity = tokens.dims[1], cache.dims[1]
    message = f"{seq} tokens at position {{0}} do not fit a cache of {capacity}. Reset it or re-export."
    cx.guard(start.term, 0, capacity - seq + 1, message)


def visible_keys(
    query: Tensor, cache: Tensor, start: LiveScalar, mask: Tensor | None, dropout: float, causal: bool
) -> VisibleKeys:
    """Return the visible keys: with a mask the whole cache, else those up to the last token of the query."""
    if dropout != 0 or (mask is not None and causal):
        raise GraphError(
            "attention over a KV cache supports either attn_mask or is_causal, and no dropout",
            code="unsupported_argument",
        )
    if mask is not None:
        return VisibleKeys(cache.dims[1])
    return VisibleKeys(1 if causal else query.dims[1], start.dynamic, causal)


def attend_and_cache(
    cx: Context,
    query: Tensor,
    new_tokens: NewTokens,
    caches: tuple[Tensor, Tensor],
    start: LiveScalar,
    *,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    out: Tensor,
) -> None:
    """Cache keys and values of (B, S, H, D) and attend to all that are cached then; rotate before, where they do.

    With rotary tables, the fresh must go with the query.
    """
    visible = visible_keys(query, caches[0], start, mask, dropout, causal)
    for tokens, cache in zip((new_tokens.key, new_tokens.value), caches, strict=True):
        _check_cache(tokens, cache)
    guard_position(cx, start, new_tokens.key, caches[0])
    operands = AttentionOperands(query, *caches)
    together = new_tokens.goes_with(query)
    if together and mask is None:
        partial = scratch_for_token(cx, operands)
        if operands.seq == 1:
            attend_token(
                cx,
                operands,
                visible=VisibleKeys(0, start.dynamic),
                new_tokens=new_tokens,
                scale=scale,
                partial=partial,
                out=out,
            )
            return
    if not together:
        write_cache(cx, new_tokens.key, caches[0], start)
        write_cache(cx, new_tokens.value, caches[1], start)
    elif new_tokens.rotary is None:
        fill_caches(cx, new_tokens, caches, start)
    else:
        operands = AttentionOperands(cx.scratch(query.dtype, query.dims), *caches)
        fill_caches(cx, new_tokens, caches, start, query, operands.query)
    attend_rows(cx, operands, visible, mask, scale, out)


def cached_reference(
    query: Any, caches: tuple[Any, Any], start: int, mask: Any, causal: bool, scale: float | None
) -> Any:
    """Return attention over caches that hold all keys and values up to the last token of the query."""
    end = start + query.shape[1] if mask is None else caches[0].shape[1]
    if causal:
        mask = np.arange(end)[None, :] <= np.arange(start, end)[:, None]  # (S, C)
    q, k, v = (t.swapaxes(1, 2) for t in (query, caches[0][:, :end], caches[1][:, :end]))  # (B, H, S or C, D)
    return attention_reference(q, k, v, mask, scale).swapaxes(1, 2)


def cached_flops(sizes: CallSizes) -> int:
    """Return the operations of the scores and their sums over the keys, without masks. Queries are (B, S, H, D)."""
    query = sizes.dims("query")
    return 4 * numel(query) * (int(sizes.number("start_pos")) + query[1])


IN_CACHE = filled("query", "start_pos")


@op(
    "sdpa_with_kv_cache.default",
    kernels=("llama::sdpa_with_kv_cache.out",),
    dtypes=FLOATS,
    traits=OpTraits(
        mutates=("key_cache", "value_cache"),
        work=cached_flops,
        memory_traffic={"key_cache": IN_CACHE, "value_cache": IN_CACHE},
        dims=dim_rules.like("query"),
        sequences=True,
    ),
)
def sdpa_with_kv_cache(
    cx: Context,
    operands: CachedAttention,
    start_pos: LiveScalar,
    seq_len: Unused,
    attn_mask: Tensor | None,
    drpout_p: float,
    is_causal: bool,
    scale: float | None,
    *,
    out: Tensor,
) -> None:
    attend_and_cache(
        cx,
        operands.query,
        NewTokens(operands.key, operands.value),
        operands.caches,
        start_pos,
        mask=attn_mask,
        dropout=drpout_p,
        causal=is_causal,
        scale=scale,
        out=out,
    )


@sdpa_with_kv_cache.reference
def _(
    operands: Any,
    start_pos: int,
    seq_len: object,
    attn_mask: Any,
    drpout_p: object,
    is_causal: bool,
    scale: float | None,
) -> Any:
    """Write into the caches, as the op does."""
    end = start_pos + operands.query.shape[1]
    operands.key_cache[:, start_pos:end] = operands.key
    operands.value_cache[:, start_pos:end] = operands.value
    return cached_reference(operands.query, operands.caches, start_pos, attn_mask, is_causal, scale)


@op(
    "custom_sdpa.default",
    kernels=("llama::custom_sdpa.out",),
    dtypes=FLOATS,
    traits=OpTraits(
        work=cached_flops, memory_traffic={"key": IN_CACHE, "value": IN_CACHE}, dims=dim_rules.like("query")
    ),
)
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
    """Compute attention over caches that `update_cache` has written."""
    if attn_mask is None:  # with a mask the position plays no part
        guard_position(cx, start_pos, query, key)
    visible = visible_keys(query, key, start_pos, attn_mask, drpout_p, is_causal)
    attend(cx, AttentionOperands(query, key, value), visible, attn_mask, scale, out)


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
    return cached_reference(query, (key, value), start_pos, attn_mask, is_causal, scale)


@op(
    "update_cache.default",
    kernels=("llama::update_cache.out",),
    dtypes=FLOATS | {DType.INT8},
    traits=OpTraits(mutates=("cache",), memory_traffic={"cache": filled("value", "start_pos")}, sequences=True),
)
def update_cache(cx: Context, value: Tensor, cache: Tensor, start_pos: LiveScalar, *, out: Tensor) -> None:
    """Write the cache in place; `out` is a single element without meaning, which PyTorch leaves uninitialized."""
    out.dims = (1,)
    guard_position(cx, start_pos, value, cache)
    _check_cache(value, cache)
    if (value.dtype is DType.INT8) != (cache.dtype is DType.INT8):
        raise GraphError(
            f"value {value.spec} and cache {cache.spec}: expected both as codes or as floats", code="dtype"
        )
    (write_byte_cache if cache.dtype is DType.INT8 else write_cache)(cx, value, cache, start_pos, out)


@update_cache.reference
def _(value: Any, cache: Any, start_pos: int) -> Any:
    cache[:, start_pos : start_pos + value.shape[1]] = value
    return np.zeros(1, value.dtype)


# -- without a cache, heads first --------------------------------------------------------------------------------------


def _sdpa_flops(sizes: CallSizes) -> int:
    return 4 * numel(sizes.dims("q")) * sizes.dims("k")[2]


@op("et_vk.sdpa.default", dtypes=FLOATS | {DType.BOOL}, traits=OpTraits(work=_sdpa_flops))
def sdpa(
    cx: Context, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, scale: float | None, *, out: Tensor
) -> None:
    """Compute softmax(q kᵀ * scale + mask) v. q is (B, Hq, S, D), k (B, Hk, C, D), v (B, Hk, C, Dv); Hk divides Hq.

    Exporters have no pattern for it: it is in a file only where a model calls torch.ops.et_vk.sdpa. A bool mask means
    the same as in F.scaled_dot_product_attention: keys with True are visible.
    """
    if {q.rank, k.rank, v.rank} != {4}:
        raise ShapeError(
            f"query, key, value: expected 4 dims each, got {list(q.dims)}, {list(k.dims)} and {list(v.dims)}",
            code="rank",
        )
    operands = AttentionOperands(q, k, v, heads_first=True)
    attend(cx, operands, VisibleKeys(operands.capacity), attn_mask, scale, out)


@sdpa.reference
def _(q: Any, k: Any, v: Any, attn_mask: Any, scale: float | None) -> Any:
    return attention_reference(q, k, v, attn_mask, scale)

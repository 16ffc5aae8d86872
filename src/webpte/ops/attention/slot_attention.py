"""Attention of tokens of several sequences, each over the keys and values of its slot in a pool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType, numel
from ...graph.expressions import Term, apply
from ...graph.names import BIDIRECTIONAL_MAPPING, INT8_SCALE_BYTES
from ...lowering.context import Arrays, Context, LiveScalar, Tensor, load_type
from ...lowering.registry import FLOATS, op
from ...lowering.traits import CallSizes, OpTraits
from ...lowering.variants import ANYWHERE, Variant
from ...wgsl import Live, Uniforms, u32
from ..matmul.product import MAX_FEW_ROWS
from ..norm.norm import normalized
from .attention import attention_reference
from .attention_operands import (
    AttentionOperands,
    AttentionParams,
    CachedAttention,
    VisibleKeys,
    cache_type,
    row_width,
)
from .attention_tile import TileConfig, dispatch_tile
from .attention_token import (
    HeadNorms,
    NewTokens,
    RotaryTables,
    SlotAttentionParams,
    TokenConfig,
    dispatch_token,
    merge_splits,
    scratch_for_token,
    slot_params,
    token_config,
    token_flags,
)
from .rotary import rotated_halves, rotated_neighbours

MAX_SLOT_WIDTH = 512  # of a head
MAX_SHARED_STEPS = 32  # loads of a key: drivers take seconds to compile the kernel for wider heads

# How the rows after the single ones run: each like a single one or, with a configuration, in tiles.
BY_TOKEN: Variant[TileConfig | None] = Variant("token", ANYWHERE, None)
TILE: Variant[TileConfig | None] = Variant("tile", ANYWHERE, TileConfig())


class SlotTileParams(AttentionParams):
    first_token: u32  # after the single ones
    seq: u32  # tokens from there on
    row_blocks: u32  # workgroups for the rows of a key head
    slots: u32
    capacity: u32


class SlotTileSinkParams(SlotTileParams):
    sinks: u32  # load of the rotary tables where the sinks of the query heads begin


class SlotBlocksParams(SlotAttentionParams):
    first_row: u32  # after the single ones
    row_blocks: u32  # workgroups for the rows of a key head


class SlotBlocksNormParams(SlotBlocksParams):
    norms: u32  # load of the tables where the weights of the queries' norm begin


class SlotBlocksSinkParams(SlotBlocksParams):
    sinks: u32  # load of the tables where the sinks of the query heads begin


class SlotFillParams(Uniforms):
    start: Live
    slots: u32
    capacity: u32
    heads: u32  # of queries that rotate; 0 if none do
    key_heads: u32
    key_steps: u32  # loads per row
    rotated: u32  # of which rotate, where halves pair up
    table_loads: u32  # of the cosines, which the sines follow


class SlotFillNormParams(SlotFillParams):
    norms: u32  # load of the tables where the weights of the queries' norm begin


@dataclass(frozen=True)
class SlotOperands(AttentionOperands):
    """Queries of (1, R, H, D) over caches of (slots, C, H, D): every row reads its own slot.

    The work is divided by the device and the caches alone, so that a row's bits do not depend on the others.
    """

    num_decode: int = 0  # the first rows, each the only one of its slot
    window: int | None = None  # the latest keys that a row sees, its own included; None: all
    cap: float | None = None  # scores x become cap * tanh(x / cap)
    later: bool = False  # rows may see positions after their own

    @property
    def max_width(self) -> int:
        return MAX_SLOT_WIDTH

    @property
    def _batches_fit(self) -> bool:
        return self.query.dims[0] == 1

    @property
    def batch(self) -> int:
        return self.query.dims[1]

    @property
    def token_batch(self) -> int:
        return self.num_decode

    @property
    def max_batch(self) -> int:
        return self.query.bound[1]

    @property
    def occupancy_batch(self) -> int:
        return 1

    @property
    def max_keys(self) -> int:
        return super().max_keys if self.window is None else min(super().max_keys, self.window)

    @property
    def score_flags(self) -> dict[str, object]:
        flags: dict[str, object] = {} if self.window is None else {"window": self.window}
        flags |= {} if self.cap is None else {"cap": repr(self.cap)}
        return flags | self.mapping_flags

    @property
    def mapping_flags(self) -> dict[str, object]:
        """Return the flag for the columns of the slot mapping."""
        return {"later": True} if self.later else {}

    @property
    def _batch_rows(self) -> int:
        return self.key_heads * self.capacity


def _flops(sizes: CallSizes) -> int:
    """Return the operations with half-full caches: the number of cached tokens is data of a tensor."""
    return 2 * numel(sizes.dims("query")) * sizes.dims("key_cache")[1]


@op(
    "webpte.slot_attention",
    dtypes=FLOATS | {DType.INT32, DType.INT8},
    host_args=("slot_mapping",),
    traits=OpTraits(mutates=("key_cache", "value_cache"), work=_flops, sequences=True),
)
def slot_attention(
    cx: Context,
    tokens: CachedAttention,
    slot_mapping: Tensor,
    advance: LiveScalar,
    num_decode: int,
    scale: float | None,
    table: Tensor | None,
    halves: bool,
    window: int | None,
    cap: float | None,
    norm_row: int | None,
    norm_eps: float | None,
    angle_row: int | None,
    sink_row: int | None = None,
    *,
    out: Tensor,
) -> None:
    """Compute attention of rows that are tokens of several slots.

    Row r of (1, R, H, D) is the token of slot slot_mapping[r, 0] at position slot_mapping[r, 1] + advance. Its key and
    value are cached there. It sees the keys of its slot up to its own, with `window` no more than that many. With
    `cap`, scores x become cap * tanh(x / cap). A row whose slot is negative is idle.

    With slot_mapping of four columns, a row also sees the slot_mapping[r, 2] keys after its own, which must be those of
    other rows of the call. The last column has no effect.

    The first `num_decode` rows are the only ones of their slots. After them the rows of a slot are neighbors, in the
    order of their positions. `table` is (2, P, W): the cosines and sines that rotate queries and keys at each position.
    With `norm_row`, each head's query and key are normalized before. The D weights are the rows from there on: of the
    cosines for queries, of the sines for keys. With `angle_row`, the tables are those of the batch: row r rotates by
    their row angle_row + r. With `sink_row`, each query head has a sink: a score that joins its softmax and has no
    value. Those of all heads are the elements of the cosines from that row on.
    """
    pairs = "halves" if halves else "neighbours"
    rotary = None if table is None else RotaryTables(pairs, table, None, first_row=angle_row)
    caches = tokens.caches
    later = slot_mapping.dims[1:] == (BIDIRECTIONAL_MAPPING,)
    operands = SlotOperands(tokens.query, *caches, window=window, cap=cap, later=later)
    config = token_config(cx, operands)
    rows = operands.batch
    whole = config.short_keys > 0 and num_decode >= rows and _all_short(cx, slot_mapping, advance, config.short_keys)
    config = config.whole if whole else config
    num_decode = min(num_decode, rows)
    tile = _tile_config(cx, operands, rows - num_decode)
    # Neighboring rows share the loads of keys in tiles, or if the invocations of a subgroup can exchange values.
    blocks = tile is None and config.subgroup and operands.key_steps <= MAX_SHARED_STEPS
    operands = replace(operands, num_decode=num_decode if tile is not None or blocks else rows)
    cached_before = num_decode < rows  # the next row of a slot may see it
    norms = None if norm_row is None or norm_eps is None else HeadNorms(norm_row, norm_eps)
    new_tokens = NewTokens(tokens.key, tokens.value, rotary, slot_mapping, cached_before, norms, sink_row)
    _check(operands, new_tokens, slot_mapping)
    partial = scratch_for_token(cx, operands)
    if whole:
        cx.reserve(partial)
    out.dims = tokens.query.dims
    rotates = tile is not None and rotary is not None
    rotated = cx.scratch(tokens.query.dtype, tokens.query.dims) if rotates else None
    if new_tokens.cached_before:
        _fill(
            cx,
            new_tokens,
            caches=caches,
            slot_mapping=slot_mapping,
            advance=advance,
            query=tokens.query,
            rotated=rotated,
            flags=operands.mapping_flags,
        )
    visible, split = VisibleKeys(0, advance.dynamic), config.splits(operands.max_keys) > 1
    target = partial if split else out
    if operands.num_decode:
        dispatch_token(cx, operands, visible=visible, new_tokens=new_tokens, scale=scale, config=config, target=target)
    if tile is not None:
        _by_tiles(
            cx,
            operands,
            query=tokens.query if rotated is None else rotated,
            visible=visible,
            new_tokens=new_tokens,
            slot_mapping=slot_mapping,
            scale=scale,
            config=tile,
            out=out,
        )
    elif operands.num_decode < rows:
        _by_blocks(cx, operands, visible=visible, new_tokens=new_tokens, scale=scale, config=config, target=target)
    if split:
        merge_splits(cx, operands, config, partial, out, operands.num_decode if tile is not None else rows)


def _tile_config(cx: Context, operands: SlotOperands, together: int) -> TileConfig | None:
    """Return how rows that are not single run in tiles; None if they do not.

    A GPU's kernels for a single row and for tiles sum in different orders.
    """
    if together == 0 or operands.batch <= MAX_FEW_ROWS:
        return None
    shape = (operands.group, operands.key_steps, operands.value_steps, *operands.load_types)
    return cx.variant("attention of slots", shape, cpu=(BY_TOKEN,), gpu=(TILE,)).config


def _by_tiles(
    cx: Context,
    operands: SlotOperands,
    query: Tensor,
    visible: VisibleKeys,
    new_tokens: NewTokens,
    slot_mapping: Tensor,
    scale: float | None,
    config: TileConfig,
    out: Tensor,
) -> None:
    """Dispatch the rows after the single ones in tiles. `query` is rotated, and the caches have the keys and values."""
    slots, capacity = operands.key.dims[:2]
    seq = operands.batch - operands.num_decode
    blocks = -(-seq * operands.group // config.rows)
    sinks: Arrays = {} if new_tokens.sink_row is None else {"cosine": new_tokens.arrays["cosine"]}
    params = (SlotTileSinkParams if sinks else SlotTileParams)(
        **operands.params(visible, scale),
        first_token=operands.num_decode,
        seq=seq,
        row_blocks=blocks,
        slots=slots,
        capacity=capacity,
        **(new_tokens.table_params if sinks else {}),
    )
    dispatch_tile(
        cx,
        replace(operands, query=query),
        config=config,
        params=params,
        row_blocks=blocks,
        more={"slot_mapping": slot_mapping, **sinks},
        out=out,
        slots=True,
        sinks=new_tokens.sink_flags,
    )


def _all_short(cx: Context, slot_mapping: Tensor, advance: LiveScalar, keys: int) -> bool:
    """Return whether every row is at a position below `keys`. Calls that differ in this have different schedules."""
    highest: Term = 0
    for row in range(slot_mapping.dims[0]):
        highest = apply("max", highest, cx.element(slot_mapping, (row, 1)))
    return bool(cx.specialize(apply("lt", apply("add", highest, advance.term), keys)))


def _by_blocks(
    cx: Context,
    operands: SlotOperands,
    visible: VisibleKeys,
    new_tokens: NewTokens,
    scale: float | None,
    config: TokenConfig,
    target: Tensor,
) -> None:
    """Dispatch the rows after the single ones, one row (a token and a head) per invocation."""
    splits = config.splits(operands.max_keys)
    blocks = -(-(operands.batch - operands.num_decode) * operands.group // config.lanes)
    divided = {"head_parts": 1, "splits": splits, "slices": 1, "first_row": operands.num_decode, "row_blocks": blocks}
    params = SlotBlocksParams if new_tokens.norms is None else SlotBlocksNormParams
    params = params if new_tokens.sink_row is None else SlotBlocksSinkParams
    cx.dispatch(
        "attention/slot_block.wgsl",
        reads={"q": operands.query, **new_tokens.arrays, "keys": operands.key, "values": operands.value},
        writes={"partial" if splits > 1 else "y": target},
        params=params(**slot_params(operands, visible, new_tokens, scale), **divided),
        threads=operands.key_heads * blocks * splits * config.lanes,
        workgroup=config.lanes,
        split=splits > 1,
        **token_flags(operands, new_tokens, config),
    )


def _check(operands: SlotOperands, new_tokens: NewTokens, slot_mapping: Tensor) -> None:
    rotary = new_tokens.rotary
    cached = [(cache.dims[2], row_width(cache)) for cache in (operands.key, operands.value)]
    if [new_tokens.key.dims[2:], new_tokens.value.dims[2:]] != cached:
        raise ShapeError(
            f"key {list(new_tokens.key.dims)} does not fit the cache {list(operands.key.dims)}", code="operand_mismatch"
        )
    if not new_tokens.goes_with(operands.query) or (rotary is not None and not rotary.fits(operands.query)):
        raise ShapeError(
            f"head size: expected a multiple of 4 with rotary tables to match, got {operands.query.dims[3]}",
            code="head_size",
        )
    norms, width = new_tokens.norms, operands.query.dims[3]
    if norms is not None and (rotary is None or width % rotary.width or rotary.cosine.wgsl != "f32"):
        raise ShapeError(
            argument="norm_row",
            expected=f"f32 tables whose width divides {width}",
            got=norms.row,
            code="operand_mismatch",
        )
    sinks = -(-operands.heads // rotary.width) if rotary is not None else 0  # rows of them
    last = 0 if new_tokens.sink_row is None else new_tokens.sink_row + sinks
    f32 = rotary is not None and rotary.cosine.wgsl == "f32" and norms is None
    if last and (not f32 or (rotary is not None and last > rotary.cosine.dims[-2])):
        raise ShapeError(
            argument="sink_row",
            expected=f"f32 tables with {operands.heads} sinks from it on, and no norms",
            got=new_tokens.sink_row,
            code="operand_mismatch",
        )
    if rotary is not None:
        first, needed = rotary.first_row, operands.capacity
        rows = needed if first is None else first + operands.batch
        if rotary.cosine.dims[1] < rows:
            raise ShapeError(
                f"rotary tables of {rotary.cosine.dims[1]} rows do not cover "
                + (f"a cache of {rows} positions" if first is None else f"a batch of {operands.batch} rows"),
                code="operand_mismatch",
            )
    columns = BIDIRECTIONAL_MAPPING if operands.later else 2
    if slot_mapping.dims != (operands.batch, columns) or slot_mapping.dtype is not DType.INT32:
        raise ShapeError(
            f"slot_mapping: expected i32 with a slot and a position for each of {operands.batch} rows, got "
            f"{slot_mapping.dtype.short}{list(slot_mapping.dims)}",
            code="operand_mismatch",
        )


def _fill(
    cx: Context,
    new_tokens: NewTokens,
    caches: tuple[Tensor, Tensor],
    slot_mapping: Tensor,
    advance: LiveScalar,
    query: Tensor,
    rotated: Tensor | None,
    flags: dict[str, Any],
) -> None:
    """Cache keys and values, rotated. If there is a tensor for them, write the rotated queries too."""
    _, rows, key_heads, width = new_tokens.key.dims
    rotary = new_tokens.rotary
    heads = 0 if rotated is None else query.dims[2]
    norms = new_tokens.norms
    params = SlotFillParams if norms is None else SlotFillNormParams
    cx.dispatch(
        "attention/slot_fill.wgsl",
        reads={**new_tokens.arrays, "q": query if rotated is not None else None},
        writes={"keys": caches[0], "values": caches[1], "queries": rotated},
        params=params(
            start=advance.dynamic,
            slots=caches[0].dims[0],
            capacity=caches[0].dims[1],
            heads=heads,
            key_heads=key_heads,
            key_steps=width // 4,
            rotated=rotary.rotated if rotary is not None else 0,
            table_loads=rotary.loads if rotary is not None else 0,
            **(new_tokens.table_params if norms is not None else {}),
        ),
        threads=rows * (2 * key_heads + heads) * (width // 4),
        type=load_type(new_tokens.key, 4),
        cache=cache_type(caches[0], 4),
        **({"rotary": "", "table": ""} if rotary is None else rotary.flags),
        queries=rotated is not None,
        **(norms.flags if norms is not None else {}),
        **flags,
    )


def with_scales(rows: Any) -> Any:
    """Return rows as a cache of int8 stores them: relative to their largest absolute element, which follows as f32."""
    top = np.abs(rows).max(axis=-1, keepdims=True).astype(np.float32)
    codes = np.floor(0.5 + 127 * np.clip(rows / np.where(top > 0, top, 1), -1, 1)).astype(np.int8)
    return np.concatenate([codes, top.view(np.int8)], axis=-1)


def without_scales(rows: Any) -> Any:
    """Return the numbers that `with_scales` has stored."""
    codes, top = rows[..., :-INT8_SCALE_BYTES], np.ascontiguousarray(rows[..., -INT8_SCALE_BYTES:]).view(np.float32)
    return np.maximum(codes / np.float32(127), -1) * top


@slot_attention.reference
def _(
    tokens: Any,
    slot_mapping: Any,
    advance: int,
    num_decode: object,
    scale: float | None,
    table: Any,
    halves: bool,
    window: int | None,
    cap: float | None,
    norm_row: int | None,
    norm_eps: float | None,
    angle_row: int | None,
    sink_row: int | None,
) -> Any:
    """Write into the caches, as the op does. The result of idle rows is undefined; here it is zero."""
    query, key, value, caches = tokens.query, tokens.key, tokens.value, tokens.caches
    out = np.zeros_like(query)
    by = rotated_halves if halves else rotated_neighbours
    sinks = None if sink_row is None else table[0, sink_row:].reshape(-1)[: query.shape[2]]
    rows = []
    for row, (slot, start, *more) in enumerate(slot_mapping):
        if slot < 0:
            continue
        at, one = start + advance, slice(row, row + 1)
        q, k = query[:, one], key[:, one]  # (1, 1, H, D)
        if norm_row is not None and norm_eps is not None:
            weights = table[:, norm_row:].reshape(2, -1)[:, : q.shape[-1]]
            q, k = (normalized(x, weight, norm_eps).astype(x.dtype) for x, weight in zip((q, k), weights, strict=True))
        if table is not None:
            cos, sin = (angles[at if angle_row is None else angle_row + row, None, None, :] for angles in table)
            q, k = by(q, cos, sin), by(k, cos, sin)
        for cache, new in zip(caches, (k[0, 0], value[0, row]), strict=True):
            cache[slot, at] = with_scales(new) if cache.dtype == np.int8 else new
        rows.append((row, slot, at, at + 1 + sum(more[:1]), q, k))
    for row, slot, at, end, q, k in rows:
        one, first = slice(row, row + 1), 0 if window is None else max(0, at + 1 - window)
        own = [cache[slot : slot + 1, first:end] for cache in caches]
        if caches[0].dtype == np.int8:  # a token sees its own key and value as they are
            own = [without_scales(each) for each in own]
            own[0][0, at - first], own[1][0, at - first] = k[0, 0], value[0, row]
        own = [each.astype(query.dtype) for each in own]
        q, k, v = (t.swapaxes(1, 2) for t in (q, *own))  # (1, H, 1 or C, D)
        out[:, one] = attention_reference(q, k, v, None, scale, cap, sinks).swapaxes(1, 2)
    return out

"""Attention of one token, as in decoding: a dispatch that may also rotate its query and key and fill the caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ...graph import DType
from ...lowering.context import Arrays, Context, Tensor, load_type
from ...lowering.variants import ANYWHERE, Requirements, Variant, usable
from ...wgsl import FEW_REGISTERS, Live, LiveInt, Uniforms, u32
from .attention_operands import FIRST, AttentionOperands, AttentionParams, VisibleKeys

MAX_HEADS = 4  # query heads that share the loads of keys: the width of a vector
MAX_VALUE_STEPS = 64  # loads of a row of values: shared memory holds the sums of half as many heads if there are more
MAX_SPLITS = 32
CPU_SPLIT_KEYS = 512  # minimum keys of a workgroup
SPLIT_STEPS = 8  # minimum steps of a workgroup of a GPU
SHORT_STEPS = 32  # of one that has all keys of a row: they take as long as a merge and its dispatch
STEP_LOADS = 8  # of keys, and as many of values, that an invocation of a GPU has in flight: more need more registers
MAX_TILE = 4
MIN_CPU_WORKGROUPS = 8  # fewer do not keep a CPU's cores busy


class TokenAttentionParams(AttentionParams):
    table_row: Live  # of the token in the rotary tables
    rotated: u32  # loads of a row that rotate, where halves pair up
    head_parts: u32  # workgroups for the query heads of a key head
    splits: u32  # and for its keys
    slices: u32


class SlotAttentionParams(TokenAttentionParams):
    """Of tokens that each have a slot and a position, the latter relative to `start`."""

    rows: u32
    slots: u32
    capacity: u32
    table_loads: u32  # of the cosines, which the sines follow


class SlotAttentionNormParams(SlotAttentionParams):
    norms: u32  # load of the tables where the weights of the queries' norm begin


class SlotAttentionSinkParams(SlotAttentionParams):
    sinks: u32  # load of the tables where the sinks of the query heads begin


class MergeParams(Uniforms):
    splits: u32
    value_steps: u32


@dataclass(frozen=True)
class RotaryTables:
    """How queries and keys rotate with their position: token t takes row `row + t` of the tables."""

    pairs: str  # "neighbors" or "halves"
    cosine: Tensor
    sine: Tensor | None  # None where they follow the cosines in one tensor of (2, P, W)
    row: LiveInt = FIRST
    first_row: int | None = None  # row r of a batch takes row first_row + r; None: the row of its position

    @property
    def width(self) -> int:
        return self.cosine.dims[-1]

    @property
    def loads(self) -> int:
        """Return the number of loads of the cosines."""
        return self.cosine.dims[-2] * self.width // (2 if self.pairs == "neighbours" else 4)

    def load(self, row: int) -> int:
        """Return the first load of a row."""
        return row * self.loads // self.cosine.dims[-2]

    @property
    def kind(self) -> str:
        """Return the load type of the entries of four elements: neighbors share one."""
        return load_type(self.cosine, 2 if self.pairs == "neighbours" else 4)

    @property
    def rotated(self) -> int:
        """Return the loads of a row that rotate, where halves pair up."""
        return self.width // 4

    @property
    def flags(self) -> dict[str, Any]:
        flags = {"rotary": self.pairs, "table": self.kind}
        return flags if self.first_row is None else {**flags, "angle_row": self.first_row}

    def fits(self, x: Tensor) -> bool:
        """Return whether the tables fit rows of `x` and these can be rotated four elements at a time."""
        width, rotated = x.dims[3], self.width
        if width % 4 or (self.sine is not None and self.sine.dims != self.cosine.dims):
            return False
        return rotated == width // 2 if self.pairs == "neighbours" else rotated % 8 == 0 and rotated <= width


@dataclass(frozen=True)
class HeadNorms:
    """RMS norms of each head's query and key, before they rotate.

    The weights lie among the rotary tables: rows of the cosines for queries, the same rows of the sines for keys.
    """

    row: int
    eps: float

    @property
    def flags(self) -> dict[str, Any]:
        return {"norm_eps": repr(self.eps)}


@dataclass(frozen=True)
class NewTokens:
    """The key and the value of a token that the caches do not hold yet."""

    key: Tensor
    value: Tensor
    rotary: RotaryTables | None = None
    slot_mapping: Tensor | None = None  # slot and position of each token, where they are tokens of several sequences
    cached_before: bool = False  # by another dispatch; the caches are after their positions then
    norms: HeadNorms | None = None  # with rotary tables only
    sink_row: int | None = None  # of the cosines, from which on each query head has its sink; without norms only

    def goes_with(self, query: Tensor) -> bool:
        """Return whether one kernel can read query, key and value: tokens, dtype and width are equal, in loads of 4."""
        key, value = self.key, self.value
        same = key.dims == value.dims and key.dims[:2] == query.dims[:2] and key.dims[3] == query.dims[3]
        return same and key.dims[3] % 4 == 0 and query.dtype is key.dtype and key.dtype is value.dtype

    @property
    def table_params(self) -> dict[str, Any]:
        """Return the field of the parameters for what lies among the rotary tables: its first load."""
        rows = {"norms": None if self.norms is None else self.norms.row, "sinks": self.sink_row}
        return {} if self.rotary is None else {n: self.rotary.load(row) for n, row in rows.items() if row is not None}

    @property
    def sink_flags(self) -> dict[str, object]:
        return {} if self.sink_row is None or self.rotary is None else {"sinks": self.rotary.kind}

    @property
    def arrays(self) -> Arrays:
        """Return what kernels read, by the names of their arrays."""
        tables = {"cosine": self.rotary.cosine, "sine": self.rotary.sine} if self.rotary is not None else {}
        return {"k": self.key, "v": self.value, **tables, "slot_mapping": self.slot_mapping}


class TokenConfig(NamedTuple):
    """How a workgroup goes over the keys: first over their scores, then over their values."""

    lanes: int
    tile: int  # keys that an invocation scores at a time
    wide: int  # loads of a row of values that an invocation adds up
    parts: int = 1  # invocations that share a tile, and have one query head
    split: bool = False  # the keys of long rows are divided
    subgroup: bool = False  # the invocations are a subgroup, and share their loads
    split_keys: int = 0  # minimum keys of a split, on a device and for operands; 0: no splits
    short_keys: int = 0  # below which the first split has all keys of a row: no merge if this holds for all rows

    def fit(self, cx: Context, operands: AttentionOperands) -> TokenConfig:
        """Return this configuration for a device and the operands."""
        lanes = min(self.lanes, cx.caps.subgroup) if self.subgroup else self.lanes
        wide = self.wide
        while lanes * wide < operands.value_steps:
            wide *= 2
        config = self._replace(lanes=lanes, wide=wide, split_keys=CPU_SPLIT_KEYS if self.split else 0)
        return config._fit_parts(cx, operands) if self.parts > 1 else config

    def _fit_parts(self, cx: Context, operands: AttentionOperands) -> TokenConfig:
        """Return the configuration whose invocations have STEP_LOADS loads of keys and of values in flight."""
        steps = max(operands.key_steps, self.columns(operands.value_steps))
        loads = STEP_LOADS if cx.caps.registers > FEW_REGISTERS else STEP_LOADS // 2
        parts = self.parts if operands.load_types[1] == "f32x4" else 2 * self.parts  # to read 64 bytes side by side
        while parts * loads < steps:
            parts *= 2
        tile = self.tile
        while tile < MAX_TILE and 2 * tile * steps <= parts * loads:
            tile *= 2
        config, step_keys = self._replace(tile=tile, parts=parts), self.lanes // parts * tile
        if not self.split or operands.max_keys <= SHORT_STEPS * step_keys:
            return config._replace(split_keys=0)
        return config._replace(split_keys=SPLIT_STEPS * step_keys, short_keys=SHORT_STEPS * step_keys)

    def columns(self, value_steps: int) -> int:
        """Return the number of invocations that share a row of values."""
        if self.subgroup:
            return self.lanes
        columns = self.parts
        while columns * self.wide < value_steps:
            columns *= 2
        return columns

    @property
    def whole(self) -> TokenConfig:
        """Return the configuration for rows that all have fewer than `short_keys` keys, with the same bits."""
        return self._replace(split_keys=0)

    def splits(self, capacity: int) -> int:
        return min(-(-capacity // self.split_keys), MAX_SPLITS) if self.split_keys else 1


# A CPU loads for each invocation apart: few of them with much work each. A GPU wants neighbors to load what lies side
# by side, and many loads in flight.
WITH_SUBGROUP = Requirements(subgroup=4)
BROADCAST = Variant("broadcast", WITH_SUBGROUP, TokenConfig(8, 2, 1, subgroup=True))
BROADCAST_SPLIT = Variant("broadcast split", WITH_SUBGROUP, TokenConfig(8, 2, 1, split=True, subgroup=True))
ROWS = Variant("rows", ANYWHERE, TokenConfig(8, 4, 2))
LANES = Variant("lanes", ANYWHERE, TokenConfig(256, 1, 1, parts=4))
LANES_SPLIT = Variant("lanes split", ANYWHERE, TokenConfig(256, 1, 1, parts=4, split=True))
VARIANTS = (BROADCAST, BROADCAST_SPLIT, ROWS, LANES, LANES_SPLIT)


def scratch_for_token(cx: Context, operands: AttentionOperands) -> Tensor:
    """Return the scratch tensor that `attend_token` needs with any variant. Reserved for any number of tokens."""
    configs = [variant.config.fit(cx, operands) for variant in usable(VARIANTS, cx.caps)]
    splits = max(config.splits(operands.max_keys) for config in configs)
    return cx.scratch(DType.FLOAT32, (operands.max_batch * operands.heads, splits, operands.value_steps + 1, 4))


def attend_token(
    cx: Context,
    operands: AttentionOperands,
    visible: VisibleKeys,
    new_tokens: NewTokens | None,
    scale: float | None,
    partial: Tensor,
    out: Tensor,
) -> None:
    """Compute attention of one token over the visible keys. With `new_tokens`, its own key counts too and is cached."""
    out.dims = (*operands.query.dims[:3], operands.value.dims[3])
    config = token_config(cx, operands)
    split = config.splits(operands.max_keys) > 1
    dispatch_token(
        cx,
        operands,
        visible=visible,
        new_tokens=new_tokens,
        scale=scale,
        config=config,
        target=partial if split else out,
    )
    if split:
        merge_splits(cx, operands, config, partial, out, operands.batch)


def merge_splits(
    cx: Context, operands: AttentionOperands, config: TokenConfig, partial: Tensor, out: Tensor, tokens: int
) -> None:
    """Merge the splits of the first tokens."""
    value_steps = operands.value_steps
    cx.dispatch(
        "attention/attention_merge.wgsl",
        reads={"partial": partial},
        writes={"y": out},
        params=MergeParams(splits=config.splits(operands.max_keys), value_steps=value_steps),
        threads=tokens * operands.heads * value_steps,
        type=operands.load_types[0],
    )


def token_config(cx: Context, operands: AttentionOperands) -> TokenConfig:
    steps = (operands.group, operands.key_steps, operands.value_steps, operands.max_keys)
    groups = operands.occupancy_batch * operands.key_heads * -(-operands.group // _max_heads(operands))
    shape = (*steps, *operands.load_types, groups)
    broadcast = (BROADCAST_SPLIT, BROADCAST) if groups < MIN_CPU_WORKGROUPS else (BROADCAST, BROADCAST_SPLIT)
    chosen = cx.variant("attention of a token", shape, cpu=(*broadcast, ROWS), gpu=(LANES_SPLIT, LANES))
    return chosen.config.fit(cx, operands)


def _max_heads(operands: AttentionOperands) -> int:
    """Return the number of query heads of a workgroup without parts."""
    return MAX_HEADS if operands.value_steps <= MAX_VALUE_STEPS else MAX_HEADS // 2


def dispatch_token(
    cx: Context,
    operands: AttentionOperands,
    visible: VisibleKeys,
    new_tokens: NewTokens | None,
    scale: float | None,
    config: TokenConfig,
    target: Tensor,
) -> None:
    """Dispatch the whole attention, or its splits if `target` has room for them."""
    caches = {"keys": operands.key, "values": operands.value}
    head_parts = -(-operands.group // (1 if config.parts > 1 else _max_heads(operands)))
    splits = config.splits(operands.max_keys)
    slices = config.lanes // config.columns(operands.value_steps)
    fills = new_tokens is not None and not new_tokens.cached_before
    new_arrays: Arrays = {} if new_tokens is None else new_tokens.arrays
    divided = {"head_parts": head_parts, "splits": splits, "slices": slices}
    cx.dispatch(
        "attention/attention_token.wgsl",
        reads={"q": operands.query, **new_arrays, **({} if fills else caches)},
        writes={**(caches if fills else {}), **{"partial" if splits > 1 else "y": target}},
        params=_params(operands, visible, new_tokens, scale, divided),
        threads=operands.token_batch * operands.key_heads * head_parts * splits * config.lanes,
        workgroup=config.lanes,
        new_tokens="" if new_tokens is None else "cached" if fills else "before",
        slots=new_tokens is not None and new_tokens.slot_mapping is not None,
        split=splits > 1,
        short=config.short_keys if splits > 1 else 0,
        heads=-(-operands.group // head_parts),
        slices=slices,
        loads=-(-operands.key_steps // config.parts),
        columns=config.columns(operands.value_steps),
        subgroup=config.subgroup,
        **token_flags(operands, new_tokens, config),
    )


def _params(
    operands: AttentionOperands,
    visible: VisibleKeys,
    new_tokens: NewTokens | None,
    scale: float | None,
    divided: dict[str, int],
) -> TokenAttentionParams:
    if new_tokens is not None and new_tokens.slot_mapping is not None:
        params = SlotAttentionParams if new_tokens.norms is None else SlotAttentionNormParams
        params = params if new_tokens.sink_row is None else SlotAttentionSinkParams
        return params(**slot_params(operands, visible, new_tokens, scale), **divided)
    return TokenAttentionParams(**_token_params(operands, visible, new_tokens, scale), **divided)


def _token_params(
    operands: AttentionOperands, visible: VisibleKeys, new_tokens: NewTokens | None, scale: float | None
) -> dict[str, Any]:
    rotary = new_tokens.rotary if new_tokens is not None else None
    return {
        **operands.params(visible, scale),
        "table_row": rotary.row if rotary is not None else FIRST,
        "rotated": rotary.rotated if rotary is not None else 0,
    }


def slot_params(
    operands: AttentionOperands, visible: VisibleKeys, new_tokens: NewTokens, scale: float | None
) -> dict[str, Any]:
    """Return the fields of `SlotAttentionParams`, except those that divide the work."""
    slots, capacity = operands.key.dims[:2]
    table_loads = new_tokens.rotary.loads if new_tokens.rotary is not None else 0
    size = {"rows": operands.batch, "slots": slots, "capacity": capacity, "table_loads": table_loads}
    return {**_token_params(operands, visible, new_tokens, scale), **size, **new_tokens.table_params}


def token_flags(operands: AttentionOperands, new_tokens: NewTokens | None, config: TokenConfig) -> dict[str, object]:
    """Return the flags that the kernels for a token and for blocks of tokens share."""
    rotary = new_tokens.rotary if new_tokens is not None else None
    norms = new_tokens.norms if new_tokens is not None else None
    sinks = new_tokens.sink_flags if new_tokens is not None else {}
    return {
        "type": operands.load_types[0],
        "cache": operands.load_types[1],
        **({"rotary": "", "table": ""} if rotary is None else rotary.flags),
        "key_steps": operands.key_steps,  # sizes shared memory
        "value_steps": operands.value_steps,
        "lanes": config.lanes,
        "tile": config.tile,
        "parts": config.parts,
        "wide": config.wide,
        **operands.score_flags,
        **(norms.flags if norms is not None else {}),
        **sinks,
    }

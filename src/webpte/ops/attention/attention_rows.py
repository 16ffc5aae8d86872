"""Attention of many tokens at once: rows of queries share the loads of keys and values."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import ShapeError
from ...graph import DType
from ...lowering.context import Context, Tensor
from ...lowering.shapes import broadcast, broadcast_strides
from ...lowering.variants import ANYWHERE, Requirements, Variant
from ...wgsl import dims8, u32
from .attention_operands import AttentionOperands, AttentionParams, VisibleKeys
from .attention_tile import TileConfig, dispatch_tile
from .attention_token import attend_token, scratch_for_token

# Flags, not dtypes: a mask is read as words, so that a half mask alone does not ask the device for f16.
_MASKS = {DType.BOOL: "bool", DType.FLOAT16: "half", DType.FLOAT32: "float", DType.WIDE_FLOAT16: "float"}
ROWS = 4
MAX_COLUMN_LOADS = 8  # loads of a row of values that an invocation adds up


class RowsParams(AttentionParams):
    causal: u32  # token t of the query sees t * causal more keys
    seq: u32
    row_blocks: u32  # workgroups for the rows of a key head
    across: u32
    mask_strides: dims8  # over (batch, head, token, key)


class RowsConfig(NamedTuple):
    """How a workgroup goes over the keys."""

    across: int  # invocations that share four rows
    tile: int  # keys that an invocation scores at a time
    broadcast: bool = False  # the invocations are a subgroup, own a row each and share their loads

    def fit(self, operands: AttentionOperands, masked: bool) -> RowsConfig:
        """Return this configuration reduced to what registers allow."""
        across = self.across
        while operands.value_steps > MAX_COLUMN_LOADS * across:
            across *= 2
        # Each pair of row and key has its own mask entry to load.
        return RowsConfig(across, 2 if masked else self.tile)


class RowsProblem(NamedTuple):
    """The operands of a dispatch."""

    operands: AttentionOperands
    mask: Tensor | None

    @property
    def plain(self) -> bool:
        """Return whether rows are loaded in fours, without a mask."""
        return self.operands.lanes == 4 and self.mask is None


# On a CPU, shared memory is not faster, and barriers cost time.
_PLAIN = Requirements(subgroup=4, work=lambda work: work.plain)
BROADCAST: Variant[RowsConfig | TileConfig] = Variant("broadcast", _PLAIN, RowsConfig(8, 2, broadcast=True))
BY_ROWS: Variant[RowsConfig | TileConfig] = Variant("rows", ANYWHERE, RowsConfig(8, 4))
TILE: Variant[RowsConfig | TileConfig] = Variant("tile", ANYWHERE, TileConfig())
VARIANTS = (BROADCAST, BY_ROWS, TILE)


def attend(
    cx: Context,
    operands: AttentionOperands,
    visible: VisibleKeys,
    mask: Tensor | None,
    scale: float | None,
    out: Tensor,
) -> None:
    """Compute attention over stored keys and values. A single token has its own kernel."""
    if operands.lanes == 4 and mask is None:
        partial = scratch_for_token(cx, operands)
        if operands.seq == 1:
            attend_token(cx, operands, visible=visible, new_tokens=None, scale=scale, partial=partial, out=out)
            return
    attend_rows(cx, operands, visible, mask, scale, out)


def attend_rows(
    cx: Context,
    operands: AttentionOperands,
    visible: VisibleKeys,
    mask: Tensor | None,
    scale: float | None,
    out: Tensor,
) -> None:
    """Compute out = softmax(query keyᵀ * scale + mask) value over the visible keys.

    A key that the mask hides (minus infinity, or False) has no weight, even if it holds NaN; a row whose keys are all
    hidden is zero, as in F.scaled_dot_product_attention.
    """
    query, value = operands.query, operands.value
    out.dims = (*query.dims[:3], value.dims[3])
    shape = (operands.group, operands.key_steps, operands.value_steps, *operands.load_types)
    work = RowsProblem(operands, mask)
    config = cx.variant("attention", shape, cpu=(BROADCAST, BY_ROWS), gpu=(TILE,), work=work).config
    if isinstance(config, TileConfig):
        blocks = -(-operands.seq * operands.group // config.rows)
        params = _params(operands, visible, mask, scale, blocks, 0)
        kind = "" if mask is None else _MASKS[mask.dtype]
        dispatch_tile(
            cx,
            operands,
            config=config,
            params=params,
            row_blocks=blocks,
            more={"mask": mask},
            out=out,
            mask=kind,
        )
    elif config.broadcast:
        _by_subgroups(cx, operands, visible, scale, config, out)
    else:
        _by_workgroups(
            cx,
            operands,
            visible=visible,
            mask=mask,
            scale=scale,
            config=config.fit(operands, mask is not None),
            out=out,
        )


def _by_workgroups(
    cx: Context,
    operands: AttentionOperands,
    visible: VisibleKeys,
    mask: Tensor | None,
    scale: float | None,
    config: RowsConfig,
    out: Tensor,
) -> None:
    blocks = -(-operands.seq * operands.group // ROWS)
    cx.dispatch(
        "attention/attention_rows.wgsl",
        reads={"q": operands.query, "keys": operands.key, "values": operands.value, "mask": mask},
        writes={"y": out},
        params=_params(operands, visible, mask, scale, blocks, config.across),
        threads=operands.batch * operands.key_heads * blocks * config.across,
        workgroup=config.across,
        type=operands.load_types[0],
        cache=operands.load_types[1],
        mask="" if mask is None else _MASKS[mask.dtype],
        heads_first=operands.heads_first,
        wide=-(-operands.value_steps // config.across),
        across=config.across,
        tile=config.tile,
    )


def _by_subgroups(
    cx: Context, operands: AttentionOperands, visible: VisibleKeys, scale: float | None, config: RowsConfig, out: Tensor
) -> None:
    """Dispatch one row per invocation. The invocations of a subgroup share the queries and weights that they load."""
    lanes = min(cx.caps.subgroup, config.across)
    blocks = -(-operands.seq * operands.group // lanes)
    cx.dispatch(
        "attention/attention_rows_subgroup.wgsl",
        reads={"q": operands.query, "keys": operands.key, "values": operands.value},
        writes={"y": out},
        params=_params(operands, visible, None, scale, blocks, lanes),
        threads=operands.batch * operands.key_heads * blocks * lanes,
        workgroup=lanes,
        type=operands.load_types[0],
        cache=operands.load_types[1],
        heads_first=operands.heads_first,
        lanes=lanes,
        rows=lanes,
        tile=config.tile,
        wide=-(-operands.value_steps // lanes),
    )


def _params(
    operands: AttentionOperands,
    visible: VisibleKeys,
    mask: Tensor | None,
    scale: float | None,
    blocks: int,
    across: int,
) -> RowsParams:
    strides: tuple[int, ...] = ()
    if mask is not None:
        scores = (operands.batch, operands.heads, operands.seq, visible.keys)
        if broadcast(mask.dims, scores) != scores:
            raise ShapeError(
                argument="attn_mask",
                expected=f"a shape that broadcasts to {list(scores)}",
                got=list(mask.dims),
                code="operand_mismatch",
            )
        strides = broadcast_strides(mask.dims, scores)
    return RowsParams(
        **operands.params(visible, scale),
        causal=int(visible.causal),
        seq=operands.seq,
        row_blocks=blocks,
        across=across,
        mask_strides=strides,
    )

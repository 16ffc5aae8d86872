"""Attention of many tokens on a GPU: a workgroup shares keys, values and weights between 32 rows of queries."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ...lowering.context import Arrays, Context, Tensor
from ...wgsl import FEW_REGISTERS
from .attention_operands import AttentionOperands, AttentionParams

MAX_ACROSS = 32
ROWS_OF_LANE = 4  # the width of a vector


class TileConfig(NamedTuple):
    """How a workgroup goes over the keys."""

    down: int = 8  # groups of four rows
    chunk: int = 4  # loads of a row that are staged at a time

    @property
    def rows(self) -> int:
        return ROWS_OF_LANE * self.down

    def across(self, value_steps: int) -> int:
        """Return the number of invocations that share four rows: as many as a row of values has loads."""
        across = 8
        while across < min(value_steps, MAX_ACROSS):
            across *= 2
        return across


def dispatch_tile(
    cx: Context,
    operands: AttentionOperands,
    config: TileConfig,
    params: AttentionParams,
    row_blocks: int,
    more: Arrays,
    out: Tensor,
    *,
    mask: str = "",
    slots: bool = False,
    sinks: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Dispatch `row_blocks` workgroups for every key head. `more`: the mask, or the slot mapping of tokens and tables.

    `sinks` are flags.
    """
    across = config.across(operands.value_steps)
    lanes = across * config.down
    frugal = cx.caps.registers <= FEW_REGISTERS
    batch = 1 if slots else operands.batch
    cx.dispatch(
        "attention/attention_tile.wgsl",
        reads={"q": operands.query, "keys": operands.key, "values": operands.value, **more},
        writes={"y": out},
        params=params,
        threads=batch * operands.key_heads * row_blocks * lanes,
        workgroup=lanes,
        type=operands.load_types[0],
        cache=operands.load_types[1],
        mask=mask,
        slots=slots,
        heads_first=operands.heads_first,
        key_steps=operands.key_steps,
        value_steps=operands.value_steps,
        wide=-(-operands.value_steps // across),
        across=across,
        down=config.down,
        tile=4 if across == 8 and not frugal else 2,
        frugal=frugal,
        chunk=config.chunk,
        **operands.score_flags,
        **sinks,
    )

"""Causal convolution of tokens of several sequences, each over the latest inputs of its slot."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType, numel
from ...lowering import dim_rules
from ...lowering.context import Context, LiveScalar, Tensor, load_type
from ...lowering.registry import FLOATS, op
from ...lowering.traits import CallSizes, OpTraits
from ...wgsl import Live, Uniforms, u32


class SlotConvolutionParams(Uniforms):
    start: Live
    rows: u32
    slots: u32
    first: u32  # the row of the state of the first slot
    kept: u32  # inputs of a slot
    columns: u32  # loads of a row


def _flops(sizes: CallSizes) -> int:
    return 2 * numel(sizes.out) * sizes.dims("weight")[0]


@op(
    "webpte.slot_convolution",
    dtypes=FLOATS | {DType.INT32},
    traits=OpTraits(mutates=("state",), work=_flops, dims=dim_rules.like("x"), sequences=True),
)
def slot_convolution(
    cx: Context,
    x: Tensor,
    weight: Tensor,
    state: Tensor,
    slot_mapping: Tensor,
    advance: LiveScalar,
    num_decode: int,
    first: int,
    silu: bool,
    *,
    out: Tensor,
) -> None:
    """Compute the weighted sum of each row and the rows before it in its sequence, for each column.

    Row r of (1, R, N) is the token of slot slot_mapping[r, 0] at position slot_mapping[r, 1] + advance. The weights
    (L, 1, N) are those of the rows from L - 1 positions before up to the row itself. With `silu`, sums x become
    x * sigmoid(x). Row p of a sequence is kept as row p modulo H of its slot in the states (first + slots, H, N), which
    begin with `first` copies. A row whose slot is negative is idle.

    The first `num_decode` rows are the only ones of their slots. After them the rows of a slot are neighbors, at
    consecutive positions.
    """
    _check(x, weight, state, slot_mapping, first)
    out.dims = x.dims
    _, rows, width = x.dims
    wide = 4 if width % 4 == 0 else 1
    states, kept, _ = state.dims
    params = SlotConvolutionParams(
        start=advance.dynamic, rows=rows, slots=states - first, first=first, kept=kept, columns=width // wide
    )
    # Other rows read what a row replaces, unless it is the only one of its slot.
    apart = num_decode < rows
    cx.dispatch(
        "recurrent/slot_convolution.wgsl",
        reads={"x": x, "weight": weight, "slot_mapping": slot_mapping},
        writes={"state": state, "y": out},
        params=params,
        threads=rows * params.columns,
        type=load_type(x, wide),
        wide=wide,
        taps=weight.dims[0],
        keeps=not apart,
        silu=silu,
    )
    if apart:
        cx.dispatch(
            "recurrent/slot_keep.wgsl",
            reads={"x": x, "slot_mapping": slot_mapping},
            writes={"state": state},
            params=params,
            threads=rows * params.columns,
            type=load_type(x, wide),
        )


def _check(x: Tensor, weight: Tensor, state: Tensor, slot_mapping: Tensor, first: int) -> None:
    width = x.dims[-1]
    if x.rank != 3 or x.dims[0] != 1 or weight.dims[1:] != (1, width) or state.rank != 3 or state.dims[2] != width:
        raise ShapeError(
            f"slot_convolution: expected rows (1, R, N), weights (L, 1, N) and a state (slots, H, N), got "
            f"{list(x.dims)}, {list(weight.dims)} and {list(state.dims)}",
            code="operand_mismatch",
        )
    if state.dims[0] <= first or state.dims[1] < weight.dims[0] or len({x.dtype, weight.dtype, state.dtype}) > 1:
        raise ShapeError(
            argument="state",
            expected=f"more than {first} states of at least {weight.dims[0]} rows of {x.dtype.short}",
            got=f"{state.dims[0]} of {state.dims[1]} rows of {state.dtype.short}",
            code="operand_mismatch",
        )
    if slot_mapping.dims != (x.dims[1], 2) or slot_mapping.dtype is not DType.INT32:
        raise ShapeError(
            argument="slot_mapping",
            expected=f"i32 with a slot and a position for each of {x.dims[1]} rows",
            got=f"{slot_mapping.dtype.short}{list(slot_mapping.dims)}",
            code="operand_mismatch",
        )


@slot_convolution.reference
def _(
    x: Any, weight: Any, state: Any, slot_mapping: Any, advance: int, num_decode: object, first: int, silu: bool
) -> Any:
    """Write into the state, as the op does. The result of idle rows is undefined; here it is zero."""
    out = np.zeros_like(x)
    taps, kept = len(weight), state.shape[1]
    for row, (slot, start) in enumerate(slot_mapping):
        if slot < 0:
            continue
        slot, position = slot + first, start + advance
        state[slot, position % kept] = x[0, row]
        for back in range(min(taps, position + 1)):
            out[0, row] += weight[taps - 1 - back, 0] * state[slot, (position - back) % kept]
    return out * np.exp(-np.logaddexp(0, -out)) if silu else out

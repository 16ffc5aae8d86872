"""Linear attention by the gated delta rule of tokens of several sequences, each over the state of its slot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType, numel
from ...lowering.context import Context, LiveScalar, Tensor
from ...lowering.registry import op
from ...lowering.traits import CallSizes, OpTraits
from ...wgsl import Live, Uniforms, f32, u32

KEY_LANES = 8  # invocations that share a column of a state, if its keys can be divided so
MAX_COLUMNS = 32  # of a workgroup
BLOCK_ROWS = 8


class SlotDeltaParams(Uniforms):
    start: Live
    rows: u32
    slots: u32
    first: u32  # the row of the state of the first slot
    heads: u32
    group: u32  # heads of values that share a key
    width: u32  # of a row
    eps: f32
    scale: f32  # of queries


def _flops(sizes: CallSizes) -> int:
    return 6 * sizes.out[0] * numel(sizes.dims("state")[1:])


@op(
    "webpte.slot_delta_rule",
    dtypes=frozenset({DType.FLOAT32, DType.INT32}),
    traits=OpTraits(mutates=("state",), work=_flops, sequences=True),
)
def slot_delta_rule(
    cx: Context,
    mixed: Tensor,
    decay: Tensor,
    strength: Tensor,
    rate: Tensor,
    bias: Tensor,
    eps: float,
    state: Tensor,
    slot_mapping: Tensor,
    advance: LiveScalar,
    first: int,
    *,
    out: Tensor,
) -> None:
    """Compute the values (R, H, V) that queries read from the state of their slot, after each row has changed it.

    A row of `mixed` (1, R, 2 G K + H V) has the queries and keys of G heads, which get unit length, and the values of H
    heads. The state of a slot is a matrix (K, V) for each of H heads; the states begin with `first` copies. A row
    multiplies its state by exp(rate * softplus(decay + bias)), and moves what its key reads towards its value, by
    sigmoid(strength). Then its query reads the state. `decay` and `strength` are (R, H), `rate` and `bias` (H,).

    Row r is the token of slot slot_mapping[r, 0] at position slot_mapping[r, 1] + advance. A state is 0 before position
    0. The rows of a slot are neighbors, at consecutive positions. A row whose slot is negative is idle.
    """
    rows, heads = decay.dims
    key_dim, value_dim = state.dims[1] // heads, state.dims[2]
    width = mixed.dims[-1]
    groups = (width - heads * value_dim) // (2 * key_dim)
    fits = (
        state.dims[0] > first
        and groups > 0
        and heads % groups == 0
        and width == 2 * groups * key_dim + heads * value_dim
    )
    gates = mixed.dims[:2] == (1, rows) and strength.dims == decay.dims and rate.dims == bias.dims == (heads,)
    if not gates or state.dims[1] % heads or not fits:
        raise ShapeError(
            f"slot_delta_rule: expected rows (1, R, 2 G K + H V), tables (R, H), a rate and a bias (H,) and more than "
            f"{first} states (H K, V), got "
            f"{', '.join(str(list(x.dims)) for x in (mixed, decay, strength, rate, bias))} and {list(state.dims)}",
            code="operand_mismatch",
        )
    out.dims = (rows, heads, value_dim)
    lanes = math.gcd(key_dim, KEY_LANES)
    columns = next(each for each in range(min(value_dim, MAX_COLUMNS), 0, -1) if value_dim % each == 0)
    cx.dispatch(
        "recurrent/slot_delta_rule.wgsl",
        reads={
            "mixed": mixed,
            "decay": decay,
            "strength": strength,
            "rate": rate,
            "bias": bias,
            "slot_mapping": slot_mapping,
        },
        writes={"state": state, "y": out},
        params=SlotDeltaParams(
            start=advance.dynamic,
            rows=rows,
            slots=state.dims[0] - first,
            first=first,
            heads=heads,
            group=heads // groups,
            width=width,
            eps=eps,
            scale=key_dim**-0.5,
        ),
        threads=rows * heads * value_dim * lanes,
        workgroup=columns * lanes,
        keys=key_dim,
        values=value_dim,
        columns=columns,
        lanes=lanes,
        rows=BLOCK_ROWS,
    )


@slot_delta_rule.reference
def _(
    mixed: Any,
    decay: Any,
    strength: Any,
    rate: Any,
    bias: Any,
    eps: float,
    state: Any,
    slot_mapping: Any,
    advance: int,
    first: int,
) -> Any:
    """Write into the state, as the op does. The result of idle rows is undefined; here it is zero."""
    (rows, heads), value_dim = decay.shape, state.shape[2]
    key_dim = state.shape[1] // heads
    keys = (mixed.shape[-1] - heads * value_dim) // 2
    shared = heads * key_dim // keys
    logarithms, strength = rate * np.logaddexp(0, decay + bias), np.exp(-np.logaddexp(0, -strength))
    out = np.zeros((rows, heads, value_dim), np.float32)
    for row, (slot, start) in enumerate(slot_mapping):
        if slot < 0:
            continue
        query, key = mixed[0, row, : 2 * keys].astype(np.float64).reshape(2, -1, key_dim)
        query, key = (np.repeat(x / np.sqrt((x**2).sum(-1, keepdims=True) + eps), shared, axis=0) for x in (query, key))
        value = mixed[0, row, 2 * keys :].reshape(heads, value_dim)
        slot = slot + first
        held = np.zeros((heads, key_dim, value_dim))
        if start + advance > 0:  # the state of an earlier sequence may be anything
            held = state[slot].reshape(held.shape).astype(np.float64)
        held = held * np.exp(logarithms[row])[:, None, None]
        change = (value - np.einsum("hk,hkv->hv", key, held)) * strength[row][:, None]
        held = held + key[:, :, None] * change[:, None]
        out[row] = np.einsum("hk,hkv->hv", query, held) * key_dim**-0.5
        state[slot] = held.reshape(-1, value_dim)
    return out

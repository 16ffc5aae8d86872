"""Rotary position embedding: pairs of elements of each head are rotated by an angle that grows with the position.

Which elements pair up differs: neighbors (Llama), or the first half with the second (Hugging Face).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType, numel
from ...lowering import dim_rules
from ...lowering.context import Context, LiveScalar, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.traits import OpTraits
from ...wgsl import Live, LiveInt, Uniforms, u32


class RotaryParams(Uniforms):
    start: Live  # row of the table for the first token
    seq: u32
    heads: u32
    pairs: u32  # per head


class HalfRotaryParams(Uniforms):
    start: Live  # row of the table for the first token
    seq: u32
    heads: u32
    width: u32  # of a head
    rotated: u32  # elements of it that rotate; the rest pass


class BatchHalfRotaryParams(HalfRotaryParams):
    image: u32  # elements of one of the batch
    table: u32  # entries of its own table


@op("et_vk.apply_rotary_emb.default", dtypes=FLOATS, traits=OpTraits(dims=dim_rules.like("xq", "xk")))
def apply_rotary_emb(
    cx: Context, xq: Tensor, xk: Tensor, freqs_cos: Tensor, freqs_sin: Tensor, *, out: tuple[Tensor, Tensor]
) -> None:
    """Rotate two tensors. Token s takes row s of the tables, which have one row per token."""
    for x, y in zip((xq, xk), out, strict=True):
        if freqs_cos.dims[0] != x.dims[1]:
            raise ShapeError(
                f"rotary tables {list(freqs_cos.dims)} do not have a row for each of {x.dims[1]} tokens",
                code="operand_mismatch",
            )
        rotate_neighbours(cx, x, freqs_cos, freqs_sin, LiveInt(0, -1), y)


@op("webpte.slot_rotary", dtypes=FLOATS | {DType.INT32}, traits=OpTraits(dims=dim_rules.like("xq", "xk")))
def slot_rotary(
    cx: Context,
    xq: Tensor,
    xk: Tensor,
    freqs_cos: Tensor,
    freqs_sin: Tensor,
    slot_mapping: Tensor,
    advance: LiveScalar,
    *,
    out: tuple[Tensor, Tensor],
) -> None:
    """Rotate two tensors, (1, R, H, D). Row r takes the row slot_mapping[r, 1] + advance of the tables."""
    for x, y in zip((xq, xk), out, strict=True):
        if slot_mapping.dims != (x.dims[1], 2) or x.dims[0] != 1:
            raise ShapeError(
                argument="slot_mapping",
                expected=f"a slot and a position for each row of {list(x.dims)}",
                got=list(slot_mapping.dims),
                code="operand_mismatch",
            )
        rotate_neighbours(cx, x, freqs_cos, freqs_sin, advance.dynamic, y, slot_mapping)


@slot_rotary.reference
def _(xq: Any, xk: Any, freqs_cos: Any, freqs_sin: Any, slot_mapping: Any, advance: int) -> Any:
    cos, sin = (table[slot_mapping[:, 1] + advance, None, :] for table in (freqs_cos, freqs_sin))  # (R, 1, D/2)
    return rotated_neighbours(xq, cos, sin), rotated_neighbours(xk, cos, sin)


def rotate_neighbours(
    cx: Context,
    x: Tensor,
    cosine: Tensor,
    sine: Tensor,
    start: LiveInt,
    out: Tensor,
    slot_mapping: Tensor | None = None,
) -> None:
    """Rotate pairs of neighbors of each head, token s by row start + s of the tables, or by its position in a slot."""
    _, seq, heads, width = x.dims  # (B, S, H, D)
    if width % 2 or cosine.dims[1:] != (width // 2,) or sine.dims != cosine.dims:
        raise ShapeError(
            f"rotary embedding of {list(x.dims)}: expected an even width and tables of half the "
            f"width, got tables {list(cosine.dims)} and {list(sine.dims)}",
            code="operand_mismatch",
        )
    out.dims = x.dims
    cx.dispatch(
        "attention/rotary.wgsl",
        reads={"x": x, "cosine": cosine, "sine": sine, "slot_mapping": slot_mapping},
        writes={"y": out},
        params=RotaryParams(start=start, seq=seq, heads=heads, pairs=width // 2),
        threads=x.numel // 2,
        type=x.wgsl,
        table=cosine.wgsl,
        packed=False,
        **({} if slot_mapping is None else {"slots": True}),
    )


def rotated_neighbours(x: Any, cos: Any, sin: Any) -> Any:
    even, odd = x[..., 0::2].astype(np.float64), x[..., 1::2].astype(np.float64)
    result = np.stack((even * cos - odd * sin, even * sin + odd * cos), axis=-1)
    return result.reshape(x.shape).astype(x.dtype)


@apply_rotary_emb.reference
def _(xq: Any, xk: Any, freqs_cos: Any, freqs_sin: Any) -> Any:
    cos, sin = freqs_cos[:, None, :], freqs_sin[:, None, :]  # (S, 1, D/2)
    return rotated_neighbours(xq, cos, sin), rotated_neighbours(xk, cos, sin)


@op("et_vk.apply_rotary_emb_interleaved.default", dtypes=FLOATS)
def apply_rotary_emb_interleaved(cx: Context, x: Tensor, freqs_cis: Tensor, *, out: Tensor) -> None:
    """Rotate x by a table of (cosine, sine) pairs, one per pair of x, of shape [N, C] or [1, N, C/2, 2]."""
    if x.rank != 3 or x.dims[2] % 2 or freqs_cis.numel != x.dims[1] * x.dims[2]:
        raise ShapeError(
            f"rotary embedding: expected [B, N, C] with an even C and a table of N * C elements, got "
            f"{list(x.dims)} and {freqs_cis}",
            code="operand_mismatch",
        )
    _, seq, width = x.dims  # (B, N, C)
    out.dims = x.dims
    cx.dispatch(
        "attention/rotary.wgsl",
        reads={"x": x, "cosine": freqs_cis},
        writes={"y": out},
        params=RotaryParams(start=LiveInt(0, -1), seq=seq, heads=1, pairs=width // 2),
        threads=x.numel // 2,
        type=x.wgsl,
        table=freqs_cis.wgsl,
        packed=True,
    )


@apply_rotary_emb_interleaved.reference
def _(x: Any, freqs_cis: Any) -> Any:
    table = freqs_cis.reshape(x.shape[1], x.shape[2] // 2, 2)  # (N, C/2, 2)
    return rotated_neighbours(x, table[..., 0], table[..., 1])


@op("et_vk.apply_rotary_emb_hf.default", dtypes=FLOATS)
def apply_rotary_emb_hf(
    cx: Context,
    xq: Tensor,
    xk: Tensor,
    freqs_cos: Tensor,
    freqs_sin: Tensor,
    start_pos: LiveScalar,
    *,
    out: tuple[Tensor, Tensor],
) -> None:
    """Rotate two tensors. Token s takes row start_pos + s. A narrow table rotates the first elements of a head only.

    Tables of rank 3 have the tokens after the heads, as Hugging Face's models rotate: (B, H, S, D) by (B, S, R).
    """
    if freqs_cos.rank == 3 and not (start_pos.literal and start_pos.value == 0):
        raise ShapeError(
            f"start_pos: expected 0 with batched tables {list(freqs_cos.dims)}, which have a row for each token"
        )
    guard_table(cx, start_pos, xq.dims[freqs_cos.rank - 1], freqs_cos.dims[-2])
    for x, y in zip((xq, xk), out, strict=True):
        rotate_halves(cx, x, freqs_cos, freqs_sin, start_pos.dynamic, y)


def rotate_halves(cx: Context, x: Tensor, cosine: Tensor, sine: Tensor, start: LiveInt, out: Tensor) -> None:
    """Rotate the first half of each head with the second, token s by row start + s of the tables."""
    width, rotated = x.dims[3], cosine.dims[-1]
    batched = numel(cosine.dims[:-2]) > 1
    fits = sine.dims == cosine.dims and (cosine.rank == 2 or cosine.dims[0] in (1, x.dims[0]))
    if rotated % 2 or rotated > width or not fits:
        raise ShapeError(
            f"rotary tables {list(cosine.dims)} and {list(sine.dims)} do not fit {list(x.dims)}",
            code="operand_mismatch",
        )
    out.dims = x.dims
    seq, heads = x.dims[1:3] if cosine.rank == 2 else (x.dims[2], 1)  # heads between a token and the next
    params = HalfRotaryParams(start=start, seq=seq, heads=heads, width=width, rotated=rotated)
    if batched:
        params = BatchHalfRotaryParams(**vars(params), image=numel(x.dims[1:]), table=numel(cosine.dims[1:]))
    cx.dispatch(
        "attention/rotary_hf.wgsl",
        reads={"x": x, "cosine": cosine, "sine": sine},
        writes={"y": out},
        params=params,
        threads=x.numel,
        type=x.wgsl,
        table=cosine.wgsl,
        batched=batched,
    )


def guard_table(cx: Context, start: LiveScalar, seq: int, rows: int) -> None:
    """Check on the host, before every run, that the table has the rows: kernels read the position while they run."""
    message = f"{seq} tokens at position {{0}} reach past a rotary table of {rows} positions."
    cx.guard(start.term, 0, rows - seq + 1, message)


def rotated_halves(x: Any, cos: Any, sin: Any) -> Any:
    rotated = cos.shape[-1]
    head, rest = x[..., :rotated], x[..., rotated:]
    low, high = np.split(head, 2, axis=-1)
    result = head * cos.astype(np.float64) + np.concatenate((-high, low), axis=-1) * sin.astype(np.float64)
    return np.concatenate((result.astype(x.dtype), rest), axis=-1)


@apply_rotary_emb_hf.reference
def _(xq: Any, xk: Any, freqs_cos: Any, freqs_sin: Any, start_pos: int) -> Any:
    rows = slice(start_pos, start_pos + xq.shape[freqs_cos.ndim - 1])
    cos, sin = (np.expand_dims(table[..., rows, :], 1) for table in (freqs_cos, freqs_sin))  # (S, 1, R), (B, 1, S, R)
    return rotated_halves(xq, cos, sin), rotated_halves(xk, cos, sin)

"""Rotary position embedding: pairs of elements of each head are turned by an angle that grows with the position.

Which elements pair up differs: neighbours (Llama), or the first half with the second (Hugging Face).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..wgsl import Live, Uniforms, u32
from .context import Context, LiveScalar, Tensor
from .registry import FLOATS, op


class Rotary(Uniforms):
    seq: u32
    heads: u32
    pairs: u32  # per head


class HalfRotary(Uniforms):
    start: Live  # row of the table for the first token
    seq: u32
    heads: u32
    width: u32  # of a head
    rotated: u32  # elements of it that turn; the rest pass


@op("et_vk.apply_rotary_emb.default", dtypes=FLOATS)
def apply_rotary_emb(
    cx: Context, xq: Tensor, xk: Tensor, freqs_cos: Tensor, freqs_sin: Tensor, *, out: tuple[Tensor, Tensor]
) -> None:
    for x, y in zip((xq, xk), out, strict=True):
        _, seq, heads, width = x.dims  # (B, S, H, D)
        if width % 2 or freqs_cos.dims != (seq, width // 2) or freqs_sin.dims != freqs_cos.dims:
            raise ShapeError(
                f"{list(x.dims)} needs an even width and tables of [{seq}, {width // 2}], got {list(freqs_cos.dims)} "
                f"and {list(freqs_sin.dims)}"
            )
        y.dims = x.dims
        cx.dispatch(
            "rotary.wgsl",
            reads=(x, freqs_cos, freqs_sin),
            writes=(y,),
            params=Rotary(seq=seq, heads=heads, pairs=width // 2),
            threads=x.numel // 2,
            type=x.wgsl,
            table=freqs_cos.wgsl,
            packed=False,
        )


def _turn_neighbours(x: Any, cos: Any, sin: Any) -> Any:
    even, odd = x[..., 0::2].astype(np.float64), x[..., 1::2].astype(np.float64)
    turned = np.stack((even * cos - odd * sin, even * sin + odd * cos), axis=-1)
    return turned.reshape(x.shape).astype(x.dtype)


@apply_rotary_emb.reference
def _(xq: Any, xk: Any, freqs_cos: Any, freqs_sin: Any) -> Any:
    cos, sin = freqs_cos[:, None, :], freqs_sin[:, None, :]  # (S, 1, D/2)
    return _turn_neighbours(xq, cos, sin), _turn_neighbours(xk, cos, sin)


@op("et_vk.apply_rotary_emb_interleaved.default", dtypes=FLOATS)
def apply_rotary_emb_interleaved(cx: Context, x: Tensor, freqs_cis: Tensor, *, out: Tensor) -> None:
    """The table has (cosine, sine) pairs, one per pair of x, in whatever shape: [N, C] or [1, N, C/2, 2]."""
    if x.rank != 3 or x.dims[2] % 2 or freqs_cis.numel != x.dims[1] * x.dims[2]:
        raise ShapeError(f"{list(x.dims)} is no [B, N, C] with C even and N * C table entries in {freqs_cis}")
    _, seq, width = x.dims  # (B, N, C)
    out.dims = x.dims
    cx.dispatch(
        "rotary.wgsl",
        reads=(x, freqs_cis),
        writes=(out,),
        params=Rotary(seq=seq, heads=1, pairs=width // 2),
        threads=x.numel // 2,
        type=x.wgsl,
        table=freqs_cis.wgsl,
        packed=True,
    )


@apply_rotary_emb_interleaved.reference
def _(x: Any, freqs_cis: Any) -> Any:
    table = freqs_cis.reshape(x.shape[1], x.shape[2] // 2, 2)  # (N, C/2, 2)
    return _turn_neighbours(x, table[..., 0], table[..., 1])


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
    """Token s takes row start_pos + s of the tables. A table narrower than a head turns its first elements only."""
    rows, rotated = freqs_cos.dims
    for x, y in zip((xq, xk), out, strict=True):
        _, seq, heads, width = x.dims  # (B, S, H, D)
        if rotated % 2 or rotated > width or freqs_sin.dims != freqs_cos.dims:
            raise ShapeError(
                f"{list(x.dims)} cannot be turned by tables of {list(freqs_cos.dims)} and {list(freqs_sin.dims)}"
            )
        _guard_table(cx, start_pos, seq, rows)
        y.dims = x.dims
        cx.dispatch(
            "rotary_hf.wgsl",
            reads=(x, freqs_cos, freqs_sin),
            writes=(y,),
            params=HalfRotary(start=start_pos.live, seq=seq, heads=heads, width=width, rotated=rotated),
            threads=x.numel,
            type=x.wgsl,
            table=freqs_cos.wgsl,
        )


def _guard_table(cx: Context, start: LiveScalar, seq: int, rows: int) -> None:
    cx.guard(
        lambda: 0 <= start.peek() <= rows - seq,
        lambda: f"{seq} tokens at position {start.peek()} reach past a rotary table of {rows} positions.",
    )


@apply_rotary_emb_hf.reference
def _(xq: Any, xk: Any, freqs_cos: Any, freqs_sin: Any, start_pos: int) -> Any:
    rows = slice(start_pos, start_pos + xq.shape[1])
    cos, sin = freqs_cos[rows, None, :].astype(np.float64), freqs_sin[rows, None, :].astype(np.float64)  # (S, 1, R)
    rotated = cos.shape[-1]

    def turn(x: Any) -> Any:
        head, rest = x[..., :rotated], x[..., rotated:]
        low, high = np.split(head, 2, axis=-1)
        turned = head * cos + np.concatenate((-high, low), axis=-1) * sin
        return np.concatenate((turned.astype(x.dtype), rest), axis=-1)

    return turn(xq), turn(xk)

"""Rotary position embedding of queries and keys, interleaved pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..wgsl import Uniforms, u32
from .context import Context, Tensor
from .registry import FLOATS, op


class Rotary(Uniforms):
    seq: u32
    heads: u32
    pairs: u32  # per head


@op("et_vk.apply_rotary_emb.default", dtypes=FLOATS)
def apply_rotary_emb(
    cx: Context, xq: Tensor, xk: Tensor, freqs_cos: Tensor, freqs_sin: Tensor, *, out: tuple[Tensor, Tensor]
) -> None:
    for x, y in zip((xq, xk), out, strict=True):
        _, seq, heads, width = x.dims  # (B, S, H, D)
        if freqs_cos.dims != (seq, width // 2) or freqs_sin.dims != freqs_cos.dims:
            raise ShapeError(
                f"{list(x.dims)} needs tables of [{seq}, {width // 2}], got {list(freqs_cos.dims)} and "
                f"{list(freqs_sin.dims)}"
            )
        y.dims = x.dims
        params = Rotary(seq=seq, heads=heads, pairs=width // 2)
        reads = (x, freqs_cos, freqs_sin)
        cx.dispatch("rotary.wgsl", reads=reads, writes=(y,), params=params, threads=x.numel // 2, type=x.wgsl)


@apply_rotary_emb.reference
def _(xq: Any, xk: Any, freqs_cos: Any, freqs_sin: Any) -> Any:
    cos, sin = freqs_cos[:, None, :], freqs_sin[:, None, :]  # (S, 1, D/2)

    def rotate(x: Any) -> Any:
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack((even * cos - odd * sin, even * sin + odd * cos), axis=-1).reshape(x.shape)

    return rotate(xq), rotate(xk)

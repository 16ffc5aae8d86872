"""The input of a layer as int8, each row by its own scale and zero point, or in f16, each row by its own power of two.

A layer reads the codes, laid out as linear_q4_pack.wgsl describes, or the numbers that the codes stand for.
"""

from __future__ import annotations

from typing import NamedTuple

from ...graph import DType, numel
from ...lowering.context import Context, Tensor, load_type
from ...wgsl import Uniforms, f32, u32
from ..norm.norm import RMS_NORM
from ..quantize.affine import INT8_LIMITS, fake_quantize
from ..reduce.reduce import lanes_per_any_row, with_subgroups, workgroup_for

WORD_CODES = 8  # of a word of a 4-bit weight, and of a pair of words of the codes of x


class RmsNorm(NamedTuple):
    """The normalization of the rows of x before a layer."""

    weight: Tensor  # (K,)
    eps: float


class QuantizeRowsParams(Uniforms):
    steps: u32  # loads per row
    lanes: u32
    columns: f32
    lowest: f32
    highest: f32
    eps: f32
    norm_eps: f32


class PackRowsParams(Uniforms):
    pairs: u32  # of words, in a row


def quantize_rows(cx: Context, x: Tensor, eps: float, norm: RmsNorm | None, packed: bool) -> Tensor:
    """Return the rows of x, normalized first if there is a norm, in int8 by their own ranges and scales from `eps` on.

    The result has the bits of choose_qparams_affine and `quantize_rows_by`, and of the norm's own op.
    """
    return _by_ranges(cx, x, eps, norm, packed=packed)


def halve_rows(cx: Context, x: Tensor, norm: RmsNorm | None) -> Tensor:
    """Return the rows of x, normalized first if there is a norm, in f16, each divided by a power of two."""
    return _by_ranges(cx, x, 0.0, norm, halves=True)


def _by_ranges(
    cx: Context, x: Tensor, eps: float, norm: RmsNorm | None, *, packed: bool = False, **form: bool
) -> Tensor:
    """Return the rows of x in the form that the flags of quantize_rows.wgsl select."""
    columns = x.dims[-1]
    # The sum of squares must be added up in the order of the norm's own op.
    lanes = lanes_per_any_row(cx, "quantized rows" if norm is None else RMS_NORM, columns)
    wide = 4 if columns % 4 == 0 else 1
    rows = numel(x.dims[:-1])
    out = cx.scratch(DType.FLOAT32, x.dims)  # room for any form: more or fewer rows may ask for another
    lowest, highest = INT8_LIMITS
    cx.dispatch(
        "q4/quantize_rows.wgsl",
        reads={"x": x, "weight": norm.weight if norm is not None else None},
        writes={"y": out},
        params=QuantizeRowsParams(
            steps=columns // wide,
            lanes=lanes,
            columns=columns,
            lowest=lowest,
            highest=highest,
            eps=eps,
            norm_eps=0.0 if norm is None else norm.eps,
        ),
        threads=rows * lanes,
        workgroup=workgroup_for(lanes),
        type=load_type(x, wide),
        weight_type="" if norm is None else load_type(norm.weight, wide),
        lanes=lanes,
        subgroups=with_subgroups(cx, lanes),
        wide=wide,
        packed=packed,
        **form,
    )
    return out


def quantize_rows_by(cx: Context, x: Tensor, qparams: tuple[Tensor, Tensor], packed: bool) -> Tensor:
    """Return the rows of x in int8 by scales and zero points that another call has chosen."""
    scale, zero = qparams
    if not packed:
        return fake_quantize(cx, x, scale, zero)
    codes = cx.scratch(DType.FLOAT32, x.dims)  # as for numbers: more or fewer rows may ask for these
    pairs = x.dims[-1] // WORD_CODES + 1
    cx.dispatch(
        "q4/linear_q4_pack.wgsl",
        reads={"x": x, "scales": scale, "zeros": zero},
        writes={"y": codes},
        params=PackRowsParams(pairs=pairs),
        threads=numel(x.dims[:-1]) * pairs,
        type=x.wgsl,
        scale_type=scale.wgsl,
        zero_type=zero.dtype.short,
    )
    return codes

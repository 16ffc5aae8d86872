"""Linear layers with 4-bit weights, two codes to a byte, in groups or by channel; inputs may be rounded to int8."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..graph import DType, numel
from ..wgsl import Uniforms, u32
from .affine import fake_quantise, numpy_fake_quantise
from .context import Context, Tensor
from .registry import BYTES, FLOATS, Unused, op

GEMV = (1, 4)  # rows and columns of one invocation where there is a single row
GEMM = (2, 8)  # and where there are more
CODES = 8  # in a word


class Packed(NamedTuple):
    """A weight (N, K): codes from 0 to 15 stand for -8 to 7, times scales[k / group, n]."""

    codes: Tensor  # (N, at least K / 2) bytes
    scales: Tensor  # (K / group, at least N), or (N,) for a single group
    group: int
    high_first: bool = False  # the code of an even k is in the high half of its byte

    def check(self, inner: int) -> None:
        """Refuse what does not fit K = `inner`."""
        columns, row_bytes = self.codes.dims if self.codes.rank == 2 else (0, 0)
        *groups, stride = self.scales.dims if self.scales.rank in (1, 2) else (0, 0)
        grouped = self.group > 0 and -(-inner // self.group) == numel(tuple(groups))
        if not grouped or row_bytes * 2 < inner or stride < columns:
            raise ShapeError(
                f"codes {list(self.codes.dims)} and scales {list(self.scales.dims)} in groups of {self.group} "
                f"do not fit {inner} columns of the input"
            )

    @property
    def scale_stride(self) -> int:
        return self.scales.dims[-1]

    def words_per_load(self, inner: int) -> int:
        """How many words of a row can be read at once, all of one group; 0 if groups or rows do not start at words."""
        row_words, rest = divmod(self.codes.dims[1], 4)
        if rest or self.group % CODES or inner % self.group or row_words * CODES != inner:
            return 0
        return next(words for words in (4, 2, 1) if self.group // CODES % words == 0)


class LinearQ4(Uniforms):
    rows: u32
    columns: u32  # of the part of the weight that is bound
    first: u32  # where that part begins
    out_columns: u32
    column_tiles: u32
    groups: u32
    group_loads: u32  # how many loads make a group, and a row of the weight
    row_loads: u32
    scale_stride: u32


class LinearQ4Any(Uniforms):
    columns: u32
    first: u32
    out_columns: u32
    inner: u32
    groups: u32
    group: u32
    row_codes: u32  # what a row of the weight has room for
    scale_stride: u32


def project_q4(cx: Context, x: Tensor, weight: Packed, bias: Tensor | None, out: Tensor) -> None:
    """(..., K) x (N, K) -> (..., N)."""
    inner = x.dims[-1] if x.dims else 0
    weight.check(inner)
    columns, row_bytes = weight.codes.dims
    if bias is not None and bias.numel < columns:
        raise ShapeError(f"bias {list(bias.dims)} does not fit {columns} columns")
    out.dims = (*x.dims[:-1], columns)
    rows = numel(x.dims[:-1])
    for first, count, part in cx.parts(weight.codes, row_bytes, columns):
        template, flags, params, threads = _form(weight, inner, rows, first, count)
        cx.dispatch(
            template,
            reads=(x, part, weight.scales) if bias is None else (x, part, weight.scales, bias),
            writes=(out,),
            params=params,
            threads=threads,
            workgroup=32,
            type=x.wgsl,
            scale_type=weight.scales.wgsl,
            bias_type=bias.wgsl if bias is not None else "",
            out_type=out.wgsl,
            biased=bias is not None,
            high_first=weight.high_first,
            **flags,
        )


def _form(weight: Packed, inner: int, rows: int, first: int, count: int) -> tuple[str, dict[str, int], Uniforms, int]:
    """Template, flags, parameters and invocations for `count` columns from `first`."""
    shared = {"columns": count, "first": first, "out_columns": weight.codes.dims[0]}
    shared |= {"groups": -(-inner // weight.group), "scale_stride": weight.scale_stride}
    words = weight.words_per_load(inner)
    if not words:
        row_codes = weight.codes.dims[1] * 2
        params = LinearQ4Any(inner=inner, group=weight.group, row_codes=row_codes, **shared)
        return "linear_q4_any.wgsl", {}, params, rows * count
    tile, columns = GEMV if rows == 1 else GEMM
    if rows > 1:
        words = 1  # more would keep too many registers busy
    tiles = -(-count // columns)
    load = words * CODES
    loads = {"group_loads": weight.group // load, "row_loads": inner // load}
    tiled = LinearQ4(rows=rows, column_tiles=tiles, **loads, **shared)
    flags = {"words": words, "tile": tile, "columns": columns, "single": weight.group == load}
    flags["aligned"] = weight.scale_stride % 4 == 0 and first % 4 == 0
    return "linear_q4.wgsl", flags, tiled, tiles * -(-rows // tile)


@op("et_vk.linear_q4gsw.default", dtypes=FLOATS | BYTES)
def linear_q4gsw(
    cx: Context,
    self: Tensor,
    weights: Tensor,
    weight_scales: Tensor,
    group_size: int,
    bias: Tensor | None,
    *,
    out: Tensor,
) -> None:
    project_q4(cx, self, Packed(weights, weight_scales, group_size), bias, out)


@linear_q4gsw.reference
def _(self: Any, weights: Any, weight_scales: Any, group_size: int, bias: Any) -> Any:
    return numpy_linear_q4(self, numpy_q4(weights, weight_scales, group_size), bias).astype(self.dtype)


@op("et_vk.linear_qcs4w.default", dtypes=FLOATS | BYTES)
def linear_qcs4w(cx: Context, self: Tensor, weight: Tensor, scales: Tensor, *, out: Tensor) -> None:
    project_q4(cx, self, Packed(weight, scales, self.dims[-1] if self.dims else 0, high_first=True), None, out)


@linear_qcs4w.reference
def _(self: Any, weight: Any, scales: Any) -> Any:
    return numpy_linear_q4(self, numpy_q4(weight, scales, 2 * weight.shape[1], high_first=True), None).astype(
        self.dtype
    )


# The sums of the weights serve to multiply unsigned codes; here they are signed before.
@op("et_vk.linear_dq8ca_q4gsw.default", dtypes=FLOATS | BYTES | {DType.INT32})
def linear_dq8ca_q4gsw(
    cx: Context,
    input: Tensor,
    input_scales: Tensor,
    input_zp: Tensor,
    weights: Tensor,
    weight_sums: Unused,
    weight_scales: Tensor,
    group_size: int,
    bias: Tensor | None,
    *,
    out: Tensor,
) -> None:
    rounded = fake_quantise(cx, input, input_scales, input_zp)
    project_q4(cx, rounded, Packed(weights, weight_scales, group_size), bias, out)


@linear_dq8ca_q4gsw.reference
def _(
    input: Any, input_scales: Any, input_zp: Any, weights: Any, sums: object, scales: Any, group_size: int, bias: Any
) -> Any:
    rounded = numpy_fake_quantise(input, input_scales, input_zp)
    return numpy_linear_q4(rounded, numpy_q4(weights, scales, group_size), bias).astype(input.dtype)


# -- NumPy, for references ---------------------------------------------------------------------------------------------


def numpy_q4(codes: Any, scales: Any, group: int, high_first: bool = False) -> Any:
    """The weight (N, room) in float64; columns beyond the last group are zero."""
    low, high = codes & 15, codes.view(np.uint8) >> 4
    pairs = (high, low) if high_first else (low, high)
    values = np.stack(pairs, axis=-1).astype(np.float64).reshape(len(codes), -1) - 8  # (N, 2 * bytes)
    grouped = scales.reshape(-1, scales.shape[-1])[:, : len(codes)].astype(np.float64)  # (groups, N)
    factors = np.repeat(grouped.T, group, axis=1)[:, : values.shape[1]]
    padding = values.shape[1] - factors.shape[1]
    return values * np.pad(factors, ((0, 0), (0, padding)))


def numpy_linear_q4(x: Any, weight: Any, bias: Any) -> Any:
    """x times the first K columns of the weight, in float64."""
    total = np.einsum("...k,nk->...n", x.astype(np.float64), weight[:, : x.shape[-1]])
    return total if bias is None else total + bias[: len(weight)]

"""Linear layers with 4-bit weights, two codes to a byte, in groups or by channel; inputs may be rounded to int8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import DType, numel
from ...graph.names import LINEAR_Q4
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.registry import BYTES, FLOATS, Unused, op
from ...lowering.traits import CallSizes, OpTraits, sums_over
from ..matmul.epilogue import Epilogue, applied
from ..quantize.affine import numpy_fake_quantize, numpy_row_qparams
from ..weight_formats import format_named
from .linear_q4_kernels import project_q4
from .linear_q4_operands import LinearQ4Operands, PackedWeight
from .quantize_rows import RmsNorm

INT4, HIGH_FIRST = format_named("int4"), format_named("int4_high_first")


def _plain(cx: Context, x: Tensor, weight: PackedWeight, out: Tensor, **around: Any) -> None:
    if weight.codes.rank != 2:
        raise ShapeError(argument="weights", expected="a matrix of codes", got=list(weight.codes.dims), code="rank")
    out.dims = (*x.dims[:-1], weight.columns)
    project_q4(cx, LinearQ4Operands(x, (weight,), (out,), **around))


@op(
    "et_vk.linear_q4gsw.default",
    dtypes=FLOATS | BYTES,
    traits=OpTraits(work=sums_over("self"), dims=dim_rules.linear("self", "weights")),
)
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
    _plain(cx, self, PackedWeight(weights, weight_scales, group_size), out, bias=bias)


@linear_q4gsw.reference
def _(self: Any, weights: Any, weight_scales: Any, group_size: int, bias: Any) -> Any:
    return numpy_linear_q4(self, INT4.numpy_weight(weights, weight_scales, group_size), bias).astype(self.dtype)


@op(
    "et_vk.linear_qcs4w.default",
    dtypes=FLOATS | BYTES,
    traits=OpTraits(work=sums_over("self"), dims=dim_rules.linear("self", "weight")),
)
def linear_qcs4w(cx: Context, self: Tensor, weight: Tensor, scales: Tensor, *, out: Tensor) -> None:
    _plain(cx, self, PackedWeight(weight, scales, self.dims[-1] if self.dims else 0, HIGH_FIRST), out)


@linear_qcs4w.reference
def _(self: Any, weight: Any, scales: Any) -> Any:
    wide = HIGH_FIRST.numpy_weight(weight, scales, 2 * weight.shape[1])
    return numpy_linear_q4(self, wide, None).astype(self.dtype)


# The sums of the weights are for products of unsigned codes; here codes are signed.
@op(
    "et_vk.linear_dq8ca_q4gsw.default",
    dtypes=FLOATS | BYTES | {DType.INT32},
    traits=OpTraits(work=sums_over("input"), dims=dim_rules.linear("input", "weights")),
)
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
    weight = PackedWeight(weights, weight_scales, group_size)
    _plain(cx, input, weight, out, bias=bias, row_qparams=(input_scales, input_zp))


@linear_dq8ca_q4gsw.reference
def _(
    input: Any, input_scales: Any, input_zp: Any, weights: Any, sums: object, scales: Any, group_size: int, bias: Any
) -> Any:
    rounded = numpy_fake_quantize(input, input_scales, input_zp)
    return numpy_linear_q4(rounded, INT4.numpy_weight(weights, scales, group_size), bias).astype(input.dtype)


# What fusion.linears makes of several calls.
def _joined_flops(sizes: CallSizes) -> int:
    """Return the operations: every row of the input times every row of the joined weights."""
    return 2 * numel(sizes.dims("x")) * sum(weight[0] for weight in sizes.each("codes"))


@op(
    LINEAR_Q4,
    dtypes=FLOATS | BYTES | {DType.INT32},
    traits=OpTraits(work=_joined_flops, dims=dim_rules.columns("x", "columns", "like")),
)
def linear_q4(
    cx: Context,
    x: Tensor,
    x_scales: Tensor | None,
    x_zeros: Tensor | None,
    codes: list[Tensor],
    scales: list[Tensor],
    group: int,
    columns: list[int],
    bias: Tensor | None,
    format: str,
    norm: Tensor | None,
    norm_eps: float | None,
    offsets: Tensor | None,
    row_eps: float | None,
    epilogue: Epilogue,
    *,
    out: list[Tensor],
) -> None:
    """Write the columns of a weight to several outputs, or what a program makes of one or two weights' to one."""
    if len(codes) not in (1, 2) or len(codes) != len(scales):
        raise GraphError(
            f"weights: expected codes and scales of one or two, got {len(codes)} and {len(scales)}", code="wrong_length"
        )
    if len(codes) == 2 and (epilogue.program is None or bias is not None):
        raise GraphError("epilogue: expected a program of two products without bias, got none", code="epilogue")
    if len(out) > 1 and epilogue.program is not None:
        raise GraphError(f"epilogue: expected one output, got {len(out)}", code="epilogue")
    if len(out) != len(columns) or not 0 < len(out) <= 3 or sum(columns) != codes[0].dims[0]:
        raise ShapeError(
            f"codes {list(codes[0].dims)} cannot be split into {columns} columns for {len(out)} outputs",
            code="operand_mismatch",
        )
    for result, count in zip(out, columns, strict=True):
        result.dims = epilogue.shape((*x.dims[:-1], count))
    dims = (*x.dims[:-1], columns[0])
    weights = tuple(PackedWeight(c, s, group, format_named(format)) for c, s in zip(codes, scales, strict=True))
    row_qparams = None if x_scales is None or x_zeros is None else (x_scales, x_zeros)
    rms_norm = None if norm is None or norm_eps is None else RmsNorm(norm, norm_eps)
    project_q4(
        cx,
        LinearQ4Operands(
            x=x,
            weights=weights,
            outs=out,
            bias=bias,
            row_qparams=row_qparams,
            norm=rms_norm,
            offsets=offsets,
            row_eps=row_eps,
            epilogue=epilogue.compile(x.dtype, dims, (0, len(dims) - 1), len(codes)),
        ),
    )


@linear_q4.reference
def _(
    x: Any,
    x_scales: Any,
    x_zeros: Any,
    codes: list[Any],
    scales: list[Any],
    group: int,
    columns: list[int],
    bias: Any,
    format: str,
    norm: Any,
    norm_eps: float,
    offsets: Any,
    row_eps: float | None,
    epilogue: Epilogue,
) -> Any:
    rounded = x
    if norm is not None:
        wide = x.astype(np.float64)
        rounded = wide / np.sqrt(np.mean(wide**2, axis=-1, keepdims=True) + norm_eps) * norm
    if row_eps is not None:
        rounded = rounded.astype(x.dtype)
        x_scales, x_zeros = numpy_row_qparams(rounded, row_eps)
    if x_scales is not None:
        rounded = numpy_fake_quantize(rounded, x_scales, x_zeros)
    weights = [format_named(format).numpy_weight(c, s, group) for c, s in zip(codes, scales, strict=True)]
    if offsets is not None:
        added = [np.repeat(more, group, axis=1)[:, : x.shape[-1]] for more in numpy_offsets(offsets, weights)]
        weights = [weight[:, : x.shape[-1]] + more for weight, more in zip(weights, added, strict=True)]
    results = [numpy_linear_q4(rounded, weight, bias).astype(x.dtype) for weight in weights]
    return tuple(np.split(applied(results, epilogue), np.cumsum(columns)[:-1], axis=-1))


# -- NumPy, for references ---------------------------------------------------------------------------------------------


def numpy_offsets(offsets: Any, weights: Sequence[Any]) -> list[Any]:
    """Return the offsets of the groups of each weight, (N, groups) in float64."""
    columns = len(weights) * len(weights[0])
    codes, scales = np.split(offsets.view(np.int8).reshape(-1), [-4 * columns])
    factors = np.ascontiguousarray(scales).view(np.float32).astype(np.float64).reshape(len(weights), -1, 1)
    return list(codes.reshape(len(weights), -1, len(weights[0])).swapaxes(1, 2) * factors)


def numpy_linear_q4(x: Any, weight: Any, bias: Any) -> Any:
    """Return x times the first K columns of the weight, in float64."""
    total = np.einsum("...k,nk->...n", x.astype(np.float64), weight[:, : x.shape[-1]])
    return total if bias is None else total + bias[: len(weight)]

"""Normalization by statistics of the input (rms, layer, group), accumulated in f32, or by stored ones (batch)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...errors import ShapeError
from ...graph import numel
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor, load_type
from ...lowering.registry import FLOATS, Unused, op
from ...lowering.shapes import Dims
from ...lowering.traits import OpTraits
from ...wgsl import Uniforms, f32, u32
from ..reduce.reduce import lanes_per_any_row, with_subgroups, workgroup_for

RMS_NORM = "rms norm"  # the family of its variants, which also decides the order of sums in ops/q4/quantize_rows.py


class RmsNormParams(Uniforms):
    steps: u32  # loads per row
    columns: f32
    lanes: u32
    eps: f32


@op("et_vk.rms_norm.default", dtypes=FLOATS, traits=OpTraits(dims=dim_rules.like("x")))
def rms_norm(cx: Context, x: Tensor, weight: Tensor, eps: float, *, out: Tensor) -> None:
    if not x.dims or weight.dims != x.dims[-1:]:
        raise ShapeError(
            f"weight {list(weight.dims)} and the last dim of {list(x.dims)} differ", code="operand_mismatch"
        )
    out.dims = x.dims
    normalize_rows(cx, x, weight, eps, out)


@op("webpte.rms_norm_residual", dtypes=FLOATS, traits=OpTraits(dims=dim_rules.like("x")))
def rms_norm_residual(cx: Context, x: Tensor, weight: Tensor, eps: float, residual: Tensor, *, out: Tensor) -> None:
    """Add a residual to the normalized rows."""
    if not x.dims or weight.dims != x.dims[-1:] or residual.dims != x.dims:
        raise ShapeError(
            f"weight {list(weight.dims)} or residual {list(residual.dims)} does not fit {list(x.dims)}",
            code="operand_mismatch",
        )
    out.dims = x.dims
    normalize_rows(cx, x, weight, eps, out, residual)


def normalize_rows(
    cx: Context, x: Tensor, weight: Tensor, eps: float, out: Tensor, residual: Tensor | None = None
) -> None:
    """Divide each row of `x` by the root of its mean square, multiply it by the weight, and add the residual."""
    rows, columns = numel(x.dims[:-1]), x.dims[-1]
    lanes = lanes_per_any_row(cx, RMS_NORM, columns)
    wide = 4 if columns % 4 == 0 else 1
    cx.dispatch(
        "norm/rms_norm.wgsl",
        reads={"x": x, "weight": weight, "residual": residual},
        writes={"y": out},
        params=RmsNormParams(steps=columns // wide, columns=columns, lanes=lanes, eps=eps),
        threads=rows * lanes,
        workgroup=workgroup_for(lanes),
        type=load_type(x, wide),
        weight_type=load_type(weight, wide),
        lanes=lanes,
        subgroups=with_subgroups(cx, lanes),
        wide=wide,
        **({} if residual is None else {"residual_type": load_type(residual, wide)}),
    )


def normalized(x: Any, weight: Any, eps: float) -> Any:
    """Return rows divided by the root of their mean square, times the weight, in float64."""
    wide = x.astype(np.float64)
    return wide / np.sqrt(np.mean(wide**2, axis=-1, keepdims=True) + eps) * weight


@rms_norm.reference
def _(x: Any, weight: Any, eps: float) -> Any:
    return normalized(x, weight, eps).astype(x.dtype)


@rms_norm_residual.reference
def _(x: Any, weight: Any, eps: float, residual: Any) -> Any:
    return (normalized(x, weight, eps) + residual).astype(x.dtype)


class RowNormParams(Uniforms):
    steps: u32  # loads per row
    columns: f32
    lanes: u32
    eps: f32
    groups: u32  # rows that share one set of weights, each with its own part of it
    weights: u32  # loads of weights of one row
    inner: u32  # neighboring loads of a row that share one of weights


class NormAffine(NamedTuple):
    """Which weight and bias the elements of a row have."""

    weight: Tensor | None
    bias: Tensor | None
    groups: int  # rows that share one set of weights, each with its own part of it
    weights: int  # of one row
    inner: int  # neighbors in a row that share a weight

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(t for t in (self.weight, self.bias) if t is not None)

    def check(self) -> None:
        expected = self.groups * self.weights
        for tensor in self.tensors:
            if tensor.numel != expected:
                raise ShapeError(
                    f"weight or bias {list(tensor.dims)}: expected {expected} elements, got {tensor.numel}",
                    code="operand_mismatch",
                )


def row_norm(
    cx: Context, x: Tensor, columns: int, eps: float, affine: NormAffine, out: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Normalize each row of `columns` elements to mean 0 and variance 1, then scale and shift it."""
    affine.check()
    y, mean, rstd = out
    rows = mean.numel if columns else 0
    lanes = lanes_per_any_row(cx, "row norm", columns)
    wide = 4 if columns % 4 == 0 and (affine.inner == 1 or affine.inner % 4 == 0) else 1
    weights_wide = wide if affine.inner == 1 else 1
    params = RowNormParams(
        steps=columns // wide,
        columns=columns,
        lanes=lanes,
        eps=eps,
        groups=affine.groups,
        weights=affine.weights // weights_wide,
        inner=max(affine.inner // wide, 1),
    )
    cx.dispatch(
        "norm/row_norm.wgsl",
        reads={"x": x, "weight": affine.weight, "bias": affine.bias},
        writes={"y": y, "means": mean, "rstds": rstd},
        params=params,
        threads=rows * lanes,
        workgroup=workgroup_for(lanes),
        type=load_type(x, wide),
        weight_type=load_type(affine.tensors[0], weights_wide) if affine.tensors else "",
        statistics_type=mean.wgsl,
        scaled=affine.weight is not None,
        shifted=affine.bias is not None,
        lanes=lanes,
        subgroups=with_subgroups(cx, lanes),
        wide=wide,
    )


def _standardised(rows: Any, eps: float) -> tuple[Any, Any, Any]:
    """Return rows (R, columns) in float64 with mean 0 and variance 1, their means and reciprocal deviations."""
    mean = rows.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt(rows.var(axis=-1, keepdims=True) + eps)
    return (rows - mean) * rstd, mean, rstd


@op("aten.native_layer_norm.default", dtypes=FLOATS, traits=OpTraits(dims=dim_rules.like("input")))
def native_layer_norm(
    cx: Context,
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *,
    out: tuple[Tensor, Tensor, Tensor],
) -> None:
    normalized = tuple(normalized_shape)
    split = input.rank - len(normalized)
    if split < 0 or not normalized or input.dims[split:] != normalized:
        raise ShapeError(
            argument="normalized_shape",
            expected=f"the last dims of {list(input.dims)}",
            got=normalized_shape,
            code="operand_mismatch",
        )
    y, mean, rstd = out
    y.dims = input.dims
    mean.dims = rstd.dims = _row_dims(input.dims, split)
    columns = numel(normalized)
    row_norm(cx, input, columns, eps, NormAffine(weight, bias, groups=1, weights=columns, inner=1), (y, mean, rstd))


def _row_dims(dims: Dims, split: int) -> Dims:
    """Return the shape of one statistic per row: (..., 1, 1)."""
    return (*dims[:split], *(1 for _ in dims[split:]))


@native_layer_norm.reference
def _(input: Any, normalized_shape: list[int], weight: Any, bias: Any, eps: float) -> Any:
    split = input.ndim - len(normalized_shape)
    rows = input.astype(np.float64).reshape(*input.shape[:split], numel(tuple(normalized_shape)))
    y, mean, rstd = _standardised(rows, eps)
    y = y.reshape(input.shape)
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    stats = _row_dims(input.shape, split)
    return tuple(a.astype(input.dtype) for a in (y, mean.reshape(stats), rstd.reshape(stats)))


@op("aten.native_group_norm.default", dtypes=FLOATS, traits=OpTraits(dims=dim_rules.like("input")))
def native_group_norm(
    cx: Context,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
    *,
    out: tuple[Tensor, Tensor, Tensor],
) -> None:
    if input.rank < 2 or input.dims[:2] != (N, C) or numel(input.dims[2:]) != HxW:
        raise ShapeError(
            argument="input",
            expected=f"{N} samples with {C} channels of {HxW} elements",
            got=list(input.dims),
            code="operand_mismatch",
        )
    if group < 1 or C % group:
        raise ShapeError(f"{C} channels are not a multiple of {group} groups", code="group_count")
    y, mean, rstd = out
    y.dims = input.dims
    mean.dims = rstd.dims = (N, group)
    channels = C // group
    affine = NormAffine(weight, bias, groups=group, weights=channels, inner=HxW)
    row_norm(cx, input, channels * HxW, eps, affine, (y, mean, rstd))


@native_group_norm.reference
def _(input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    rows = input.astype(np.float64).reshape(N, group, C // group * HxW)
    y, mean, rstd = _standardised(rows, eps)
    y = y.reshape(N, C, HxW)
    y = y if weight is None else y * weight.reshape(C, 1)
    y = y if bias is None else y + bias.reshape(C, 1)
    return tuple(a.astype(input.dtype) for a in (y.reshape(input.shape), mean[..., 0], rstd[..., 0]))


class BatchNormParams(Uniforms):
    channels: u32
    inner: u32  # elements of one channel
    eps: f32


@op("aten._native_batch_norm_legit_no_training.default", dtypes=FLOATS, traits=OpTraits(dims=dim_rules.like("input")))
def batch_norm(
    cx: Context,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: Unused,
    eps: float,
    *,
    out: tuple[Tensor, Tensor, Tensor],
) -> None:
    y, save_mean, save_invstd = out
    if input.rank < 2:
        raise ShapeError(
            argument="input", expected="at least 2 dims, the second being channels", got=list(input.dims), code="rank"
        )
    channels = input.dims[1]
    affine = tuple(t for t in (weight, bias) if t is not None)
    for tensor in (running_mean, running_var, *affine):
        if tensor.dims != (channels,):
            raise ShapeError(
                f"statistics and weights: expected {channels} elements, the channels of "
                f"{list(input.dims)}, got {list(tensor.dims)}",
                code="operand_mismatch",
            )
    y.dims = input.dims
    save_mean.dims = save_invstd.dims = (0,)  # only training fills them
    cx.dispatch(
        "norm/batch_norm.wgsl",
        reads={"x": input, "means": running_mean, "variances": running_var, "weight": weight, "bias": bias},
        writes={"y": y},
        params=BatchNormParams(channels=channels, inner=numel(input.dims[2:]), eps=eps),
        threads=y.numel,
        type=input.wgsl,
        statistics_type=running_mean.wgsl,
        weight_type=affine[0].wgsl if affine else input.wgsl,
        scaled=weight is not None,
        shifted=bias is not None,
    )


@batch_norm.reference
def _(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    def column(values: Any) -> Any:
        return values.astype(np.float64).reshape(-1, *(1 for _ in input.shape[2:]))

    y = (input - column(running_mean)) / np.sqrt(column(running_var) + eps)
    y = y if weight is None else y * column(weight)
    y = y if bias is None else y + column(bias)
    empty = np.empty(0, input.dtype)
    return y.astype(input.dtype), empty, empty

"""Normalisation by statistics of the input itself (rms, layer, group), accumulated in f32, one invocation per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..graph import numel
from ..wgsl import Uniforms, f32, u32
from .context import Context, Tensor
from .registry import FLOATS, op
from .shapes import Dims


class RmsNorm(Uniforms):
    columns: u32
    eps: f32


@op("et_vk.rms_norm.default", dtypes=FLOATS)
def rms_norm(cx: Context, x: Tensor, weight: Tensor, eps: float, *, out: Tensor) -> None:
    if not x.dims or weight.dims != x.dims[-1:]:
        raise ShapeError(f"weight {list(weight.dims)} does not fit the last dim of {list(x.dims)}")
    out.dims = x.dims
    cx.dispatch(
        "rms_norm.wgsl",
        reads=(x, weight),
        writes=(out,),
        params=RmsNorm(columns=x.dims[-1], eps=eps),
        threads=numel(x.dims[:-1]),
        workgroup=8,
        type=x.wgsl,
        weight_type=weight.wgsl,
    )


@rms_norm.reference
def _(x: Any, weight: Any, eps: float) -> Any:
    wide = x.astype(np.float64)
    return (wide / np.sqrt(np.mean(wide**2, axis=-1, keepdims=True) + eps) * weight).astype(x.dtype)


class RowNorm(Uniforms):
    columns: u32
    eps: f32
    groups: u32  # rows that share one set of weights, each with its own part of it
    weights: u32  # weights of one row
    inner: u32  # neighbours in a row that share a weight


def row_norm(
    cx: Context,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    params: RowNorm,
    out: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Bring each row of `params.columns` elements to mean 0 and variance 1, then scale and shift it."""
    y, mean, rstd = out
    affine = tuple(t for t in (weight, bias) if t is not None)
    expected = params.groups * params.weights
    for tensor in affine:
        if tensor.numel != expected:
            raise ShapeError(f"weight or bias {list(tensor.dims)} has {tensor.numel} elements; expected {expected}")
    cx.dispatch(
        "row_norm.wgsl",
        reads=(x, *affine),
        writes=(y, mean, rstd),
        params=params,
        threads=mean.numel if params.columns else 0,
        workgroup=8,
        type=x.wgsl,
        weight_type=affine[0].wgsl if affine else x.wgsl,
        statistics_type=mean.wgsl,
        scaled=weight is not None,
        shifted=bias is not None,
    )


def _standardised(rows: Any, eps: float) -> tuple[Any, Any, Any]:
    """Rows (R, columns) in float64 with mean 0 and variance 1, and their means and reciprocal deviations."""
    mean = rows.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt(rows.var(axis=-1, keepdims=True) + eps)
    return (rows - mean) * rstd, mean, rstd


@op("aten.native_layer_norm.default", dtypes=FLOATS)
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
    normalised = tuple(normalized_shape)
    split = input.rank - len(normalised)
    if split < 0 or not normalised or input.dims[split:] != normalised:
        raise ShapeError(f"{list(input.dims)} does not end with the normalised shape {normalized_shape}")
    y, mean, rstd = out
    y.dims = input.dims
    mean.dims = rstd.dims = _row_dims(input.dims, split)
    columns = numel(normalised)
    params = RowNorm(columns=columns, eps=eps, groups=1, weights=columns, inner=1)
    row_norm(cx, input, weight, bias, params, (y, mean, rstd))


def _row_dims(dims: Dims, split: int) -> Dims:
    """The shape of one statistic per row: (..., 1, 1)."""
    return (*dims[:split], *(1 for _ in dims[split:]))


@native_layer_norm.reference
def _(input: Any, normalized_shape: list[int], weight: Any, bias: Any, eps: float) -> Any:
    split = input.ndim - len(normalized_shape)
    rows = input.astype(np.float64).reshape(*input.shape[:split], -1)
    y, mean, rstd = _standardised(rows, eps)
    y = y.reshape(input.shape)
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    stats = _row_dims(input.shape, split)
    return tuple(a.astype(input.dtype) for a in (y, mean.reshape(stats), rstd.reshape(stats)))


@op("aten.native_group_norm.default", dtypes=FLOATS)
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
        raise ShapeError(f"{list(input.dims)} is not a batch of {N} with {C} channels of {HxW} elements")
    if group < 1 or C % group:
        raise ShapeError(f"{C} channels cannot be split into {group} groups")
    y, mean, rstd = out
    y.dims = input.dims
    mean.dims = rstd.dims = (N, group)
    channels = C // group
    params = RowNorm(columns=channels * HxW, eps=eps, groups=group, weights=channels, inner=HxW)
    row_norm(cx, input, weight, bias, params, (y, mean, rstd))


@native_group_norm.reference
def _(input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    rows = input.astype(np.float64).reshape(N, group, -1)
    y, mean, rstd = _standardised(rows, eps)
    y = y.reshape(N, C, HxW)
    y = y if weight is None else y * weight.reshape(C, 1)
    y = y if bias is None else y + bias.reshape(C, 1)
    return tuple(a.astype(input.dtype) for a in (y.reshape(input.shape), mean[..., 0], rstd[..., 0]))

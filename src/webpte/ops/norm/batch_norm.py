"""Batch normalisation with stored statistics: one scale and one shift per channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import numel
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.registry import FLOATS, Unused, op
from ...lowering.traits import OpTraits
from ...wgsl import Uniforms, f32, u32


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
        reads=(input, running_mean, running_var, *affine),
        writes=(y,),
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

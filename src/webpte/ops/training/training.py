"""Training on the device: the loss, gradients through 4-bit layers, the optimizer's step, and new codes after it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import DType, numel
from ...lowering.context import Context, Tensor
from ...lowering.registry import BYTES, FLOATS, op
from ...lowering.traits import CallSizes, OpTraits, sums_over
from ...wgsl import Uniforms, f32, u32
from ..layout.strided import gather
from ..matmul.product import ProductShape, contiguous, product
from ..q4.linear_q4_operands import PackedWeight
from ..reduce.reduce import reduce
from ..weight_formats import format_named


class FusedCeParams(Uniforms):
    columns: u32
    count: f32  # rows that count


@op("et_vk.fused_ce.default", dtypes=FLOATS | {DType.INT32})
def fused_ce(cx: Context, logits: Tensor, labels: Tensor, n_valid: float, *, out: tuple[Tensor, Tensor]) -> None:
    if logits.rank != 2 or labels.dims != logits.dims[:1] or labels.dtype is not DType.INT32:
        raise ShapeError(f"labels {labels!r} and logits {logits!r} have incompatible shapes", code="operand_mismatch")
    loss, d_logits = out
    d_logits.dims = logits.dims
    rows, columns = logits.dims
    losses = cx.scratch(DType.FLOAT32, (rows,))
    cx.dispatch(
        "training/fused_ce.wgsl",
        reads={"logits": logits, "labels": labels},
        writes={"losses": losses, "d_logits": d_logits},
        params=FusedCeParams(columns=columns, count=n_valid),
        threads=rows,
        workgroup=8,
        type=logits.wgsl,
    )
    reduce(cx, "sum", losses, None, False, loss)


@fused_ce.reference
def _(logits: Any, labels: Any, n_valid: float) -> Any:
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    powers = np.exp(shifted)
    share = powers / powers.sum(-1, keepdims=True)
    counted = labels >= 0
    chosen = (np.arange(len(labels)), np.where(counted, labels, 0))
    losses = (np.log(powers.sum(-1)) - shifted[chosen]) / n_valid
    share[chosen] -= 1
    d_logits = np.where(counted[:, None], share / n_valid, 0)
    return losses[counted].sum().astype(logits.dtype), d_logits.astype(logits.dtype)


class LinearQ4BackwardParams(Uniforms):
    rows: u32  # of the part of the weight that is bound
    first: u32  # where that part begins
    inner: u32
    columns: u32
    row_runs: u32  # invocations per row of the result
    group: u32
    scale_stride: u32


@op("et_vk.linear_q4gsw_backward.default", dtypes=FLOATS | BYTES, traits=OpTraits(work=sums_over("d_out")))
def linear_q4gsw_backward(
    cx: Context, d_out: Tensor, weights: Tensor, weight_scales: Tensor, group_size: int, *, out: Tensor
) -> None:
    weight = PackedWeight(weights, weight_scales, group_size)
    columns = weights.dims[-1] * 2
    weight.check(columns)
    if d_out.dims[-1:] != weights.dims[:1]:
        raise ShapeError(
            f"gradient {list(d_out.dims)} and codes {list(weights.dims)} have incompatible shapes",
            code="operand_mismatch",
        )
    out.dims = (*d_out.dims[:-1], columns)  # (..., N) x (N, K) -> (..., K)
    words = weight.words_per_load(columns) > 0
    row_runs = columns // weight.format.word_codes if words else columns
    for first, rows, part in cx.parts(weights, columns // 2, weights.dims[0]):
        cx.dispatch(
            "training/linear_q4_backward.wgsl",
            reads={"d_out": d_out, "w": part, "scales": weight_scales},
            writes={"d_x": out},
            params=LinearQ4BackwardParams(
                rows=rows,
                first=first,
                inner=weights.dims[0],
                columns=columns,
                row_runs=row_runs,
                group=group_size,
                scale_stride=weight.scale_stride,
            ),
            threads=numel(d_out.dims[:-1]) * row_runs,
            type=d_out.wgsl,
            scale_type=weight_scales.wgsl,
            words=words,
            more=first > 0,  # adds to what earlier parts gave
        )


@linear_q4gsw_backward.reference
def _(d_out: Any, weights: Any, weight_scales: Any, group_size: int) -> Any:
    weight = format_named("int4").numpy_weight(weights, weight_scales, group_size)
    return np.einsum("...n,nk->...k", d_out.astype(np.float64), weight).astype(d_out.dtype)


def _outer_flops(sizes: CallSizes) -> int:
    return 2 * numel(sizes.dims("d_out")) * sizes.dims("x")[-1]


@op("et_vk.linear_dW.default", dtypes=FLOATS, traits=OpTraits(work=_outer_flops))
def linear_dw(cx: Context, d_out: Tensor, x: Tensor, *, out: Tensor) -> None:
    if not d_out.dims or d_out.dims[:-1] != x.dims[:-1] or d_out.dtype is not x.dtype:
        raise ShapeError(f"gradient {d_out!r} and input {x!r} have incompatible shapes", code="operand_mismatch")
    rows, columns, inner = d_out.dims[-1], x.dims[-1], numel(x.dims[:-1])
    out.dims = (rows, columns)  # (..., N), (..., K) -> (N, K)
    turned = cx.scratch(d_out.dtype, (rows, inner))
    gather(cx, d_out, turned, (1, rows))
    shape = ProductShape(1, rows, inner, columns)
    product(cx, turned, x, out, shape, contiguous(shape))


@linear_dw.reference
def _(d_out: Any, x: Any) -> Any:
    wide = (a.reshape(-1, a.shape[-1]).astype(np.float64) for a in (d_out, x))
    return np.einsum("mn,mk->nk", *wide).astype(d_out.dtype)


class AdamwParams(Uniforms):
    lr: f32
    decay: f32
    beta1: f32
    rest1: f32
    beta2: f32
    rest2: f32
    eps: f32
    correction1: f32
    correction2: f32


# The exporter leaves the namespace of ops that write their arguments away.
@op("et_vk.adamw_step.default", "adamw_step.default", dtypes=FLOATS, traits=OpTraits(mutates=("param", "m", "v")))
def adamw_step(
    cx: Context,
    param: Tensor,
    m: Tensor,
    v: Tensor,
    grad: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    bias_correction1: float,
    bias_correction2: float,
    *,
    out: tuple[Tensor, Tensor, Tensor],
) -> None:
    state = {"param": param, "mean": m, "square": v}
    if any(t.dims != param.dims or t.dtype is not param.dtype for t in (*state.values(), grad)):
        raise ShapeError(
            f"parameter {param!r}, moments {m!r} and {v!r} and gradient {grad!r} differ in shape or dtype",
            code="operand_mismatch",
        )
    for result in out:
        result.dims = param.dims
    returned = all(result.id != tensor.id for result, tensor in zip(out, state.values(), strict=True))
    results = {f"{name}_out": result for name, result in zip(state, out, strict=True)}
    moments = {"beta1": beta1, "rest1": 1 - beta1, "beta2": beta2, "rest2": 1 - beta2}
    corrections = {"correction1": bias_correction1, "correction2": bias_correction2}
    cx.dispatch(
        "training/adamw.wgsl",
        reads={"grad": grad},
        writes={**state, **(results if returned else {})},
        params=AdamwParams(lr=lr, decay=1 - lr * weight_decay, eps=eps, **moments, **corrections),
        threads=param.numel,
        type=param.wgsl,
        returned=returned,
    )


@adamw_step.reference
def _(
    param: Any,
    m: Any,
    v: Any,
    grad: Any,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    bias_correction1: float,
    bias_correction2: float,
) -> Any:
    wide, mean, square, g = (a.astype(np.float64) for a in (param, m, v, grad))
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g**2
    step = mean / bias_correction1 / (np.sqrt(square / bias_correction2) + eps)
    results = ((1 - lr * weight_decay) * wide - lr * step, mean, square)
    return tuple(result.astype(param.dtype) for result in results)


class RequantQ4Params(Uniforms):
    columns: u32
    row_bytes: u32
    bytes: u32
    group: u32
    scale_stride: u32


@op("et_vk.q4gsw_requant.default", dtypes=FLOATS | BYTES)
def q4gsw_requant(cx: Context, latent: Tensor, scales: Tensor, group_size: int, *, out: Tensor) -> None:
    if latent.rank != 2 or scales.rank != 2 or group_size < 1:
        raise GraphError(
            f"weights {latent!r} and scales {scales!r} in groups of {group_size}: expected matrices",
            code="operand_mismatch",
        )
    rows, columns = latent.dims
    if scales.dims[0] * group_size < columns or scales.dims[1] < rows:
        raise ShapeError(
            f"scales {list(scales.dims)} in groups of {group_size} do not fit {list(latent.dims)}",
            code="operand_mismatch",
        )
    row_bytes = -(-columns // 2)
    out.dims = (rows, row_bytes)
    total = rows * row_bytes
    cx.dispatch(
        "training/requant_q4.wgsl",
        reads={"latent": latent, "scales": scales},
        writes={"codes": out},
        params=RequantQ4Params(
            columns=columns, row_bytes=row_bytes, bytes=total, group=group_size, scale_stride=scales.dims[1]
        ),
        threads=-(-total // 4),
        type=latent.wgsl,
        scale_type=scales.wgsl,
    )


@q4gsw_requant.reference
def _(latent: Any, scales: Any, group_size: int) -> Any:
    rows, columns = latent.shape
    factors = np.repeat(scales.T, group_size, axis=1)[:rows, :columns].astype(np.float32)
    quotients = latent.astype(np.float32) / np.where(factors == 0, np.float32(1), factors)
    codes = (np.clip(np.round(np.where(factors == 0, 0, quotients)), -8, 7) + 8).astype(np.uint8)
    low, high = codes[:, ::2], codes[:, 1::2]
    packed = low.copy()
    packed[:, : high.shape[1]] |= high << 4
    return packed

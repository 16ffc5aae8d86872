"""Attention over caches of int8 codes with a scale and a zero point per token and head."""

from __future__ import annotations

from typing import Any

from ...errors import GraphError
from ...graph import DType
from ...lowering.context import Context, LiveScalar, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.traits import OpTraits
from ..quantize.quantize import dequantize_tokens, numpy_dequantize
from .attention import IN_CACHE, cached_flops, cached_reference, guard_position, visible_keys
from .attention_operands import AttentionOperands
from .attention_rows import attend


@op(
    "custom_quantized_sdpa.default",
    kernels=("llama::custom_quantized_sdpa.out",),
    dtypes=FLOATS | {DType.INT8},
    traits=OpTraits(work=cached_flops, memory_traffic={"key": IN_CACHE, "value": IN_CACHE}),
)
def custom_quantized_sdpa(
    cx: Context,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start_pos: LiveScalar,
    attn_mask: Tensor | None,
    drpout_p: float,
    is_causal: bool,
    scale: float | None,
    q_zero_points: Tensor | None,
    q_scales: Tensor | None,
    k_zero_points: Tensor | None,
    k_scales: Tensor | None,
    v_zero_points: Tensor | None,
    v_scales: Tensor | None,
    is_seq_at_dim_2: bool,
    *,
    out: Tensor,
) -> None:
    """Compute attention over caches of codes (B, C, H, D), which are converted to floats before."""
    if is_seq_at_dim_2:
        raise GraphError("caches with heads before positions are not supported", code="unsupported_argument")
    if attn_mask is None:
        guard_position(cx, start_pos, query, key)
    visible = visible_keys(query, key, start_pos, attn_mask, drpout_p, is_causal)
    codes = ((query, q_scales, q_zero_points), (key, k_scales, k_zero_points), (value, v_scales, v_zero_points))
    q, k, v = (_numbers(cx, *coded) for coded in codes)
    attend(cx, AttentionOperands(q, k, v), visible, attn_mask, scale, out)


def _numbers(cx: Context, codes: Tensor, scales: Tensor | None, zeros: Tensor | None) -> Tensor:
    """Return codes as floats."""
    if codes.dtype is not DType.INT8:
        return codes
    if scales is None or zeros is None:
        raise GraphError(f"value {codes.id} {codes.spec}: expected scales and zero points, got none", code="dtype")
    numbers = cx.scratch(DType.FLOAT32, codes.dims)
    dequantize_tokens(cx, codes, scales, zeros, numbers)
    return numbers


@custom_quantized_sdpa.reference
def _(
    query: Any,
    key: Any,
    value: Any,
    start_pos: int,
    attn_mask: Any,
    drpout_p: object,
    is_causal: bool,
    scale: float | None,
    q_zero_points: Any,
    q_scales: Any,
    k_zero_points: Any,
    k_scales: Any,
    v_zero_points: Any,
    v_scales: Any,
    is_seq_at_dim_2: bool,
) -> Any:
    coded = ((query, q_scales, q_zero_points), (key, k_scales, k_zero_points), (value, v_scales, v_zero_points))
    q, k, v = (codes if codes.dtype.kind == "f" else numpy_dequantize(codes, s, z) for codes, s, z in coded)
    return cached_reference(q, (k, v), start_pos, attn_mask, is_causal, scale)

"""Attention without a cache, heads first."""

from __future__ import annotations

from typing import Any

from ...errors import ShapeError
from ...graph import DType, numel
from ...lowering.context import Context, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.traits import CallSizes, OpTraits
from .attention import attention_reference
from .attention_operands import AttentionOperands, VisibleKeys
from .attention_rows import attend


def _flops(sizes: CallSizes) -> int:
    return 4 * numel(sizes.dims("q")) * sizes.dims("k")[2]


@op("et_vk.sdpa.default", dtypes=FLOATS | {DType.BOOL}, traits=OpTraits(work=_flops))
def sdpa(
    cx: Context, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, scale: float | None, *, out: Tensor
) -> None:
    """softmax(q kᵀ * scale + mask) v with q (B, Hq, S, D), k (B, Hk, C, D), v (B, Hk, C, Dv); Hk divides Hq.

    Exporters have no pattern for it: it is in a file only where a model calls torch.ops.et_vk.sdpa. A bool mask means
    what it means to F.scaled_dot_product_attention: True is seen.
    """
    if {q.rank, k.rank, v.rank} != {4}:
        raise ShapeError(
            f"query, key, value: expected 4 dims each, got {list(q.dims)}, {list(k.dims)} and {list(v.dims)}",
            code="rank",
        )
    operands = AttentionOperands(q, k, v, heads_first=True)
    attend(cx, operands, VisibleKeys(operands.capacity), attn_mask, scale, out)


@sdpa.reference
def _(q: Any, k: Any, v: Any, attn_mask: Any, scale: float | None) -> Any:
    return attention_reference(q, k, v, attn_mask, scale)

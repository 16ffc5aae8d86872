"""Qwen3.5 with experts beside a gated feed-forward."""

from typing import Any

from . import qwen3_5

MODEL_TYPE = "qwen3_5_moe_text"
_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 96,
}
_DENSE: dict[str, Any] = qwen3_5.VARIANTS
VARIANTS = {name: {**_DENSE[name], **_EXPERTS} for name in ("shared keys", "biases, tied")}

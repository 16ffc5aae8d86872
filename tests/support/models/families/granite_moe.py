"""Granite with experts."""

from .granite4 import MULTIPLIERS

MODEL_TYPE = "granitemoe"
VARIANTS = {
    "experts": MULTIPLIERS | {"num_local_experts": 5, "num_experts_per_tok": 2, "tie_word_embeddings": True},
    "biases": MULTIPLIERS | {"num_local_experts": 4, "num_experts_per_tok": 3, "attention_bias": True},
}

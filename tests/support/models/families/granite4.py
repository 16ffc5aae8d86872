"""Granite 4 without Mamba layers: with RoPE and without, and with experts."""

MODEL_TYPE = "granitemoehybrid"
MULTIPLIERS = {
    "embedding_multiplier": 2.0,
    "attention_multiplier": 0.125,
    "residual_multiplier": 0.5,
    "logits_scaling": 4.0,
}
_SIZES = MULTIPLIERS | {"shared_intermediate_size": 96, "layer_types": ["full_attention"] * 2}
_DENSE = _SIZES | {"num_local_experts": 0, "num_experts_per_tok": 0}
VARIANTS = {
    "RoPE": _DENSE | {"position_embedding_type": "rope", "tie_word_embeddings": True},
    "no positions": _DENSE | {"attention_bias": True},
    "experts": _SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32},
}

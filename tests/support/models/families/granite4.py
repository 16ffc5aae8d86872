"""Granite 4 without experts: with RoPE and without."""

MODEL_TYPE = "granitemoehybrid"
_DENSE = {
    "num_local_experts": 0,
    "num_experts_per_tok": 0,
    "shared_intermediate_size": 96,
    "layer_types": ["full_attention"] * 2,
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.4,
    "residual_multiplier": 0.6,
    "logits_scaling": 2.5,
}
VARIANTS = {
    "RoPE": _DENSE | {"position_embedding_type": "rope", "tie_word_embeddings": True},
    "no positions": _DENSE | {"attention_bias": True},
}

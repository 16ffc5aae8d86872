"""Granite: each multiplier of its own."""

MODEL_TYPE = "granite"
_FOUR = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.4,
    "residual_multiplier": 0.6,
    "logits_scaling": 2.5,
}
VARIANTS = {
    "tied": _FOUR | {"tie_word_embeddings": True},
    "biases": _FOUR | {"attention_bias": True, "mlp_bias": True},
}

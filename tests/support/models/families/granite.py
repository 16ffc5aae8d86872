"""Granite: each multiplier of its own. Powers of two keep the weights of `exact_weights.py` exact."""

MODEL_TYPE = "granite"
_FOUR = {
    "embedding_multiplier": 2.0,
    "attention_multiplier": 0.125,
    "residual_multiplier": 0.5,
    "logits_scaling": 4.0,
}
VARIANTS = {
    "tied": _FOUR | {"tie_word_embeddings": True},
    "biases": _FOUR | {"attention_bias": True, "mlp_bias": True},
}

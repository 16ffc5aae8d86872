"""Arcee: a feed-forward without a gate."""

MODEL_TYPE = "arcee"
VARIANTS = {
    "plain": {"head_dim": 24},
    "biases": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
}

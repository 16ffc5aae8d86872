"""Qwen3: four heads of 24 in a width of 64."""

MODEL_TYPE = "qwen3"
VARIANTS = {
    "heads of another size": {"head_dim": 24, "tie_word_embeddings": True},
    "biases": {"head_dim": 16, "attention_bias": True},
}

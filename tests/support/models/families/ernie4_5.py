"""ERNIE 4.5: neighbors rotate, with biases or without."""

MODEL_TYPE = "ernie4_5"
VARIANTS = {
    "tied": {"head_dim": 24, "rope_theta": 300.0},
    "biases": {"head_dim": 16, "use_bias": True, "tie_word_embeddings": False},
}

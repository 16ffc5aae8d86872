"""Gemma: heads of a size of their own, and biases."""

MODEL_TYPE = "gemma"
VARIANTS = {
    "heads of another size": {"head_dim": 24, "hidden_act": "gelu_pytorch_tanh"},
    "untied, biases": {"head_dim": 16, "attention_bias": True, "tie_word_embeddings": False},
}

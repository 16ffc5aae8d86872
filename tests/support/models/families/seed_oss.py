"""Seed-OSS: biases of queries, keys and values, or of all linears."""

MODEL_TYPE = "seed_oss"
VARIANTS = {
    "biases": {"head_dim": 24},
    "more biases": {"head_dim": 16, "attention_out_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
}

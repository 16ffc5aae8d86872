"""OLMo 2: norms after each part, and of all queries and keys."""

MODEL_TYPE = "olmo2"
VARIANTS = {
    "grouped heads": {"rope_theta": 300.0},
    "as many keys": {"num_key_value_heads": 4, "attention_bias": True, "tie_word_embeddings": True},
}

"""Llama: RoPE as it is, and scaled in the ways that transformers knows."""

MODEL_TYPE = "llama"
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.5,
    "high_freq_factor": 3.5,
    "original_max_position_embeddings": 24,  # of the pairs some are slow, some fast, some between
}
_YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32}
VARIANTS = {
    "scaled RoPE": {"rope_parameters": _LLAMA3},
    "plain": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "tie_word_embeddings": True},
    "linear RoPE": {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}},
    "YaRN": {"rope_parameters": _YARN},
    "YaRN, its own edges": {"rope_parameters": _YARN | {"beta_fast": 4.0, "beta_slow": 2.0, "truncate": False}},
    "YaRN, its own loudness": {"rope_parameters": _YARN | {"mscale": 0.7, "mscale_all_dim": 0.4}},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "heads of another size": {"head_dim": 24, "num_key_value_heads": 1},
}

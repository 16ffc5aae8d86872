"""Apertus: an activation with learned numbers."""

MODEL_TYPE = "apertus"
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 300.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
VARIANTS = {
    "scaled RoPE": {"rope_parameters": _LLAMA3},
    "biases": {"attention_bias": True, "tie_word_embeddings": True},
}

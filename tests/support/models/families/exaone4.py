"""EXAONE 4: equal layers, and windows with full layers that do not rotate."""

MODEL_TYPE = "exaone4"
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 300.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_FULL = {"sliding_window": None, "layer_types": ["full_attention"] * 2}
VARIANTS = {
    "no window": {**_FULL, "head_dim": 24, "tie_word_embeddings": True},
    "windows": {"sliding_window": 4, "num_hidden_layers": 4, "sliding_window_pattern": 4},
    "scaled RoPE": {**_FULL, "rope_parameters": _LLAMA3},
}

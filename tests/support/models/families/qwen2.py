"""Qwen2.5."""

MODEL_TYPE = "qwen2"
VARIANTS = {
    "tied": {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
    "a window": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    "untied": {"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 1},
    "a wide window": {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1},
}

"""OLMo 3: three layers with a window to one without, whose RoPE alone is scaled."""

MODEL_TYPE = "olmo3"
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 300.0,
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "attention_factor": 1.2079441541679836,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
_ROPES = {"full_attention": _YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}
VARIANTS = {
    "windows, scaled RoPE": {"num_hidden_layers": 4, "sliding_window": 4, "rope_parameters": _ROPES},
    "every second layer": {
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"],
        "attention_bias": True,
        "tie_word_embeddings": True,
    },
}

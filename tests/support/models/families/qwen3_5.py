"""Qwen3.5: three layers of linear attention and one of gated attention, a quarter of whose heads turns."""

MODEL_TYPE = "qwen3_5_text"
MAX_DIVERGENCE = 0.15  # a recurrence repeats an error
_SIZES = {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
}
VARIANTS = {
    "shared keys": _SIZES,
    "keys of their own": _SIZES
    | {
        "linear_num_key_heads": 4,
        "linear_conv_kernel_dim": 3,
        "layer_types": ["full_attention", "linear_attention", "full_attention", "linear_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5},
    },
    "full attention only": _SIZES | {"layer_types": ["full_attention"] * 4},
    "tied": _SIZES | {"tie_word_embeddings": True, "full_attention_interval": 2},
    "biases, tied": _SIZES | {"attention_bias": True, "tie_word_embeddings": True, "full_attention_interval": 2},
}

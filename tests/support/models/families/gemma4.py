"""Gemma 4: the last layers have the keys and values of earlier ones, and every layer adds an embedding of its own."""

MODEL_TYPE = "gemma4_text"
_KINDS = ["sliding_attention", "full_attention"]
_SMALL = {
    "head_dim": 16,
    "global_head_dim": 32,
    "num_key_value_heads": 1,
    "sliding_window": 4,
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": 96,
}
_SHARED = {**_SMALL, "num_hidden_layers": 4, "layer_types": _KINDS * 2, "num_kv_shared_layers": 2}
VARIANTS = {
    "shared keys, wide feed-forwards": {**_SHARED, "use_double_wide_mlp": True, "final_logit_softcapping": 30.0},
    "keys of their own": {
        **_SMALL,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_key_value_heads": 2,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": 500.0,
                "partial_rotary_factor": 0.5,
                "factor": 2.0,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
    },
    "two layers share the keys of one": {
        **_SHARED,
        "num_hidden_layers": 5,
        "layer_types": [*_KINDS, "full_attention", "sliding_attention", "full_attention"],
        "num_kv_shared_layers": 3,
        "hidden_size_per_layer_input": 0,
        "sliding_window": 64,
    },
}

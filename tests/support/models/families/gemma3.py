"""Gemma 3: a ring that goes round within the few tokens there are, and a layer that sees everything."""

MODEL_TYPE = "gemma3_text"
_SMALL = {"head_dim": 24, "sliding_window": 4, "query_pre_attn_scalar": 11}
_LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0}
VARIANTS = {
    "both kinds of layers": {**_SMALL, "layer_types": ["sliding_attention", "full_attention"]},
    "every sixth": {**_SMALL, "num_hidden_layers": 7, "final_logit_softcapping": 2.0},
    "as GGUF can say it": {**_SMALL, "num_hidden_layers": 7, "query_pre_attn_scalar": 24},
    "scaled": {
        **_SMALL,
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": _LINEAR,
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
    },
    "a wide window": {"head_dim": 16, "sliding_window": 64, "attention_bias": True},
}

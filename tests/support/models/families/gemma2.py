"""Gemma 2: a ring that goes round within the few tokens there are, caps that bite, a scale of its own."""

MODEL_TYPE = "gemma2"
_SMALL = {"head_dim": 24, "sliding_window": 4, "query_pre_attn_scalar": 6}
VARIANTS = {
    "capped": {**_SMALL, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0},
    "not capped": {**_SMALL, "attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_bias": True},
    "capped, a wide window": {"head_dim": 16, "sliding_window": 64, "attn_logit_softcapping": 3.0},
    "as GGUF can say it": {**_SMALL, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 3.0},
    "untied, windows in other layers": {
        **_SMALL,
        "tie_word_embeddings": False,
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    },
}

"""GLM-4: half of each head rotates, or three quarters."""

MODEL_TYPE = "glm"
_WIDER = {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.75}
VARIANTS = {
    "half of a head": {"head_dim": 24},
    "more of a head": {"head_dim": 16, "rope_parameters": _WIDER, "attention_bias": False, "tie_word_embeddings": True},
}

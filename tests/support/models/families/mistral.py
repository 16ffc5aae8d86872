"""Mistral: a ring that goes round within the few tokens there are, and windows wider than the context."""

MODEL_TYPE = "mistral"
VARIANTS = {
    "a window": {"sliding_window": 4},
    "no window": {"sliding_window": None, "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    "a wide window": {"sliding_window": 64, "head_dim": 24},
}

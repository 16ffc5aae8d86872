"""Phi-4-mini's partial LongRoPE; heads are 16 wide, of which 12 turn."""

MODEL_TYPE = "phi3"
_LONG = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.25, 1.4, 1.7, 2.0],
    "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 9.0],
}
VARIANTS = {
    # transformers takes the short factors up to `original`, and so does the export, whose context is 40.
    "partial LongRoPE, short": {"rope_parameters": _LONG, "original_max_position_embeddings": 48},
    # and the long ones above it.
    "partial LongRoPE, long": {"rope_parameters": _LONG, "original_max_position_embeddings": 16},
    "plain": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}},
    "partial": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
}

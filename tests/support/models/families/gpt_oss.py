"""gpt-oss: a window and sinks, experts with biases, YaRN that is not rounded to whole pairs."""

MODEL_TYPE = "gpt_oss"
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 4.0,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 32,
}
_SIZES = {
    "head_dim": 24,
    "intermediate_size": 64,
    "sliding_window": 4,
    "num_local_experts": 6,
    "num_experts_per_tok": 4,
    "rope_parameters": _YARN,
}
VARIANTS = {
    "every second layer": _SIZES,
    "windows last, tied": {
        **_SIZES,
        "layer_types": ["full_attention", "sliding_attention"],
        "tie_word_embeddings": True,
    },
    "no biases of attention, a wide window": {
        **_SIZES,
        "attention_bias": False,
        "sliding_window": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    },
}

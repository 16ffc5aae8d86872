"""Ministral 3: YaRN, and a factor of queries that is 1 in the original context."""

MODEL_TYPE = "ministral3"
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 300.0,
    "factor": 16.0,
    "original_max_position_embeddings": 64,
    "max_position_embeddings": 1024,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
VARIANTS = {
    "YaRN": {"head_dim": 24, "rope_parameters": _YARN, "max_position_embeddings": 1024},
    "tied": {"head_dim": 16, "rope_parameters": _YARN, "tie_word_embeddings": True},
}

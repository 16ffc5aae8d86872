"""Hunyuan: norms after rotation, by the base of the file or by an enlarged one."""

MODEL_TYPE = "hunyuan_v1_dense"
VARIANTS = {
    "plain": {"head_dim": 24, "tie_word_embeddings": True},
    "alpha": {
        "head_dim": 16,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 300.0, "alpha": 50.0, "factor": 1.0},
    },
    "biases": {"head_dim": 16, "attention_bias": True},
}

"""GLM-4 of 2025: norms after each part."""

MODEL_TYPE = "glm4"
VARIANTS = {"half of a head": {"head_dim": 24}, "no biases": {"head_dim": 16, "attention_bias": False}}

"""Mixtral: a Mistral with experts."""

MODEL_TYPE = "mixtral"
VARIANTS = {"experts": {"num_local_experts": 4, "num_experts_per_tok": 2}}

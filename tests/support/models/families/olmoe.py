"""OLMoE: scores as they are, or divided by their sum."""

MODEL_TYPE = "olmoe"
MAX_DIVERGENCE = 0.09  # rounded layers choose other experts
VARIANTS = {
    "scores as they are": {"num_experts": 5, "num_experts_per_tok": 2},
    "scores by their sum, biases": {
        "num_experts": 5,
        "num_experts_per_tok": 3,
        "norm_topk_prob": True,
        "attention_bias": True,
    },
}

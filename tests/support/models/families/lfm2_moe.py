"""LFM2 with experts after a dense layer, in convolution layers and in one of attention."""

MODEL_TYPE = "lfm2_moe"
MAX_DIVERGENCE = 0.12  # rounded layers choose other experts
_SIZES = {
    "num_hidden_layers": 3,
    "layer_types": ["conv", "full_attention", "conv"],
    "norm_eps": 1e-3,
    "rms_norm_eps": None,  # it has its own name for it
    "num_dense_layers": 1,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
}
VARIANTS = {
    "a bias of the choice": _SIZES,
    "scores as they are, untied": _SIZES
    | {"norm_topk_prob": False, "use_expert_bias": False, "tie_word_embeddings": False, "routed_scaling_factor": 1.7},
}

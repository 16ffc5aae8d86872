"""Qwen3 with experts: in all layers, or in every second one."""

MODEL_TYPE = "qwen3_moe"
MAX_DIVERGENCE = 0.08  # rounded layers choose other experts
_SIZES = {"head_dim": 24, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
VARIANTS = {
    "experts in all layers": _SIZES | {"norm_topk_prob": True, "tie_word_embeddings": True},
    "every second layer, sums as they are": _SIZES | {"decoder_sparse_step": 2},
    "biases, a layer without experts": _SIZES | {"attention_bias": True, "mlp_only_layers": [1]},
    "a window in all layers": _SIZES | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
}

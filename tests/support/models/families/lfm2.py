"""LFM2: convolution layers before and after an attention layer."""

MODEL_TYPE = "lfm2"
MAX_DIVERGENCE = 0.07  # convolutions add errors of neighboring tokens
_KINDS = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
_EPS = {"norm_eps": 1e-3, "rms_norm_eps": None}  # it has its own name for it
_EXACT = _EPS | {"block_auto_adjust_ff_dim": False}
VARIANTS = {
    "three taps": _KINDS | _EXACT,
    "five taps, untied": _KINDS | _EXACT | {"conv_L_cache": 5, "tie_word_embeddings": False},
    "layers by number": _EXACT | {"full_attn_idxs": [1], "num_hidden_layers": 3},
    "a rounded feed-forward": _EPS | {"layer_types": ["full_attention", "conv"], "block_multiple_of": 32},
    "a wider feed-forward": _EPS
    | {
        "layer_types": ["conv", "full_attention"],
        "block_multiple_of": 16,
        "block_ffn_dim_multiplier": 1.7,
        "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
    },
}

"""The suites of ExecuTorch's op catalog, by name: what we run, and what we refuse."""

SUITES = (
    "abs", "add", "addmm", "amax", "amin", "apply_rotary_emb_interleaved", "argmax", "argmin", "avg_pool2d",
    "batch_norm", "bitwise_and", "bitwise_not", "bitwise_or", "cat", "clamp", "constant_pad_nd", "conv1d",
    "conv1d_dw", "conv1d_pw", "conv2d", "conv_with_clamp", "cos", "dequantize_per_tensor", "embedding", "eq",
    "et_vk_sdpa", "exp", "expand_copy", "flip", "floor_divide", "ge", "gelu", "grid_priors", "grid_sampler_2d",
    "gt", "hardswish", "hardtanh", "index_select", "layer_norm", "le", "leaky_relu", "linear_dq8ca_q4gsw",
    "linear_fp32", "linear_q8ta_q8csw", "linear_qcs4w", "logical_and", "logical_or", "lt", "max_pool2d", "minimum",
    "mul", "native_group_norm", "neg", "permute", "pixel_shuffle", "pow", "pow_scalar", "q8ta_add", "q8ta_conv2d",
    "q8ta_conv2d_dw", "q8ta_conv2d_pw", "q8ta_conv2d_transposed", "q8ta_linear", "q8ta_pixel_shuffle", "q8ta_relu",
    "quantize_per_tensor", "relu", "repeat", "rms_norm", "round", "rsqrt", "select", "sigmoid", "sin", "slice",
    "split_with_sizes_copy", "sqrt", "squeeze", "sub", "tanh", "to_copy", "to_copy_bool_input_to_float",
    "to_copy_bool_to_float", "unsqueeze", "upsample_bilinear2d", "upsample_nearest2d", "view_copy",
)  # fmt: skip

# Refused for now. A suite that no longer is must move up: a test compares this list with what can be planned.
PENDING: tuple[str, ...] = ()

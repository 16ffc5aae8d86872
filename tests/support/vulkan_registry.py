"""The ops that ExecuTorch 1.5.1's Vulkan partitioner may put into a delegate: its `op_registry`, as names.

An export-tier test compares this list with the installed wheel.
"""

from __future__ import annotations

NAMES = """
_assert_scalar.default
add
aten._log_softmax.default
aten._native_batch_norm_legit_no_training.default
aten._softmax.default
aten._to_copy.default
aten._weight_int8pack_mm.default
aten.abs.default
aten.add.Tensor
aten.addmm.default
aten.alias_copy.default
aten.amax.default
aten.amin.default
aten.arange.start_step
aten.argmax.default
aten.argmin.default
aten.avg_pool2d.default
aten.bitwise_and.Tensor
aten.bitwise_not.default
aten.bitwise_or.Tensor
aten.bmm.default
aten.cat.default
aten.clamp.default
aten.clone.default
aten.constant_pad_nd.default
aten.convolution.default
aten.copy.default
aten.cos.default
aten.div.Tensor
aten.div.Tensor_mode
aten.embedding.default
aten.eq.Scalar
aten.eq.Tensor
aten.exp.default
aten.expand_copy.default
aten.flip.default
aten.full.default
aten.full_like.default
aten.gather.default
aten.ge.Scalar
aten.ge.Tensor
aten.gelu.default
aten.grid_sampler_2d.default
aten.gt.Scalar
aten.gt.Tensor
aten.hardshrink.default
aten.hardswish.default
aten.hardtanh.default
aten.index.Tensor
aten.index_select.default
aten.le.Scalar
aten.le.Tensor
aten.leaky_relu.default
aten.linear.default
aten.log10.default
aten.logical_and.default
aten.logical_not.default
aten.logical_or.default
aten.lt.Scalar
aten.lt.Tensor
aten.max_pool2d.default
aten.max_pool2d_with_indices.default
aten.mean.dim
aten.minimum.default
aten.mm.default
aten.mul.Tensor
aten.native_group_norm.default
aten.native_layer_norm.default
aten.ne.Scalar
aten.neg.default
aten.ones.default
aten.ones_like.default
aten.permute.default
aten.permute_copy.default
aten.pixel_shuffle.default
aten.pow.Tensor_Scalar
aten.pow.Tensor_Tensor
aten.relu.default
aten.repeat.default
aten.round.default
aten.rsqrt.default
aten.scalar_tensor.default
aten.select_copy.int
aten.sigmoid.default
aten.sin.default
aten.slice_copy.Tensor
aten.split_with_sizes_copy.default
aten.sqrt.default
aten.squeeze_copy.dims
aten.sub.Tensor
aten.sum.dim_IntList
aten.t_copy.default
aten.tanh.default
aten.unfold_copy.default
aten.unsqueeze_copy.default
aten.upsample_bilinear2d.vec
aten.upsample_nearest2d.vec
aten.view_copy.default
aten.where.self
aten.zeros.default
aten.zeros_like.default
dim_order_ops._clone_dim_order.default
dim_order_ops._to_dim_order_copy.default
eq
et_vk.apply_rotary_emb.default
et_vk.apply_rotary_emb_hf.default
et_vk.apply_rotary_emb_interleaved.default
et_vk.conv_with_clamp.default
et_vk.embedding_q4gsw.default
et_vk.fused_ce.default
et_vk.grid_priors.default
et_vk.linear_dW.default
et_vk.linear_dq8ca_q4gsw.default
et_vk.linear_q4gsw.default
et_vk.linear_q4gsw_backward.default
et_vk.linear_q8ta_q8csw.default
et_vk.linear_qcs4w.default
et_vk.q4gsw_requant.default
et_vk.q8ta_add.default
et_vk.q8ta_conv2d.default
et_vk.q8ta_conv2d_dw.default
et_vk.q8ta_conv2d_pw.default
et_vk.q8ta_conv2d_transposed.default
et_vk.q8ta_linear.default
et_vk.q8ta_linear_gemv.default
et_vk.q8ta_pixel_shuffle.default
et_vk.q8ta_relu.default
et_vk.rms_norm.default
et_vk::adamw_step
et_vk::sdpa
floordiv
ge
getitem
gt
le
llama::custom_sdpa
llama::sdpa_with_kv_cache
llama::update_cache
lt
mul
quantized_decomposed.choose_qparams.tensor
quantized_decomposed.choose_qparams_per_token_asymmetric.default
quantized_decomposed.dequantize_per_channel.default
quantized_decomposed.dequantize_per_tensor.default
quantized_decomposed.dequantize_per_tensor.tensor
quantized_decomposed.dequantize_per_token.default
quantized_decomposed.embedding_4bit.dtype
quantized_decomposed.quantize_per_channel.default
quantized_decomposed.quantize_per_tensor.default
quantized_decomposed.quantize_per_tensor.tensor
quantized_decomposed.quantize_per_token.default
sub
sym_constrain_range_for_size.default
sym_size.int
torchao.choose_qparams_affine.default
torchao.dequantize_affine.default
torchao.quantize_affine.default
""".split()

# What a graph calls it where the registry uses another name.
IN_GRAPHS = {
    "et_vk::adamw_step": "et_vk.adamw_step.default",
    "et_vk::sdpa": "et_vk.sdpa.default",
    "llama::custom_sdpa": "custom_sdpa.default",
    "llama::sdpa_with_kv_cache": "sdpa_with_kv_cache.default",
    "llama::update_cache": "update_cache.default",
}

# Registered there, but no graph ever contains them.
NEVER_IN_GRAPHS = {
    "_assert_scalar.default": "removed by an export pass",
    "sym_constrain_range_for_size.default": "removed by an export pass",
    "getitem": "resolved at export: several outputs are one ValueList",
}

# Names upstream's own WebGPU backend registers.
UPSTREAM_WEBGPU = 131

"""Which of torch's ops a file may name: those that compute a result from tensors and numbers, and do nothing else.

A file chooses the names of the kernels it calls, so this is a list of what is let in and not of what is kept out.
Every op here is a function of its arguments, checks its indices against its operands, and reads no memory but theirs.
Not here, on purpose: what touches files, devices, storage or generators; what returns memory nobody wrote (`empty`);
what trusts indices, strides, pivots or modes it is given (`_unsafe_index`, `as_strided`, `lu_solve`, `grid_sampler`);
what has an output as large as its data says (`repeat_interleave`, `bincount`); what writes into its arguments.
"""

from __future__ import annotations

_NAMES = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _conj_physical _log_softmax _pdist_forward _softmax
    _to_copy _upsample_bilinear2d_aa _upsample_bicubic2d_aa
    abs absolute acos acosh adaptive_avg_pool1d adaptive_max_pool2d adaptive_max_pool3d add addbmm addcdiv addcmul addmm
    addmv addr alias_copy all amax amin aminmax angle any arange arccos arccosh arcsin arcsinh arctan arctan2
    arctanh argmax argmin argsort asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d
    baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor block_diag bmm
    bucketize
    cat ceil celu channel_shuffle clamp clamp_max clamp_min clone column_stack complex concat constant_pad_nd
    convolution copy copysign cos cosh count_nonzero cross cummax cummin cumprod cumsum
    deg2rad detach_copy diag diag_embed diagonal_copy diff digamma dist div divide dot
    elu embedding eq erf erfc erfinv exp exp2 expand_copy expm1 eye
    fill flip fliplr flipud float_power floor floor_divide fmax fmin fmod frac full full_like
    gather gcd ge gelu ger glu greater greater_equal gt
    hardshrink hardsigmoid hardswish hardtanh heaviside hypot
    i0 index index_add index_copy index_fill index_put index_select inner isfinite isin isinf isnan isneginf isposinf
    isreal
    kron kthvalue
    lcm le leaky_relu lerp less less_equal lgamma lift_fresh_copy linalg_cross linalg_det linalg_inv linalg_norm
    linalg_vector_norm linear linspace log log10 log1p log2 log_sigmoid_forward logaddexp logaddexp2 logcumsumexp
    logical_and logical_not logical_or logical_xor logit logspace logsumexp lt
    masked_fill masked_scatter masked_select matmul max max_pool2d_with_indices max_pool3d_with_indices maximum mean
    median min minimum mish mm mode movedim mul multiply mv
    nan_to_num nanmean nanmedian nansum narrow_copy native_layer_norm ne neg
    negative nextafter nonzero norm not_equal
    ones ones_like outer
    permute_copy pixel_shuffle pixel_unshuffle polar polygamma pow prelu prod
    rad2deg real reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 remainder renorm repeat
    replication_pad1d replication_pad2d replication_pad3d roll rot90 round rsqrt rsub
    scalar_tensor scatter scatter_add scatter_reduce searchsorted select_copy select_scatter selu sgn sigmoid sign
    signbit silu sin sinc sinh slice_copy slice_scatter softplus softshrink sort special_bessel_j0 special_bessel_j1
    special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtr special_ndtri
    special_xlog1py special_zeta split_copy split_with_sizes_copy sqrt square squeeze_copy stack std std_mean sub
    subtract sum t_copy take tan tanh threshold topk trace transpose_copy tril tril_indices triu triu_indices
    true_divide trunc
    unbind_copy unfold_copy unsqueeze_copy upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
    upsample_nearest2d upsample_nearest3d upsample_trilinear3d
    var var_mean vdot view_as_complex_copy view_as_real_copy view_copy
    where
    xlogy
    zeros zeros_like
"""
PURE = frozenset(_NAMES.split())

# Their results depend on data, and are never larger than what they are given: rows of indices into it, or part of it.
SIZED_BY_DATA = frozenset({"masked_select", "nonzero"})

# Arguments that say where and how torch keeps a tensor. A file has no say in that: they must be absent.
PLACEMENT = frozenset({"device", "generator", "layout", "memory_format", "names", "pin_memory"})

"""CPU fallback to an allow-list of torch ops without side effects. The output's shape is checked before an op runs.

The names and arguments come out of a file. `pure_ops` says which names are looked up at all; the arguments are tensors,
numbers and lists of them; the op is first run on shapes alone, and refused if its result would not fit where the file
says it goes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import GraphError
from ..graph import Call, TensorSpec

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


def _parts(name: str) -> tuple[str, str, str]:
    """Split `aten::cumsum.out` (outside delegates) or `aten.cumsum.default` (inside) into its parts."""
    namespace, _, rest = name.partition("::" if "::" in name else ".")
    base, _, overload = rest.partition(".")
    return namespace, base, overload or "default"


@functools.lru_cache(1024)
def torch_kernel(name: str) -> Any | None:
    """Return the overload that a name in a file stands for, if it is a pure op and torch is installed."""
    namespace, base, overload = _parts(name)
    if namespace != "aten" or base not in PURE:
        return None
    try:
        import torch
    except ImportError:
        return None
    kernel = getattr(getattr(torch.ops.aten, base, None), overload, None)
    if not isinstance(kernel, torch._ops.OpOverload):
        return None
    written = [a for a in kernel._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return kernel if all(a.is_out for a in written) else None


def run_torch(call: Call, args: Sequence[Any], outs: Sequence[TensorSpec]) -> Any:
    """Run a call whose arguments are arrays, numbers, None and lists of those."""
    import torch

    kernel = torch_kernel(call.name)
    assert kernel is not None
    schema = kernel._schema.arguments
    _refuse_arguments(call, schema, args)
    if _parts(call.name)[1] not in SIZED_BY_DATA:
        _refuse_sizes(call, _run(kernel, schema, args, outs, "meta"), outs)
    results = _run(kernel, schema, args, outs, "cpu")
    if not all(isinstance(r, torch.Tensor) for r in results):
        raise GraphError(f"{call.name} ({call.origin}) returned a value that is not a tensor")
    arrays = tuple(r.numpy() for r in results)
    return arrays if len(arrays) != 1 else arrays[0]


def _run(kernel: Any, schema: Sequence[Any], args: Sequence[Any], outs: Sequence[TensorSpec], device: str) -> list[Any]:
    import torch

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(item) for item in value]
        if not isinstance(value, np.ndarray):
            return value
        # Of an array only its shape matters on the meta device: no copy is made of it there.
        return torch.from_numpy(np.array(value) if device == "cpu" else value).to(device)

    converted = [convert(value) for value in args]
    named = {a.name: v for a, v in zip(schema, converted, strict=False) if a.kwarg_only}
    positional = [v for a, v in zip(schema, converted, strict=False) if not a.kwarg_only]
    # An out tensor without elements is resized without a warning; torch must own its memory to do so.
    dtypes = [torch.from_numpy(np.empty(0, spec.host_dtype.held)).dtype for spec in outs]
    empty = iter(torch.empty(0, dtype=dtype, device=device) for dtype in dtypes)
    named |= {a.name: next(empty) for a in schema[len(converted) :] if a.is_out}
    result = kernel(*positional, **named)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _refuse_arguments(call: Call, schema: Sequence[Any], args: Sequence[Any]) -> None:
    inputs = [a for a in schema if not a.is_out]
    if len(args) > len(inputs):
        raise GraphError(
            f"{call.name} ({call.origin}): expected at most {len(inputs)} arguments, got {len(args)}",
            code="wrong_arity",
        )
    for argument, value in zip(inputs, args, strict=False):
        if not _plain(value, argument) or (argument.name in PLACEMENT and value is not None):
            raise GraphError(
                f"{call.name} ({call.origin}), argument {argument.name}: expected a tensor, a number or a list of "
                f"them, got {value!r:.80}",
                code="wrong_kind",
            )


def _plain(value: Any, argument: Any, nested: bool = False) -> bool:
    """Return whether a value is a tensor, a number, a list of them, or a string for a string argument."""
    if isinstance(value, list) and not nested:
        return all(_plain(item, argument, nested=True) for item in value)
    if isinstance(value, str):
        return "str" in str(argument.type).lower()
    return value is None or isinstance(value, (bool, int, float, np.ndarray))


def _refuse_sizes(call: Call, results: Sequence[Any], outs: Sequence[TensorSpec]) -> None:
    """Raise GraphError unless the results have the number that the file expects, each within its declared bound."""
    if len(results) != len(outs):
        raise GraphError(
            f"{call.name} ({call.origin}) would return {len(results)} results; the file expects {len(outs)}"
        )
    for tensor, spec in zip(results, outs, strict=True):
        shape = tuple(tensor.shape)
        if len(shape) != len(spec.dims) or any(a > b for a, b in zip(shape, spec.dims, strict=True)):
            raise GraphError(
                f"{call.name} ({call.origin}) would return shape {list(shape)}, outside its bound {list(spec.dims)}",
                code="exceeds_bound",
            )

"""Fuse calls over int8 codes, as XNNPACK delegates have them: layers with sums, quantizations with permutations."""

from __future__ import annotations

from ..graph import Call, Graph, TensorSpec
from ..graph.names import INT8_ADD, INT8_CONVOLUTION, INT8_LINEAR
from .dims import SymbolicDims
from .rewriter import Rewriter, role_of, roles

PATTERN = {
    "quantize": ("quantized_decomposed.quantize_per_tensor.default",),
    "dequantize": ("quantized_decomposed.dequantize_per_tensor.default",),
    "permute": ("aten.permute_copy.default", "aten.permute.default"),
}
ROLES = roles(PATTERN)
# Quantizations to and from another order of dims, and layers with a residual.
PERMUTED = {"quantize": "webpte.permuted_quantize", "dequantize": "webpte.permuted_dequantize"}
WITH_RESIDUAL = {INT8_CONVOLUTION: "webpte.int8_convolution_add", INT8_LINEAR: "webpte.int8_linear_add"}


def add_int8_residuals(graph: Graph) -> Graph:
    """Fuse the addition of a residual into the layer before it. The layer's codes are rounded as before."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    dims = SymbolicDims(graph)
    for index in range(len(graph.steps)):
        layer = rewriter.call(index)
        if layer is None or layer.name not in WITH_RESIDUAL or not _can_move(rewriter, layer):
            continue
        (own,) = layer.outs
        user = rewriter.only_user(own)
        if user is None or user[1].name != INT8_ADD:
            continue
        at, call = user
        terms = rewriter.arguments(call)
        first, second = ("a", "b") if terms["a"] == own else ("b", "a")
        residual = terms[second]
        if rewriter.is_immutable(residual) and dims.same(own, residual) and dims.same(own, call.outs[0]):
            sums = {"sum_a_factor": terms[f"{first}_factor"], "sum_b_factor": terms[f"{second}_factor"]}
            sums |= {f"sum_{name}": terms[name] for name in ("bias", "shift", "zero", "low", "high")}
            arguments = {**rewriter.arguments(layer), "residual": residual, **sums}
            fused = rewriter.make(WITH_RESIDUAL[layer.name], call.outs, layer.origin, **arguments)
            rewriter.replace([index, at], fused, at)
    return rewriter.result()


def _can_move(rewriter: Rewriter, layer: Call) -> bool:
    """Return whether a layer may run later, and has the kernel that adds residuals: not one for each channel."""
    tensors = [i for i in layer.args if isinstance(rewriter.values[i], TensorSpec)]
    weights = rewriter.values[rewriter.arguments(layer)["weights"]]
    assert isinstance(weights, TensorSpec)
    return len(weights.dims) == 3 and all(map(rewriter.is_immutable, (*tensors, *layer.outs)))


def permute_quantized(graph: Graph) -> Graph:
    """Fuse a permutation into the quantization or dequantization before it, if nothing else reads its result."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    for index in range(len(graph.steps)):
        call = rewriter.call(index)
        role = role_of(call, ROLES)
        if call is None or role not in PERMUTED or call.on_host:
            continue
        arguments = rewriter.arguments(call)
        user = rewriter.only_user(call.outs[0])
        if user is None or role_of(user[1], ROLES) != "permute" or user[1].on_host:
            continue
        at, permutation = user
        if all(map(rewriter.is_immutable, (arguments["input"], *call.outs, *permutation.outs))):
            arguments["dims"] = rewriter.arguments(permutation)["dims"]
            fused = rewriter.make(PERMUTED[role], permutation.outs, call.origin, **arguments)
            rewriter.replace([index, at], fused, at)
    return rewriter.result()

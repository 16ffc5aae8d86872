"""Fuse quantizations to and from int8 codes with permutations, as XNNPACK delegates have them."""

from __future__ import annotations

from ..graph import Graph
from .rewriter import Rewriter, role_of, roles

PATTERN = {
    "quantize": ("quantized_decomposed.quantize_per_tensor.default",),
    "dequantize": ("quantized_decomposed.dequantize_per_tensor.default",),
    "permute": ("aten.permute_copy.default", "aten.permute.default"),
}
ROLES = roles(PATTERN)
# Quantizations to and from another order of dims.
PERMUTED = {"quantize": "webpte.permuted_quantize", "dequantize": "webpte.permuted_dequantize"}


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

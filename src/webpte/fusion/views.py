"""Copies and views that give back what they were given."""

from __future__ import annotations

from ..graph import Call, Graph, TensorSpec
from .dims import LiveDims
from .rewriter import Rewriter

# The elements of the first argument in the same order: with the same shape, the same tensor.
IDENTITIES = {
    "aten.alias_copy.default",
    "aten.clone.default",
    "aten.expand_copy.default",
    "aten.view_copy.default",
    "aten::clone.out",
    "aten::expand_copy.out",
    "aten::view_copy.out",
    "dim_order_ops._clone_dim_order.default",
    "executorch_prim::et_view.default",
}


def drop_identities(graph: Graph) -> Graph:
    """Let readers of a view that provably has its source's live shape read the source."""
    rewriter = Rewriter(graph)
    if not rewriter.straight:
        return graph
    dims = LiveDims(graph)
    for index in range(len(graph.steps)):
        call = rewriter.call(index)
        if call is not None and call.name in IDENTITIES and _is_identity(call, rewriter, dims):
            rewriter.forward(index, call.args[0])
    return rewriter.done()


def _is_identity(call: Call, rewriter: Rewriter, dims: LiveDims) -> bool:
    source, out = call.args[0], call.outs[0]
    given, made = rewriter.values[source], rewriter.values[out]
    if not isinstance(given, TensorSpec) or not isinstance(made, TensorSpec) or given.dtype is not made.dtype:
        return False
    unseen = out not in rewriter.outputs  # the caller asks for it by its own name
    return unseen and rewriter.settled(source) and rewriter.settled(out) and dims.same(source, out)

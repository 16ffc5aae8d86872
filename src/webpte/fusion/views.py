"""Copies and views that give back what they were given."""

from __future__ import annotations

from ..graph import Graph, TensorSpec
from ..lowering import find
from .dims import LiveDims
from .rewriter import Rewriter


def drop_identities(graph: Graph) -> Graph:
    """Let readers of a view that provably has its source's live shape read the source."""
    rewriter = Rewriter(graph)
    if not rewriter.straight:
        return graph
    dims = LiveDims(graph)
    for index in range(len(graph.steps)):
        call = rewriter.call(index)
        op = None if call is None else find(call)
        if call is None or op is None or op.facts.same is None or len(call.outs) != 1:
            continue
        source = op.arguments(call)[op.facts.same]
        if _is_identity(source, call.outs[0], rewriter, dims):
            rewriter.forward(index, source)
    return rewriter.done()


def _is_identity(source: int, out: int, rewriter: Rewriter, dims: LiveDims) -> bool:
    given, made = rewriter.values[source], rewriter.values[out]
    if not isinstance(given, TensorSpec) or not isinstance(made, TensorSpec) or given.dtype is not made.dtype:
        return False
    unseen = out not in rewriter.outputs  # the caller asks for it by its own name
    return unseen and rewriter.settled(source) and rewriter.settled(out) and dims.same(source, out)

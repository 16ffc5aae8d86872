"""Fuse RMS norms with what follows them: the layer that reads the result, or the addition of a residual."""

from __future__ import annotations

from ..graph import Call, Double, Graph, Int, Null, TensorSpec
from ..graph.names import LINEAR_Q4
from .dims import SymbolicDims
from .linears import fused_at, same_spec
from .rewriter import Rewriter, roles

MAX_BUFFERS = 8  # of a call: every device can bind them
NORM_RESIDUAL = "webpte.rms_norm_residual"
PATTERN = {
    "norm": ("et_vk.rms_norm.default",),
    "sum": ("aten.add.Tensor",),
}
ROLES = roles(PATTERN)


def add_norm_residuals(graph: Graph) -> Graph:
    """Fuse the addition of a residual into the RMS norm before it, as in models that normalize the result of a part."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    dims = SymbolicDims(graph)
    for index in range(len(rewriter.steps)):
        norm = rewriter.call(index)
        if norm is None or ROLES.get(norm.name) != "norm" or not rewriter.is_immutable(norm.outs[0]):
            continue
        user = rewriter.only_user(norm.outs[0])
        residual = None if user is None else other_term(rewriter, user[1], norm.outs[0], dims)
        options = rewriter.arguments(norm)
        moved = (options["x"], options["weight"])
        if user is None or residual is None or not all(map(rewriter.is_immutable, (*moved, residual))):
            continue
        at, call = user
        added = rewriter.make(NORM_RESIDUAL, call.outs, call.origin, **options, residual=residual)
        rewriter.replace([index, at], added, at)
    return rewriter.result()


def other_term(rewriter: Rewriter, call: Call, term: int, dims: SymbolicDims) -> int | None:
    """Return what a call adds to `term`, a tensor of the same shape; None if the call does something else."""
    if ROLES.get(call.name) != "sum":
        return None
    arguments = rewriter.arguments(call)
    other = arguments["other" if arguments["self"] == term else "self"]
    plain = rewriter.values[arguments["alpha"]] in (Int(1), Double(1.0))
    fits = same_spec(rewriter, term, other) and same_spec(rewriter, term, call.outs[0])
    return other if plain and fits and dims.same(term, other) else None


def normalize_in_linears(graph: Graph) -> Graph:
    """Fuse an RMS norm into the only layer that reads it. Kernels for few rows then need no dispatch for the norm."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    for index in range(len(rewriter.steps)):
        norm = rewriter.call(index)
        if norm is None or ROLES.get(norm.name) != "norm":
            continue
        options = rewriter.arguments(norm)
        user = rewriter.only_user(norm.outs[0])
        immutable = all(map(rewriter.is_immutable, (options["x"], options["weight"], norm.outs[0])))
        if user is None or not immutable or not same_spec(rewriter, options["x"], norm.outs[0]):
            continue
        at = user[0]
        if (call := fused_at(rewriter, at)) is None:
            continue
        arguments = rewriter.arguments(call)
        tensors = [i for i in rewriter.flatten(call.args) if isinstance(rewriter.values[i], TensorSpec)]
        room = len(tensors) + len(call.outs) < MAX_BUFFERS
        if arguments["x"] == norm.outs[0] and room and isinstance(rewriter.values[arguments["x_scales"]], Null):
            normed = {**arguments, "x": options["x"], "norm": options["weight"], "norm_eps": options["eps"]}
            rewriter.replace([index, at], rewriter.make(LINEAR_Q4, call.outs, call.origin, **normed), at)
    return rewriter.result()

"""Graph to graph: named rewrites that let fewer kernels do the same work. Each can be switched off by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import InputError
from ..graph import Graph
from .attention import rotate_in_attention
from .elementwise import join_elementwise
from .epilogues import add_epilogues
from .halves import widen_halves
from .layouts import fold_transposes
from .linears import add_residuals, gate_linears, join_linears, share_qparams
from .pattern import roles
from .rewriter import Rewriter
from .views import drop_identities

__all__ = ["PASSES", "Rewriter", "apply_passes", "roles", "rotate_in_attention", "widen_halves"]

Pass = Callable[[Graph], Graph]
PASSES: dict[str, Pass] = {  # in the order they are applied
    "identities": drop_identities,
    "qparams": share_qparams,
    "gated-linears": gate_linears,
    "joined-linears": join_linears,
    "residual-linears": add_residuals,
    "rotary-attention": rotate_in_attention,
    "elementwise": join_elementwise,
    "epilogues": add_epilogues,
    "layouts": fold_transposes,
}


def apply_passes(graph: Graph, names: Sequence[str]) -> tuple[Graph, dict[str, int]]:
    """The rewritten graph, and how many calls each pass saved."""
    unknown = [name for name in names if name not in PASSES]
    if unknown:
        raise InputError(f"there is no pass {', '.join(unknown)}; the passes are {', '.join(PASSES)}")
    saved: dict[str, int] = {}
    for name, rewrite in PASSES.items():
        if name in names:
            before = len(graph.steps)
            graph = rewrite(graph)
            saved[name] = before - len(graph.steps)
    return graph, saved

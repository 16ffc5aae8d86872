"""The passes by name, in the order in which they run, and the two small ones: identities and wide f16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import InputError
from ..graph import OWN, DType, Graph, String, TensorSpec, Value, format_program, parse_program
from ..lowering import find
from .attention import rotate_in_attention
from .dims import SymbolicDims
from .elementwise import join_elementwise
from .epilogues import add_epilogues
from .layouts import fold_transposes
from .linears import add_residuals, gate_linears, join_linears, share_qparams
from .rewriter import Rewriter


def drop_identities(graph: Graph) -> Graph:
    """Let readers of a view that provably has its source's live shape read the source."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    dims = SymbolicDims(graph)
    for index in range(len(graph.steps)):
        call = rewriter.call(index)
        op = None if call is None else find(call)
        if call is None or op is None or op.facts.same is None or len(call.outs) != 1:
            continue
        source = op.arguments(call)[op.facts.same]
        if _is_identity(source, call.outs[0], rewriter, dims):
            rewriter.forward(index, source)
    return rewriter.result()


def _is_identity(source: int, out: int, rewriter: Rewriter, dims: SymbolicDims) -> bool:
    given, made = rewriter.values[source], rewriter.values[out]
    if not isinstance(given, TensorSpec) or not isinstance(made, TensorSpec) or given.dtype is not made.dtype:
        return False
    unseen = out not in rewriter.outputs  # the caller asks for it by its own name
    return unseen and rewriter.is_immutable(source) and rewriter.is_immutable(out) and dims.same(source, out)


def widen_halves(graph: Graph) -> Graph:
    """Keep every f16 tensor in words, for devices whose shaders have no f16. Values are still those of f16."""
    ours = [(op, call) for call in graph.calls if call.name.startswith(OWN) and (op := find(call)) is not None]
    programs = {given["program"] for op, call in ours if "program" in (given := op.arguments(call))}

    def widened(value_id: int, value: Value) -> Value:
        if isinstance(value, TensorSpec) and value.dtype is DType.FLOAT16:
            return replace(value, dtype=DType.WIDE_FLOAT16)
        if isinstance(value, String) and value_id in programs and "\n" in value.value:
            return String(_widened_program(value.value))
        return value

    return replace(graph, values=tuple(widened(i, value) for i, value in enumerate(graph.values)))


def _widened_program(text: str) -> str:
    steps, outputs = parse_program(text)
    wide = {DType.FLOAT16.short: DType.WIDE_FLOAT16.short}
    return format_program([step._replace(dtype=wide.get(step.dtype, step.dtype)) for step in steps], outputs)


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

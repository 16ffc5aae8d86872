"""The passes by name, in the order in which they run, and the two small ones: identities and wide f16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import InputError
from ..graph import DType, Graph, String, TensorSpec, Value, format_program, parse_program
from ..graph.names import OWN
from ..lowering import find
from .attention import rotate_in_attention
from .codes import permute_quantized
from .decompositions import recompose
from .dims import SymbolicDims
from .elementwise import join_elementwise
from .epilogues import add_epilogues, gate_linears
from .layouts import fold_transposes
from .linears import choose_in_linears, join_linears, share_qparams
from .norms import add_norm_residuals, normalize_in_linears
from .offsets import offset_linears
from .rewriter import Rewriter


def drop_identities(graph: Graph) -> Graph:
    """Remove views and copies that provably keep the shape: their readers read the source."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    dims = SymbolicDims(graph)
    for index in range(len(graph.steps)):
        call = rewriter.call(index)
        op = None if call is None else find(call)
        if call is None or op is None or op.traits.same is None or len(call.outs) != 1:
            continue
        source = op.arguments(call)[op.traits.same]
        if _is_identity(source, call.outs[0], rewriter, dims):
            rewriter.forward(index, source)
    return rewriter.result()


def _is_identity(source: int, out: int, rewriter: Rewriter, dims: SymbolicDims) -> bool:
    before, after = rewriter.values[source], rewriter.values[out]
    if not isinstance(before, TensorSpec) or not isinstance(after, TensorSpec) or before.dtype is not after.dtype:
        return False
    internal = out not in rewriter.outputs  # outputs keep their ids
    return internal and rewriter.is_immutable(source) and rewriter.is_immutable(out) and dims.same(source, out)


def widen_halves(graph: Graph) -> Graph:
    """Store every f16 tensor in words, for devices whose shaders have no f16. Values are still rounded to f16."""
    own_calls = [(op, call) for call in graph.calls if call.name.startswith(OWN) and (op := find(call)) is not None]
    programs = {arguments["program"] for op, call in own_calls if "program" in (arguments := op.arguments(call))}

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
PASSES: dict[str, Pass] = {  # in the order in which they run
    "identities": drop_identities,
    "decompositions": recompose,
    "qparams": share_qparams,
    "offset-linears": offset_linears,
    "permuted-codes": permute_quantized,
    "rotary-attention": rotate_in_attention,
    "elementwise": join_elementwise,
    "gated-linears": gate_linears,
    "joined-linears": join_linears,
    "epilogues": add_epilogues,
    "row-qparams": choose_in_linears,
    "norm-linears": normalize_in_linears,
    "norm-residuals": add_norm_residuals,
    "layouts": fold_transposes,
}


def apply_passes(graph: Graph, names: Sequence[str]) -> tuple[Graph, dict[str, int]]:
    """Return the rewritten graph, and the number of calls that each pass saved."""
    unknown = [name for name in names if name not in PASSES]
    if unknown:
        raise InputError(
            argument="passes",
            expected=f"names of passes ({', '.join(PASSES)})",
            got=", ".join(unknown),
            code="unknown_pass",
        )
    saved: dict[str, int] = {}
    for name, rewrite in PASSES.items():
        if name in names:
            before = len(graph.steps)
            graph = rewrite(graph)
            saved[name] = before - len(graph.steps)
    return graph, saved

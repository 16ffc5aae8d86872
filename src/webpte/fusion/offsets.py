"""Fuse 4-bit linear layers with the product that adds an offset to the weights of each group.

    y = linear_q4gsw(x, codes, scales) + mm(sums of the groups of x, dequantize_per_channel(offsets))

is a layer whose weights are `scale * code + offset`. A kernel sums the groups while it reads x.
"""

from __future__ import annotations

from ..graph import Bool, Call, Constant, DType, Graph, Int, IntList, Null, TensorSpec
from ..graph.names import PREPACK
from .dims import SymbolicDims
from .linears import QuantizedLinear, fused_call, quantized_linears, tensor_spec
from .norms import other_term
from .rewriter import Rewriter, roles

PATTERN = {
    "view": ("aten.view_copy.default",),
    "sum": ("aten.sum.dim_IntList",),
    "product": ("aten.mm.default",),
    "dequantize": ("quantized_decomposed.dequantize_per_channel.default",),
    "prepack": (PREPACK,),
}
ROLES = roles(PATTERN)
COLUMN_MULTIPLE = 4  # a word has the offsets of four columns


def offset_linears(graph: Graph) -> Graph:
    """Fuse the sums of groups, their product with offsets and the addition into the 4-bit layer of the same input."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    dims = SymbolicDims(graph)
    for linear in quantized_linears(rewriter):
        user = rewriter.only_user(linear.out)
        if user is None or linear.bits != 4 or linear.qparams or linear.offsets is not None:
            continue
        at, call = user
        added = other_term(rewriter, call, linear.out, dims)
        if added is None:
            continue
        view = _step(rewriter, added, "view")
        product = _step(rewriter, added if view is None else view[1].args[0], "product")
        if product is None:
            continue
        sums, weight = product[1].args
        offsets = _offsets(rewriter, linear, weight) if _are_group_sums(rewriter, sums, linear) else None
        between = (added, product[1].outs[0])
        if offsets is None or any(rewriter.only_user(value_id) is None for value_id in between):
            continue
        fused = fused_call(rewriter, [linear], call.outs, offsets=rewriter.add(offsets))
        views = [] if view is None else [view[0]]
        rewriter.replace([linear.index, product[0], *views, at], fused, at)
        _drop_unread(rewriter, sums)
        _drop_unread(rewriter, weight)
    return rewriter.result()


def _step(rewriter: Rewriter, value_id: int, role: str) -> tuple[int, Call] | None:
    """Return the call that computes a value, if it has the role."""
    step = rewriter.producer(value_id)
    return step if step is not None and ROLES.get(step[1].name) == role else None


def _offsets(rewriter: Rewriter, linear: QuantizedLinear, weight: int) -> TensorSpec | None:
    """Return the weight (G, N) of the product as bytes: its codes, and then a scale for each column."""
    step = _step(rewriter, weight, "dequantize")
    if step is None:
        return None
    options = rewriter.arguments(step[1])
    codes, scales = _constant(rewriter, options["input"]), _constant(rewriter, options["scales"])
    zeros = options["zero_points"]
    symmetric = isinstance(rewriter.values[zeros], Null) or _is_zero(_constant(rewriter, zeros))
    columns = tensor_spec(rewriter, linear.codes).dims[0]
    shapes = (_groups(rewriter, linear), columns), (columns,)
    if codes is None or scales is None or codes.constant is None or scales.constant is None or not symmetric:
        return None
    if (codes.dims, scales.dims) != shapes or columns % COLUMN_MULTIPLE or rewriter.values[options["axis"]] != Int(1):
        return None
    if codes.constant.dtype is not DType.INT8 or scales.constant.dtype is not DType.FLOAT32:
        return None
    name = f"{codes.constant.name} + {scales.constant.name}"
    constant = Constant(codes.constant.span, DType.INT8, name, (scales.constant.span,))
    return TensorSpec(DType.INT8, (constant.nbytes,), DType.INT8, constant=constant)


def _constant(rewriter: Rewriter, value_id: int) -> TensorSpec | None:
    """Return a constant that is one span of the file, stored or prepacked."""
    step = _step(rewriter, value_id, "prepack")
    source = value_id if step is None else step[1].args[0]
    spec = rewriter.values[source]
    if not isinstance(spec, TensorSpec) or not rewriter.is_immutable(source):
        return None
    if spec.constant is None or spec.constant.rest:
        return None
    return spec


def _is_zero(spec: TensorSpec | None) -> bool:
    return spec is not None and spec.constant is not None and not spec.constant.array(spec.dims).any()


def _groups(rewriter: Rewriter, linear: QuantizedLinear) -> int:
    """Return the number of groups of a row of x, 0 if the last one is shorter."""
    inner, group = tensor_spec(rewriter, linear.x).dims[-1], linear.group
    return inner // group.value if isinstance(group, Int) and group.value > 0 and inner % group.value == 0 else 0


def _are_group_sums(rewriter: Rewriter, sums: int, linear: QuantizedLinear) -> bool:
    """Return whether a row of `sums` has the sums of the groups of a row of x."""
    step = _step(rewriter, sums, "sum")
    if step is None:
        return False
    options, values = rewriter.arguments(step[1]), rewriter.values
    view = _step(rewriter, options["self"], "view")
    if view is None or rewriter.source(view[1]) != linear.x or values[options["keepdim"]] != Bool(False):
        return False
    dims, group = tensor_spec(rewriter, options["self"]).dims, linear.group
    whole = isinstance(group, Int) and dims[-2:] == (_groups(rewriter, linear), group.value)
    return whole and values[options["dim"]] in (IntList((-1,)), IntList((len(dims) - 1,)))


def _drop_unread(rewriter: Rewriter, value_id: int) -> None:
    """Remove the calls of this pass's pattern that compute a value, if no call reads it any more."""
    step = rewriter.producer(value_id)
    if step is None or rewriter.users[value_id] or value_id in rewriter.outputs or step[1].name not in ROLES:
        return
    for source in rewriter.drop(step[0]).args:
        _drop_unread(rewriter, source)

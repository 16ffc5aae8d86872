"""Fuse 4-bit linear layers with the product that adds an offset to the weights of each group.

    y = linear_q4gsw(x, codes, scales) + _weight_int8pack_mm(sums of the groups of x, offsets)

is a layer whose weights are `scale * code + offset`. A kernel sums the groups while it reads x.
"""

from __future__ import annotations

from ..graph import Bool, Call, Constant, Double, DType, Graph, Int, IntList, TensorSpec
from .dims import SymbolicDims
from .linears import QuantizedLinear, fused_call, other_term, quantized_linears, tensor_spec
from .rewriter import Rewriter, roles

PATTERN = {
    "view": ("aten.view_copy.default",),
    "sum": ("aten.sum.dim_IntList",),
    "pad": ("aten.constant_pad_nd.default",),
}
ROLES = roles(PATTERN)
ROW_MULTIPLE = 4  # offsets of a row


def offset_linears(graph: Graph) -> Graph:
    """Fuse the sums of groups, their 8-bit product and the addition into the 4-bit layer of the same input."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    dims = SymbolicDims(graph)
    linears = quantized_linears(rewriter)
    products = {linear.out: linear for linear in linears if linear.bits == 8}
    for linear in linears:
        user = rewriter.only_user(linear.out)
        if user is None or linear.bits != 4 or linear.qparams:
            continue
        at, call = user
        added = other_term(rewriter, call, linear.out, dims)
        if added is None:
            continue
        view = _step(rewriter, added, "view")
        product = products.get(added if view is None else view[1].args[0])
        if product is None:
            continue
        offsets = _offsets(rewriter, linear, product)
        if offsets is None or any(rewriter.only_user(value_id) is None for value_id in (added, product.out)):
            continue
        weights = ([linear.codes], [linear.scales])
        fused = fused_call(rewriter, linear, call.outs, *weights, linear.bias, offsets=rewriter.add(offsets))
        views = [] if view is None else [view[0]]
        rewriter.replace([linear.index, product.index, *views, at], fused, at)
        _drop_unread(rewriter, product.x, linear.x)
    return rewriter.result()


def _step(rewriter: Rewriter, value_id: int, role: str) -> tuple[int, Call] | None:
    """Return the call that computes a value, if it has the role."""
    step = rewriter.producer(value_id)
    return step if step is not None and ROLES.get(step[1].name) == role else None


def _offsets(rewriter: Rewriter, linear: QuantizedLinear, product: QuantizedLinear) -> TensorSpec | None:
    """Return the weight of the product as bytes, its codes and then its scales; None if it is not one of group sums."""
    codes, scales = tensor_spec(rewriter, product.codes), tensor_spec(rewriter, product.scales)
    columns, inner = tensor_spec(rewriter, linear.codes).dims[0], tensor_spec(rewriter, linear.x).dims[-1]
    group = linear.group.value if isinstance(linear.group, Int) else 0
    if group <= 0 or inner % group or codes.constant is None or scales.constant is None:
        return None
    groups = inner // group
    shapes = (columns, -(-groups // ROW_MULTIPLE) * ROW_MULTIPLE), (columns,)
    if (codes.dims, scales.dims) != shapes or scales.constant.dtype is not DType.FLOAT32:
        return None
    if not _are_group_sums(rewriter, product.x, linear.x, groups):
        return None
    name = f"{codes.constant.name} + {scales.constant.name}"
    constant = Constant(codes.constant.span, DType.INT8, name, (scales.constant.span,))
    return TensorSpec(DType.INT8, (constant.nbytes,), DType.INT8, constant=constant)


def _are_group_sums(rewriter: Rewriter, sums: int, x: int, groups: int) -> bool:
    """Return whether a row of `sums` has the sums of the groups of a row of x, and then zeros."""
    values = rewriter.values
    pad = _step(rewriter, sums, "pad")
    if pad is not None:
        options = rewriter.arguments(pad[1])
        widths = values[options["pad"]]
        at_end = isinstance(widths, IntList) and len(widths.values) == 2 and widths.values[0] == 0
        if not at_end or values[options["value"]] not in (Int(0), Double(0.0)):
            return False
        sums = options["self"]
    step = _step(rewriter, sums, "sum")
    if step is None:
        return False
    options = rewriter.arguments(step[1])
    split = options["self"]
    view = _step(rewriter, split, "view")
    if view is None or rewriter.source(view[1]) != x or values[options["keepdim"]] != Bool(False):
        return False
    dims = tensor_spec(rewriter, split).dims
    whole = dims[-2:] == (groups, tensor_spec(rewriter, x).dims[-1] // groups)
    return whole and values[options["dim"]] in (IntList((-1,)), IntList((len(dims) - 1,)))


def _drop_unread(rewriter: Rewriter, value_id: int, source: int) -> None:
    """Remove the calls from `source` to a value if no call reads it any more."""
    while value_id != source and not rewriter.users[value_id] and value_id not in rewriter.outputs:
        (index,) = rewriter.producers[value_id]
        value_id = rewriter.arguments(rewriter.drop(index))["self"]
